"""From scores and log-probabilities to advantages and masks: what training is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from roll_core.algorithms.advantages import AdvantageConfig, compute_advantages
from roll_core.algorithms.masks import difficulty_mask, error_max_len_mask, final_mask, max_len_mask, sample_weights
from roll_core.algorithms.rewards import RunningMoments, overlong_penalty
from roll_core.config.schema import RLVRConfig
from roll_core.data import DataProto
from roll_core.pipelines.common_shaping import Columns, CommonShaper, columns_of


class Shaper(CommonShaper):
    """Applies the config's reward, mask and advantage rules to a step's batch; holds what carries over steps."""

    def __init__(self, config: RLVRConfig) -> None:
        super().__init__(config)
        self.config = config
        self.running = RunningMoments()
        self.advantages = AdvantageConfig(
            adv_estimator=config.adv_estimator,
            gamma=config.gamma,
            lambd=config.lambd,
            norm_mean_type=config.norm_mean_type,
            norm_std_type=config.norm_std_type,
            reward_clip=config.reward_clip,
            whiten_rewards=config.whiten_rewards,
            whiten_advantages=config.whiten_advantages,
            advantage_clip=config.advantage_clip,
        )

    def __call__(self, batch: DataProto) -> tuple[DataProto, dict[str, float]]:
        """The batch with advantages, returns and final_response_mask [B, R], sample_weight [B]; and metrics."""
        mask, valid = batch["response_mask"], batch["is_graded"]
        trained, metrics = final_mask(mask, self._row_masks(batch) | {"graded_mask": valid})
        token_kl = self.token_kl(batch, metrics)
        rewards = self._rewards(batch, metrics)
        self.running.update(rewards, valid)
        columns: Columns = {}
        trained = self.corrected(batch, trained, columns, metrics)
        result = compute_advantages(
            self.advantages,
            rewards,
            mask,
            batch["group"],
            loss_mask=trained,
            valid=valid,
            values=batch.batch.get("values"),
            token_kl=token_kl,
            kl_coefficient=self.kl.coefficient,
            running=self.running,
        )
        columns |= columns_of(result, trained, self._sample_weights(batch, trained.any(-1)).float())
        return batch.with_columns(**columns), metrics | result.metrics

    def _rewards(self, batch: DataProto, metrics: dict[str, float]) -> torch.Tensor:
        rewards: torch.Tensor = batch["rewards"]
        buffer = self.config.overlong_buffer_length
        if buffer == 0:
            return rewards
        penalty = overlong_penalty(batch["response_lengths"], batch.meta_info["max_response_length"], buffer)
        metrics["reward/overlong_ratio"] = float((penalty < 0).float().mean())
        return rewards + self.config.overlong_penalty_factor * penalty

    def _row_masks(self, batch: DataProto) -> dict[str, torch.Tensor]:
        config, masks = self.config, {}
        if config.max_len_mask:
            masks["max_len_mask"] = max_len_mask(batch["response_mask"], batch.meta_info["max_response_length"])
        if config.difficulty_mask:
            masks["difficulty_mask"] = difficulty_mask(
                batch["scores"],
                batch["group"],
                config.difficulty_low_threshold,
                config.difficulty_high_threshold,
                batch["is_graded"],
            )
        if config.error_max_len_clip:
            masks["error_len_mask"] = error_max_len_mask(
                batch["scores"], batch["response_mask"], config.error_max_len_threshold
            )
        return masks

    def _sample_weights(self, batch: DataProto, kept: torch.Tensor) -> torch.Tensor:
        config = self.config
        difficulty = batch["difficulty"] if config.difficulty_loss_weight and "difficulty" in batch else None
        lengths = batch["response_lengths"] if config.length_loss_weight else None
        return sample_weights(kept, difficulty, lengths)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {"kl": self.kl.state_dict(), "running": self.running.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.kl.load_state_dict(state["kl"])
        self.running.load_state_dict(state["running"])
