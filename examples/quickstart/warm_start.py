"""Supervised training of the tiny model on the forgetful student's answers, and a look at how well it adds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import addition
import lessons

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

STEPS = 400
BATCH = 32
MAX_NEW_TOKENS = 44

_PEAK_RATE = 5e-3
_WARM_UP = 20


def train(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[addition.Pair],
    seed: int,
    steps: int = STEPS,
    report: lessons.Report = lessons.silence,
) -> None:
    """Train the model in place; the loss is over the tokens of the answers, the end-of-turn token included."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=_PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    lessons.train(
        model,
        optimizer,
        lambda step: _rate(step, steps),
        _batches(tokenizer, pairs, seed, steps),
        lambda batch: lessons.loss_of_answers(model, batch, tokenizer.pad_token_id),
        report,
    )


def answer(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[addition.Pair],
    greedy: bool,
) -> list[dict[str, str]]:
    """The model's answers, as rows with `prompt` and `response`. Sampled at temperature 1 from torch's generator."""
    import torch

    texts = [
        tokenizer.apply_chat_template(addition.messages(pair), tokenize=False, add_generation_prompt=True)
        for pair in pairs
    ]
    inputs = tokenizer(texts, add_special_tokens=False, return_tensors="pt", padding=True, return_token_type_ids=False)
    sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    with torch.no_grad():
        output = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, **sampling)
    responses = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return [{"prompt": addition.question(pair), "response": text} for pair, text in zip(pairs, responses)]


def accuracy(rows: Sequence[dict[str, str]]) -> float:
    """The share of right answers."""
    return addition.errors_by_kind(rows)["right"] / len(rows)


def _rate(step: int, steps: int) -> float:
    """Share of the peak rate: linear warm-up, then a cosine down to a tenth."""
    if step < _WARM_UP:
        return (step + 1) / _WARM_UP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - _WARM_UP) / max(1, steps - _WARM_UP)))


def _batches(
    tokenizer: PreTrainedTokenizerBase, pairs: Sequence[addition.Pair], seed: int, steps: int
) -> Iterator[list[lessons.Sample]]:
    """Prompts with their answers, tokenised apart as they are when the model answers."""
    choice = random.Random(seed)
    for _ in range(steps):
        chosen = choice.sample(pairs, BATCH)
        prompts = [
            tokenizer.apply_chat_template(addition.messages(pair), tokenize=False, add_generation_prompt=True)
            for pair in chosen
        ]
        answers = [addition.demonstration(pair, choice) + str(tokenizer.eos_token) for pair in chosen]
        prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
        answer_ids = tokenizer(answers, add_special_tokens=False)["input_ids"]
        yield [
            (prompt + answer, [False] * len(prompt) + [True] * len(answer))
            for prompt, answer in zip(prompt_ids, answer_ids)
        ]
