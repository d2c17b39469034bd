"""From episodes to advantages and masks: what agentic training is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roll_core.algorithms.advantages import AdvantageConfig, Advantages, compute_advantages
from roll_core.algorithms.episodes import discounted_step_returns, gigpo, group_ids_of, step_reinforce
from roll_core.algorithms.masks import final_mask
from roll_core.algorithms.rewards import Scope, normalise
from roll_core.config.schema import AgenticConfig
from roll_core.data import DataProto
from roll_core.pipelines.common_shaping import Columns, CommonShaper, columns_of

TURN_ESTIMATORS = ("gigpo", "step_reinforce")
"""Those that value each turn by itself; the others value whole episodes."""

_METHODS: Mapping[str, tuple[Scope | None, Scope | None]] = {
    "identity": (None, None),
    "mean": ("group", None),
    "mean_std": ("group", "group"),
    "asym_clip": ("group", "group"),
}


class EpisodeShaper(CommonShaper):
    """Applies the config's reward and advantage rules to a step's episodes; holds what carries over steps."""

    def __init__(self, config: AgenticConfig) -> None:
        super().__init__(config)
        self.config = config
        self.scopes, self.grouping = scopes_of(config), grouping_of(config)
        self.advantages = AdvantageConfig(
            # Episodes are compared here, each counted once, however many rows it has; what is left is tokens' matter.
            adv_estimator="reinforce" if config.adv_estimator == "grpo" else config.adv_estimator,
            gamma=config.gamma,
            lambd=config.lambd,
            reward_clip=config.reward_clip,
            whiten_rewards=config.whiten_rewards,
            whiten_advantages=config.whiten_advantages,
            advantage_clip=config.advantage_clip,
        )

    def __call__(self, batch: DataProto) -> tuple[DataProto, dict[str, float]]:
        """The batch with advantages, returns and final_response_mask [B, R], sample_weight [B]; and metrics."""
        mask = batch["response_mask"]
        trained, metrics = final_mask(mask, {})
        token_kl = self.token_kl(batch, metrics)
        columns: Columns = {}
        trained = self.corrected(batch, trained, columns, metrics)
        result = self._advantages(batch, trained, token_kl)
        columns |= columns_of(result, trained, torch.ones(len(batch)))
        return batch.with_columns(**columns), metrics | result.metrics

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {"kl": self.kl.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.kl.load_state_dict(state["kl"])

    def _advantages(self, batch: DataProto, trained: torch.Tensor, token_kl: torch.Tensor | None) -> Advantages:
        if self.config.adv_estimator in TURN_ESTIMATORS:
            turns = turns_of(batch)
            return by_turns(
                self.advantages, batch, turns, self._turn_values(batch, turns), trained, token_kl, self.kl.coefficient
            )
        rewards = self._episode_values(batch)
        if self.config.adv_estimator == "agentic_reinforce":
            # Where each turn has a row of its own, rows know nothing of the turns that were still to come.
            rewards = rewards * self.config.gamma ** _turns_to_come(batch)
        return compute_advantages(
            self.advantages,
            rewards,
            batch["response_mask"],
            batch["trajectory"],
            loss_mask=trained,
            values=batch.batch.get("values"),
            token_kl=token_kl,
            kl_coefficient=self.kl.coefficient,
        )

    def _episode_values(self, batch: DataProto) -> torch.Tensor:
        """The score of each row's episode, compared with those of other episodes: [B]."""
        trajectory = batch["trajectory"]
        first = _first_rows(trajectory)
        values = normalise(batch["scores"][first].double(), self._grouping(batch)[first], *self.scopes)
        return values[trajectory].float()

    def _turn_values(self, batch: DataProto, turns: Turns) -> torch.Tensor:
        config, (mean_type, std_type) = self.config, self.scopes
        returns = discounted_step_returns(turns.reward, turns.trajectory, turns.step, config.step_reward_gamma)
        group = self._grouping(batch)[turns.row]
        if config.adv_estimator == "step_reinforce":
            ids = turns.state if self.grouping == "state" else group
            return step_reinforce(returns, ids, norm_mean_type=mean_type, norm_std_type=std_type).float()
        return gigpo(
            batch["scores"][turns.row].double(),
            returns,
            turns.trajectory,
            group,
            turns.state,
            episode_reward_weight=config.episode_reward_weight,
            step_reward_weight=config.step_reward_weight,
            norm_mean_type=mean_type,
            norm_std_type=std_type,
        ).float()

    def _grouping(self, batch: DataProto) -> torch.Tensor:
        if self.grouping == "batch":
            return torch.zeros(len(batch), dtype=torch.int64)
        return group_ids_of(batch["tag"]) if self.grouping == "tags" else batch["group"]


