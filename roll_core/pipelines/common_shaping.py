"""What shaping single answers and shaping episodes have in common: token-level KL, and the correction of a mismatch."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from roll_core.algorithms.advantages import Advantages
from roll_core.algorithms.correction import CorrectionConfig, ImportanceWeight, MismatchFilter, correct_mismatch
from roll_core.algorithms.kl import kl_controller, kl_divergence
from roll_core.algorithms.tallies import fetch
from roll_core.config.schema import PPOConfig
from roll_core.data import DataProto

Columns = dict[str, torch.Tensor]


class CommonShaper:
    """Holds the KL coefficient, which carries over steps, and what `train_infer_correction` asks for."""

    def __init__(self, config: PPOConfig) -> None:
        self._config = config
        self.kl = kl_controller(config.init_kl_coef, config.target_kl, config.kl_horizon)
        self.correction = correction_config(config)

    def after_step(self, metrics: Mapping[str, float], num_rows: int) -> None:
        """Let the KL controller learn from the step, once."""
        if "critic/kl" in metrics:
            self.kl.update(metrics["critic/kl"], num_rows)

    def token_kl(self, batch: DataProto, metrics: dict[str, float]) -> torch.Tensor | None:
        """The divergence from the reference model at each response token [B, R], where rewards take it into account."""
        if not self._config.add_token_level_kl:
            return None
        mask = batch["response_mask"]
        divergence = kl_divergence(batch["old_log_probs"], batch["ref_log_probs"], self._config.kl_penalty)
        token_kl = torch.where(mask, divergence, 0)
        per_row = token_kl.sum(-1) / mask.sum(-1).clamp(min=1)
        metrics |= {"critic/kl": float(per_row.mean()), "critic/kl_coef": self.kl.coefficient}
        return token_kl

    def corrected(
        self, batch: DataProto, trained: torch.Tensor, columns: Columns, metrics: dict[str, float]
    ) -> torch.Tensor:
        """The tokens that are trained on [B, R] after engine and trainer were compared; weights go to `columns`."""
        if "old_log_probs" not in batch:
            return trained
        correction = correct_mismatch(batch["old_log_probs"], batch["infer_log_probs"], trained, self.correction)
        if self.correction.is_weight is not None:
            columns["is_weight"] = correction.weights
        metrics |= {name: tally.value for name, tally in fetch(correction.measures).items()}
        return correction.mask


def columns_of(result: Advantages, trained: torch.Tensor, sample_weight: torch.Tensor) -> Columns:
    """The columns that training reads, and those that dumps show."""
    return {
        "advantages": result.advantages,
        "raw_advantages": result.raw_advantages,
        "returns": result.returns,
        "token_level_rewards": result.token_rewards,
        "response_level_rewards": result.rewards,
        "final_response_mask": trained,
        "sample_weight": sample_weight,
    }


def correction_config(config: PPOConfig) -> CorrectionConfig:
    """What `train_infer_correction` asks for; without a weight and filters, the mismatch is only measured."""
    given = config.train_infer_correction
    if given is None:
        return CorrectionConfig()
    weight = given.is_weight
    filters = tuple(
        MismatchFilter(
            agg_type=each.agg_type,
            ratio_enabled=each.ratio_enabled,
            ratio_low=each.ratio_low,
            ratio_high=each.ratio_high,
            diff_enabled=each.diff_enabled,
            diff_low=each.diff_low,
            diff_high=each.diff_high,
        )
        for each in given.filters
        if each.enabled
    )
    return CorrectionConfig(
        ImportanceWeight(weight.weight_type, weight.upper_bound) if weight.enabled else None, filters
    )
