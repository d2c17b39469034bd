"""Episodes as a batch to train on, as records for files, and as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from roll_core.algorithms.metrics import summary
from roll_core.data import DataProto
from roll_core.data.padding import Padding, pad
from roll_core.rollout.env_dialogue import Dialogue
from roll_core.rollout.env_episode import Episode, Row, Turn
from roll_core.rollout.sample import paddings_of as paddings_of_answers


def to_batch(episodes: Sequence[Episode], dialogue: Dialogue, pad_token_id: int, max_length: int) -> DataProto:
    """All rows of the episodes, in their order.

    Columns as `roll_core.rollout.sample.to_batch` has them, but that a response reaches from the first sampled token
    to the last, and `response_mask` is true for the sampled ones only; `scores` are of whole episodes. Further:
    trajectory [B], numbering the episodes, and the object column `turns`, each row's list of `Turn`.
    """
    facts = facts_of(episodes, max_length)
    paddings = paddings_of(facts, pad_token_id)
    tokens = {name: pad(column, **vars(paddings[name])) for name, column in tokens_of(episodes).items()}
    turns = [row.turns for row in _rows(episodes)]
    objects: dict[str, Any] = {**facts.non_tensor_batch, **texts_of(episodes, dialogue), "turns": turns}
    return DataProto({**tokens, **facts.batch}, objects, facts.meta_info)


def tokens_of(episodes: Sequence[Episode]) -> dict[str, list[torch.Tensor]]:
    """The columns of `to_batch` that are as long as their rows, not padded yet: B tensors [length] each."""
    rows = _rows(episodes)
    return {
        "prompts": [torch.tensor(row.prompt_ids) for row in rows],
        "responses": [torch.tensor(row.response_ids) for row in rows],
        "response_mask": [torch.tensor(row.mask) for row in rows],
        "infer_log_probs": [torch.tensor(row.log_probs) for row in rows],
    }


def paddings_of(facts: DataProto, pad_token_id: int) -> dict[str, Padding]:
    """How those columns are padded: to the longest prompt and the longest response of at least one row."""
    found = paddings_of_answers(facts, pad_token_id)
    return found | {"response_mask": Padding(found["responses"].width, False)}


def texts_of(episodes: Sequence[Episode], dialogue: Dialogue) -> dict[str, list[str]]:
    """The columns of `to_batch` that people read."""
    rows = _rows(episodes)
    return {
        "prompt_text": [dialogue.full_text_of(row.prompt_ids) for row in rows],
        "response_text": [dialogue.full_text_of(row.response_ids) for row in rows],
    }


def bare_turns(episodes: Sequence[Episode]) -> list[list[Turn]]:
    """The column `turns` of `to_batch`, without what people read of them."""
    return [[replace(turn, observation="", answer="", metrics={}) for turn in row.turns] for row in _rows(episodes)]


def facts_of(episodes: Sequence[Episode], max_length: int) -> DataProto:
    """The columns of `to_batch` that are small: [B] each."""
    rows = [(number, episode, row) for number, episode in enumerate(episodes) for row in episode.rows]
    groups = {name: index for index, name in enumerate(dict.fromkeys(one.plan.traj_group_id for one in episodes))}
    scores = torch.tensor([episode.score for _, episode, _ in rows], dtype=torch.float32)
    return DataProto(
        {
            "prompt_lengths": torch.tensor([len(row.prompt_ids) for _, _, row in rows]),
            "response_lengths": torch.tensor([len(row.response_ids) for _, _, row in rows]),
            "scores": scores,
            "rewards": scores.clone(),
            "is_graded": torch.ones(len(rows), dtype=torch.bool),
            "is_clipped": torch.tensor([row.is_clipped for _, _, row in rows]),
            "group": torch.tensor([groups[episode.plan.traj_group_id] for _, episode, _ in rows]),
            "trajectory": torch.tensor([number for number, _, _ in rows]),
            "difficulty": torch.full((len(rows),), torch.nan),
        },
        {
            "id": _row_ids(episodes),
            "tag": [episode.plan.tag for _, episode, _ in rows],
            "domain": [episode.plan.tag for _, episode, _ in rows],
            "status": ["ok"] * len(rows),
            "reason": [str(episode.end) for _, episode, _ in rows],
        },
        {"max_response_length": max_length},
    )


def _rows(episodes: Iterable[Episode]) -> list[Row]:
    return [row for episode in episodes for row in episode.rows]


def _row_ids(episodes: Iterable[Episode]) -> list[str]:
    return [f"{one.plan.traj_id}_{index}" for one in episodes for index in range(len(one.rows))]


def episode_metrics(episodes: Sequence[Episode], prefix: str = "") -> dict[str, float]:
    """What the episodes were like: rollout/, traj/ and env/<tag>/ names, each behind `prefix`."""
    rows = _rows(episodes)
    sampled = [sum(row.mask) for row in rows]
    metrics = summary("rollout/score", _tensor(one.score for one in episodes))
    metrics |= summary("rollout/response_length", _tensor(sampled))
    metrics |= summary("rollout/prompt_length", _tensor(len(row.prompt_ids) for row in rows))
    metrics |= summary("rollout/non_prompt_length", _tensor(len(row.response_ids) for row in rows))
    metrics |= summary("traj/num_turns", _tensor(len(one.turns) for one in episodes))
    metrics["traj/success"] = sum(one.is_success for one in episodes) / len(episodes)
    for end in ("terminated", "truncated", "max_steps", "max_length"):
        metrics[f"traj/end/{end}"] = sum(one.end == end for one in episodes) / len(episodes)
    metrics["env/response_length"] = sum(sampled) / max(1, sum(len(one.turns) for one in episodes))
    metrics |= _by_tag(episodes)
    return {f"{prefix}{name}": value for name, value in metrics.items()}


def validation_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """val/success and val/score over all and by tag, and the metrics of `episode_metrics` behind val/.

    `val_correct/all/mean` and val_correct/<tag>/mean are the same success under the names that all pipelines have.
    """
    metrics = episode_metrics(episodes, "val/") | summary("val/score", _tensor(one.score for one in episodes))
    metrics["val/success"] = metrics["val_correct/all/mean"] = _success(episodes)
    for tag, some in _of_tags(episodes).items():
        metrics |= summary(f"val/{tag}/score", _tensor(one.score for one in some))
        metrics[f"val/{tag}/success"] = metrics[f"val_correct/{tag}/mean"] = _success(some)
    return metrics


def records(episodes: Iterable[Episode], dialogue: Dialogue) -> Iterator[dict[str, Any]]:
    """Episodes as JSON data, for files."""
    for one in episodes:
        yield {
            "traj_id": one.plan.traj_id,
            "traj_group_id": one.plan.traj_group_id,
            "tag": one.plan.tag,
            "seed": one.plan.seed,
            "score": one.score,
            "success": one.is_success,
            "end": one.end,
            "metrics": one.metrics(),
            "prompt": dialogue.full_text_of(one.rows[0].prompt_ids) if one.rows else "",
            "turns": [
                {
                    "observation": turn.observation,
                    "answer": turn.answer,
                    "reward": turn.reward,
                    "metrics": dict(turn.metrics),
                }
                for turn in one.turns
            ],
        }


def _by_tag(episodes: Sequence[Episode]) -> dict[str, float]:
    found: dict[str, float] = {}
    for tag, some in _of_tags(episodes).items():
        values: dict[str, list[float]] = {}
        for one in some:
            for name, value in one.metrics().items():
                values.setdefault(name, []).append(value)
        found |= {f"env/{tag}/{name}": sum(numbers) / len(numbers) for name, numbers in values.items()}
    return found


def _of_tags(episodes: Sequence[Episode]) -> Mapping[str, list[Episode]]:
    found: dict[str, list[Episode]] = {}
    for one in episodes:
        found.setdefault(one.plan.tag, []).append(one)
    return found


def _success(episodes: Sequence[Episode]) -> float:
    return sum(one.is_success for one in episodes) / len(episodes)


def _tensor(values: Iterable[float]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.float64)