@dataclass(frozen=True)
class Turns:
    """Turns of a batch, row by row.

    Shapes: integer [N] each, but `reward` float64 [N]. `start` and `end` are columns of the row's response tokens,
    `step` the turn's place in its episode; `state` is equal for turns of a group before which the same was seen.
    """

    row: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor
    trajectory: torch.Tensor
    step: torch.Tensor
    state: torch.Tensor
    reward: torch.Tensor


def turns_of(batch: DataProto) -> Turns:
    """The turns of a batch's rows, from its column `turns`."""
    found = [(row, turn) for row, turns in enumerate(batch["turns"]) for turn in turns]
    rows = torch.tensor([row for row, _ in found])
    return Turns(
        row=rows,
        start=torch.tensor([turn.start for _, turn in found]),
        end=torch.tensor([turn.end for _, turn in found]),
        trajectory=batch["trajectory"][rows],
        step=torch.tensor([turn.step for _, turn in found]),
        state=group_ids_of(batch["group"][rows].tolist(), [turn.state_hash for _, turn in found]),
        reward=torch.tensor([turn.reward for _, turn in found], dtype=torch.float64),
    )


def by_turns(
    config: AdvantageConfig,
    batch: DataProto,
    turns: Turns,
    values: torch.Tensor,
    trained: torch.Tensor,
    token_kl: torch.Tensor | None,
    kl_coefficient: float,
) -> Advantages:
    """Advantages where each turn has a value of its own: [N] -> [B, R], as if each had a row of its own.

    `rewards` of the result [B] are a row's values added up.
    """
    mask, row = batch["response_mask"], turns.row
    columns = torch.arange(mask.shape[1])
    span = (columns >= turns.start[:, None]) & (columns < turns.end[:, None]) & mask[row]
    alone = compute_advantages(
        config,
        values,
        span,
        row,
        loss_mask=trained[row],
        token_kl=None if token_kl is None else token_kl[row],
        kl_coefficient=kl_coefficient,
    )

    def together(of_turns: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(batch), *of_turns.shape[1:]).index_add(0, row, of_turns.float())

    return Advantages(
        rewards=together(alone.rewards),
        token_rewards=together(alone.token_rewards),
        advantages=together(alone.advantages),
        raw_advantages=together(alone.raw_advantages),
        returns=together(alone.returns),
        metrics=alone.metrics,
    )


def scopes_of(config: AgenticConfig) -> tuple[Scope | None, Scope | None]:
    """With whose mean and deviation episodes are compared, as `reward_normalization` says.

    Where it is not written, estimators that compare do so within groups.
    """
    given = config.reward_normalization
    if "reward_normalization" not in config.model_fields_set:
        return _METHODS["mean_std" if config.adv_estimator in ("grpo", *TURN_ESTIMATORS) else "identity"]
    if given.norm_mean_type is not None or given.norm_std_type is not None:
        return given.norm_mean_type, given.norm_std_type
    return _METHODS[given.method]


def grouping_of(config: AgenticConfig) -> str:
    """batch, tags, state or traj_group_id."""
    is_written = "reward_normalization" in config.model_fields_set
    return config.reward_normalization.grouping if is_written else "traj_group_id"


def _turns_to_come(batch: DataProto) -> torch.Tensor:
    """How many rows of its episode come after each row: [B]."""
    counts: dict[int, int] = {}
    found = []
    for episode in reversed(batch["trajectory"].tolist()):
        found.append(counts.get(episode, 0))
        counts[episode] = found[-1] + 1
    return torch.tensor(found[::-1], dtype=torch.float32)


def _first_rows(trajectory: torch.Tensor) -> torch.Tensor:
    """The first row of each trajectory, in the order of their numbers. Shapes: [B] -> [T]."""
    first: dict[int, int] = {}
    for row, episode in enumerate(trajectory.tolist()):
        first.setdefault(episode, row)
    return torch.tensor([first[episode] for episode in sorted(first)])
