"""The work of a step: a model that counts down, prompts that say from where, and a reward that tells rows apart.

How long answers are must be the same for every loop, and no loop may be given a hook that another lacks. So the
lengths are in the data: a token is a number and a letter ("64a"), and the model, though random and of ordinary size
everywhere else, has output rows that point where the next lower number is. A prompt that ends in "64a" is answered
by "63a 62b 61b ..." down to the end token, always 64 tokens, with the letters drawn at random.
"""

from __future__ import annotations

import json
import random
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

LONGEST = 256
PROMPT_TOKENS = 16
LETTERS = "ab"
END, PAD = 0, 1
"""Token ids in the place of "0a" and "0b": the first ends an answer, the second is never sampled."""


@dataclass(frozen=True)
class Case:
    """One kind of step. `lengths` holds the answer length of each prompt; where it varies, the most it can be.

    `target` is the ratio to reach, None where there is none to reach.
    """

    name: str
    lengths: tuple[int, ...]
    group_size: int
    target: float | None
    steps_per_round: int
    varies: bool = False

    @property
    def num_rows(self) -> int:
        """Rows of a step."""
        return len(self.lengths) * self.group_size

    def model(self, folder: Path) -> Path:
        """Where its model and tokenizer are."""
        return folder / ("quickstart" if self.varies else "model")

    def prompts(self, folder: Path) -> list[str]:
        """The text that each answer follows."""
        lines = (folder / f"{self.name}.jsonl").read_text().splitlines()
        return [json.loads(line)["text"] for line in lines]

    @property
    def num_tokens(self) -> int:
        """Tokens generated in a step."""
        return sum(self.lengths) * self.group_size

    @property
    def padding(self) -> float:
        """Tokens of a batch padded to its longest answer, over the tokens that count."""
        return max(self.lengths) * len(self.lengths) / sum(self.lengths)


CASES = {
    case.name: case
    for case in (
        Case("equal-32", (64,) * 4, 8, target=1.25, steps_per_round=4),
        Case("equal-8", (64,), 8, target=1.5, steps_per_round=8),
        # As many tokens as equal-32, and four times as many when padded to the longest.
        Case("tail-32", (8, 16, 24, 32, 40, 56, 80, 256), 4, target=2.0, steps_per_round=3),
        Case("quickstart", (44,) * 32, 8, target=None, steps_per_round=4, varies=True),
    )
}


def reward_of(answer: str) -> float:
    """A number in [0, 1) that depends on every letter: no two rows of a group have the same, so all are trained."""
    return zlib.crc32(answer.encode()) / 2**32


def words() -> list[str]:
    """The vocabulary, by token id: id 2 * number + letter."""
    return ["<end>", "<pad>", *(f"{number}{letter}" for number in range(1, LONGEST + 1) for letter in LETTERS)]


def counting_prompts(lengths: Sequence[int]) -> list[str]:
    """One prompt per length, of `PROMPT_TOKENS` tokens."""
    choice = random.Random(0)
    vocabulary = words()
    return [
        " ".join([*choice.choices(vocabulary[2:], k=PROMPT_TOKENS - 1), f"{length}{LETTERS[0]}"]) for length in lengths
    ]


def make_folder(folder: Path, case: Case, quickstart: Path) -> None:
    """Write a case's model, tokenizer and prompts; `quickstart` is where the quickstart's are."""
    import torch

    if case.varies:
        shutil.copytree(quickstart / "model", case.model(folder))
        rows = _quickstart_rows(quickstart, case)
    else:
        torch.manual_seed(0)
        make_model().save_pretrained(case.model(folder))
        make_tokenizer().save_pretrained(case.model(folder))
        rows = [{"prompt": text, "text": text} for text in counting_prompts(case.lengths)]
    numbered = [{"id": str(number), "ground_truth": "", **row, "tag": "step"} for number, row in enumerate(rows)]
    (folder / f"{case.name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbered))


def _quickstart_rows(quickstart: Path, case: Case) -> list[dict[str, str]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(quickstart / "model")
    lines = (quickstart / "data" / "train.jsonl").read_text().splitlines()[: len(case.lengths)]
    rows = [json.loads(line) for line in lines]
    for row in rows:
        dialogue = json.loads(row["messages"])
        row["text"] = tokenizer.apply_chat_template(dialogue, tokenize=False, add_generation_prompt=True)
    return rows


def make_model() -> LlamaForCausalLM:
    """A Llama of four layers of width 256 and 4 million parameters that counts down."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    vocab_size = len(words())
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    model = LlamaForCausalLM(config)
    directions = torch.nn.functional.normalize(torch.randn(LONGEST + 1, config.hidden_size), dim=-1)
    with torch.no_grad():
        # Ten times what the layers add, so that what is last in the text decides.
        model.model.embed_tokens.weight.copy_(10 * directions.repeat_interleave(len(LETTERS), dim=0))
        # The row of a number points along the next higher one; nothing points to LONGEST, which only prompts have.
        after = torch.cat([directions[1:], torch.zeros(1, config.hidden_size)])
        model.lm_head.weight.copy_(3 * after.repeat_interleave(len(LETTERS), dim=0))
        model.lm_head.weight[PAD] = 0
    return model


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Words of the vocabulary separated by spaces; a dialogue is the text of its last message."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(words())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=words()[PAD]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=words()[END],
        pad_token=words()[PAD],
        padding_side="left",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = "{{ messages[-1]['content'] }}"
    return wrapped
