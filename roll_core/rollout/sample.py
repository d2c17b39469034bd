"""A prompt, what an engine answered, and what the answer was worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from roll_core.data import DataProto
from roll_core.data.padding import Padding, pad, response_mask
from roll_core.data.prompts import Prompt
from roll_core.data.vision import PromptImages, columns_of
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rewards import Score
from roll_core.rollout.seeds import seed_of


@dataclass(frozen=True)
class Sample:
    """One scored response. `group` is the position of its prompt in the batch."""

    prompt: Prompt
    group: int
    completion: Completion
    text: str
    score: Score
    first_version: int | None = None
    """Version of the weights that sampled its first token, where later ones may have sampled the rest."""


def requests_for(
    prompts: Sequence[Prompt], first_group: int, num_samples: int, params: SamplingParams, run_seed: int, label: str
) -> list[GenerationRequest]:
    """`num_samples` requests per prompt, prompt by prompt. `label` is purpose and step, such as "train/3"."""
    purpose, _, step = label.partition("/")
    return [
        GenerationRequest(
            request_id=f"{label}/{group}/{index}",
            prompt_ids=prompt.token_ids,
            params=params,
            seed=seed_of(run_seed, purpose, int(step), prompt.row.id, group, index),
            group=f"{label}/{group}",
            images=images,
        )
        for group, (prompt, images) in enumerate(zip(prompts, map(images_of, prompts)), start=first_group)
        for index in range(num_samples)
    ]


def images_of(prompt: Prompt) -> PromptImages | None:
    """What an engine is given of a prompt's images."""
    return None if prompt.pictures is None else prompt.pictures.for_engine(len(prompt.token_ids))


def to_batch(samples: Sequence[Sample], pad_token_id: int, max_response_length: int) -> DataProto:
    """The samples as a batch, rows in the order given.

    Columns: prompts [B, P] left-padded, responses [B, R] right-padded, their lengths [B], response_mask [B, R],
    infer_log_probs [B, R], scores [B], rewards [B], is_graded [B], is_clipped [B] (cut off at the length limit),
    group [B], difficulty [B] (NaN where the row has none); and as objects id, tag, domain, prompt_text,
    response_text, status, reason. Where rows have images, further columns that begin with `image.` hold what the model
    reads of them, an array per row.
    """
    prompts = [torch.tensor(sample.prompt.token_ids) for sample in samples]
    responses = [torch.tensor(sample.completion.token_ids, dtype=torch.int64) for sample in samples]
    log_probs = [torch.tensor(sample.completion.log_probs, dtype=torch.float32) for sample in samples]
    lengths = [len(response) for response in responses]
    facts = _facts(samples, lengths, max_response_length)
    paddings = paddings_of(facts, pad_token_id)
    columns = {"prompts": prompts, "responses": responses, "infer_log_probs": log_probs}
    tokens = {name: pad(column, **vars(paddings[name])) for name, column in columns.items()}
    mask = response_mask(facts["response_lengths"], paddings["responses"].width)
    texts = {
        "prompt_text": [sample.prompt.row.prompt for sample in samples],
        "response_text": [sample.text for sample in samples],
    }
    images = columns_of([sample.prompt.pictures for sample in samples])
    objects: dict[str, Any] = {**facts.non_tensor_batch, **texts, **images}
    return DataProto({**tokens, "response_mask": mask, **facts.batch}, objects, facts.meta_info)


def to_facts(samples: Sequence[Sample], max_response_length: int) -> DataProto:
    """What is small about samples whose tokens and text are in a transport: the other columns of `to_batch`."""
    return _facts(samples, [sample.completion.num_tokens for sample in samples], max_response_length)


def paddings_of(facts: DataProto, pad_token_id: int) -> dict[str, Padding]:
    """How the ragged columns of a batch are padded: to its longest prompt and its longest response."""
    width = max(1, int(facts["response_lengths"].max()))
    return {
        "prompts": Padding(int(facts["prompt_lengths"].max()), pad_token_id, left=True),
        "responses": Padding(width, pad_token_id),
        "infer_log_probs": Padding(width, 0.0),
    }


def _facts(samples: Sequence[Sample], response_lengths: Sequence[int], max_response_length: int) -> DataProto:
    return DataProto(
        {
            "prompt_lengths": torch.tensor([len(sample.prompt.token_ids) for sample in samples]),
            "response_lengths": torch.tensor(response_lengths),
            "scores": torch.tensor([sample.score.score for sample in samples], dtype=torch.float32),
            "rewards": torch.tensor([_reward(sample.score) for sample in samples], dtype=torch.float32),
            "is_graded": torch.tensor([sample.score.is_graded for sample in samples]),
            "is_clipped": torch.tensor([sample.completion.finish_reason == "length" for sample in samples]),
            "group": torch.tensor([sample.group for sample in samples]),
            "difficulty": torch.tensor([_difficulty(sample.prompt) for sample in samples], dtype=torch.float32),
        },
        {
            "id": [sample.prompt.row.id for sample in samples],
            "tag": [sample.prompt.row.tag for sample in samples],
            "domain": [sample.prompt.domain for sample in samples],
            "status": [sample.score.status.value for sample in samples],
            "reason": [sample.score.reason for sample in samples],
        },
        {"max_response_length": max_response_length},
    )


def _difficulty(prompt: Prompt) -> float:
    """The row's own column: a number, or text that holds one."""
    value = prompt.row.fields.get("difficulty")
    try:
        return float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return math.nan


def _reward(score: Score) -> float:
    return score.score if score.reward is None else score.reward
