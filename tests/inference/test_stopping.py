from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from roll_core.errors import BadRequest
from roll_core.inference.hf import HfInferStrategy
from roll_core.inference.stopping import StopStrings
from tests.inference.models import VOCAB, by_id, prompts_of, request, save_model

PIECES = ["<|end|>", "</", "answer", ">", " the", " a", "nswer", "</answer", "x", "."]


def tokenizer() -> PreTrainedTokenizerFast:
    """Whole words and pieces of them; the other ids of the models' vocabulary are single bytes."""
    pieces = [piece.replace(" ", "\u0120") for piece in PIECES]
    singles = [byte for byte in sorted(pre_tokenizers.ByteLevel.alphabet()) if byte not in pieces]
    vocab = {piece: index for index, piece in enumerate([*pieces, *singles[: VOCAB - len(PIECES)]])}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=PIECES[0], clean_up_tokenization_spaces=False)


def ids(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("pieces", "stop", "ends_after"),
    [
        (["x", "</", "answer", ">", "."], "</answer>", 4),
        (["x", "</answer", ">", "."], "</answer>", 3),
        (["x", "</", " a", "nswer", ">"], "</answer>", None),
        ([" the", " a", "nswer", "."], " answer.", 4),
        (["x", " a", "nswer"], "an", 3),
        (["x"] * 40 + ["."], "xxx.", 41),
        (["x", "<|end|>", "x"], "<|end|>", 2),
        (["."], ".", 1),
        (["x", "x"], "</answer>", None),
    ],
)
def test_a_stop_string_is_found_at_the_token_that_completes_it(
    pieces: Sequence[str], stop: str, ends_after: int | None
) -> None:
    stops, tokens = StopStrings(["never seen", stop], tokenizer()), ids(*pieces)
    found = [count for count in range(1, len(tokens) + 1) if stops.ends(tokens[:count])]
    assert found[:1] == ([] if ends_after is None else [ends_after])


def test_a_character_of_several_tokens_is_found() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: index for index, piece in enumerate(alphabet)}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    stops = StopStrings(["\u3002"], PreTrainedTokenizerFast(tokenizer_object=inner))
    tokens = inner.encode("ok\u3002").ids
    assert len(tokens) == 5
    assert [stops.ends(tokens[:count]) for count in range(1, 6)] == [False] * 4 + [True]


@pytest.fixture
def with_tokenizer(tmp_path: Path) -> Path:
    folder = save_model(tmp_path, "qwen2")
    tokenizer().save_pretrained(folder)
    return folder


def test_completions_end_at_stop_strings_and_keep_their_tokens(
    start: Callable[..., HfInferStrategy], with_tokenizer: Path
) -> None:
    engine = start(with_tokenizer)
    prompt = prompts_of(6)[0]
    free = by_id(engine.generate([request(prompt, str(i), seed=i, max_new_tokens=40) for i in range(8)]))
    text = {name: tokenizer().decode(completion.token_ids) for name, completion in free.items()}
    stops = {name: words[5:8] for name, words in text.items() if "\ufffd" not in words[5:8]}
    assert stops
    held = by_id(
        engine.generate(
            [request(prompt, name, seed=int(name), max_new_tokens=40, stop=(stop,)) for name, stop in stops.items()]
        )
    )
    for name, stop in stops.items():
        completion = held[name]
        got = tokenizer().decode(completion.token_ids)
        assert completion.finish_reason == "stop"
        assert completion.token_ids == free[name].token_ids[: len(completion.token_ids)]
        assert stop in got
        assert stop not in tokenizer().decode(completion.token_ids[:-1])


def test_the_tokenizers_own_end_ends_a_completion(start: Callable[..., HfInferStrategy], with_tokenizer: Path) -> None:
    assert start(with_tokenizer).model.eos_ids == (PIECES.index("<|end|>"),)


def test_stop_strings_without_a_tokenizer_are_refused(start: Callable[..., HfInferStrategy]) -> None:
    engine = start("qwen2")
    with pytest.raises(BadRequest) as error:
        engine.generate([request((1, 2), "r1", stop=("x",))])
    assert str(error.value) == f"stop strings need a tokenizer, and there is none in {engine.model.path}"
    assert len(by_id(engine.generate([request((1, 2), "r1")]))) == 1
