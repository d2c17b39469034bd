"""The losses given to a training strategy: what a micro-batch adds to the loss of its mini-batch.

They only multiply by weights that the driver made over the whole mini-batch (see aggregation), so shares of
micro-batches and ranks add up to the loss of the whole, whatever the cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import torch

from roll_core.algorithms.aggregation import weighted_sum
from roll_core.algorithms.correction import CorrectionConfig, correct_mismatch
from roll_core.algorithms.kl import k1, k2, kl_divergence
from roll_core.algorithms.masks import rows_that_matter
from roll_core.algorithms.tallies import Measure, fetch, max_of, mean_of, min_of, sum_of
from roll_core.algorithms.variants import (
    VARIANTS,
    PolicyTerms,
    RatioLevel,
    Variant,
    VariantConfig,
    importance_ratio_of,
)
from roll_core.training import MicroBatch, Tally


@dataclass(frozen=True)
class PolicyLoss:
    """rl_loss_coef (policy + kl_loss_coef KL(policy || reference)) - entropy_loss_coef entropy.

    Columns, [b, r] unless said: `advantages`; `loss_weight` and `entropy_weight`, `kl_weight` (by default equal to
    it) from `token_weights`; `old_log_probs` (without it every ratio is 1: the policy that is stepped is the one
    that sampled); `ref_log_probs` for the KL loss; `is_weight`, a factor of the policy term made by
    `correct_mismatch`; `infer_log_probs` for `correction`; `scores` [b] for topr.

    `correction` is applied here only where the driver could not, for want of old_log_probs; tokens it filters
    then lose their policy, KL and entropy terms, and the normaliser still counts them.

    A coefficient of 0 leaves its term out, and its columns are not needed.
    """

    variant: Variant = "ppo"
    options: VariantConfig = field(default_factory=VariantConfig)
    importance_sampling: RatioLevel = "token"
    kl_loss_coef: float = 0.0
    kl_loss_form: str = "k3"
    entropy_loss_coef: float = 0.0
    rl_loss_coef: float = 1.0
    correction: CorrectionConfig | None = None

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise ValueError(f"no pg_variant named '{self.variant}'\n  there are: {', '.join(VARIANTS)}")
        if self.importance_sampling not in get_args(RatioLevel):
            there = ", ".join(get_args(RatioLevel))
            raise ValueError(f"no importance_sampling named '{self.importance_sampling}'\n  there are: {there}")

    @property
    def needs_entropy(self) -> bool:
        """Only an entropy bonus needs it; it costs memory over the whole vocabulary."""
        return self.entropy_loss_coef != 0

    @property
    def needs_values(self) -> bool:
        """Never."""
        return False

    def __call__(self, micro: MicroBatch) -> tuple[torch.Tensor, dict[str, Tally]]:
        """The share of this micro-batch, a scalar, and metrics under the actor's names."""
        weight = column(micro, "loss_weight")
        mask = micro.response_mask & (weight != 0)
        terms = self._terms(micro, mask)
        policy_weight, kept, measures = self._policy_weight(micro, terms, mask)
        policy = weighted_sum(VARIANTS[self.variant](terms, self.options), policy_weight)
        total = policy
        measures |= {"actor/pg_loss": sum_of(policy), **self._policy_measures(terms, mask)}
        if self.kl_loss_coef:
            kl_weight = torch.where(kept, micro.columns.get("kl_weight", weight), 0)
            reference = column(micro, "ref_log_probs").float()
            divergence = weighted_sum(kl_divergence(terms.log_probs, reference, self.kl_loss_form), kl_weight)
            total = total + self.kl_loss_coef * divergence
            measures["actor/kl_loss"] = sum_of(divergence)
        total = total * self.rl_loss_coef
        if micro.entropy is not None:
            entropy_mask = micro.response_mask & (kept | ~mask)
            entropy_weight = torch.where(entropy_mask, micro.columns.get("entropy_weight", weight), 0)
            measures["actor/entropy"] = mean_of(micro.entropy, entropy_weight != 0)
            if self.entropy_loss_coef:
                total = total - self.entropy_loss_coef * weighted_sum(micro.entropy.float(), entropy_weight)
        elif self.entropy_loss_coef:
            raise ValueError("an entropy bonus needs MicroBatch.entropy, and the training strategy did not fill it")
        measures["actor/total_loss"] = sum_of(total)
        return total, fetch(measures)

    def rows_that_matter(self, columns: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Rows of a mini-batch that this loss can have a gradient for: bool [B]; see masks.rows_that_matter."""
        weight = columns["loss_weight"]
        others: list[torch.Tensor] = []
        if self.kl_loss_coef:
            others.append(columns.get("kl_weight", weight))
        if self.entropy_loss_coef:
            others.append(columns.get("entropy_weight", weight))
        if self.variant == "kimi15":
            others.append(weight)
        return rows_that_matter(columns["advantages"], weight, *others)

    def _terms(self, micro: MicroBatch, mask: torch.Tensor) -> PolicyTerms:
        """The formula's inputs, 0 under the mask, so that nothing there reaches a value or a gradient."""
        if micro.log_probs is None:
            raise ValueError("a policy loss needs MicroBatch.log_probs, and the training strategy did not fill it")
        log_probs = torch.where(mask, micro.log_probs.float(), 0)
        old = micro.columns.get("old_log_probs")
        old_log_probs = log_probs.detach() if old is None else torch.where(mask, old.float(), 0)
        return PolicyTerms(
            log_probs,
            old_log_probs,
            importance_ratio_of(log_probs, old_log_probs, mask, self.importance_sampling),
            torch.where(mask, column(micro, "advantages").float(), 0),
            micro.columns.get("scores"),
        )

    def _policy_weight(
        self, micro: MicroBatch, terms: PolicyTerms, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, Measure]]:
        """The policy term's weights [b, r], the tokens kept, and the metrics of a correction made here."""
        weight = torch.where(mask, column(micro, "loss_weight"), 0)
        if self.correction is not None:
            infer = column(micro, "infer_log_probs")
            correction = correct_mismatch(terms.old_log_probs, infer, mask, self.correction)
            corrected = torch.where(correction.mask, weight * correction.weights, 0)
            return corrected, correction.mask, dict(correction.measures)
        if "is_weight" in micro.columns:
            weight = torch.where(mask, weight * micro.columns["is_weight"], 0)
        return weight, mask, {}

    def _policy_measures(self, terms: PolicyTerms, mask: torch.Tensor) -> dict[str, Measure]:
        """How far the policy has moved from the one that sampled; means are over the tokens that count."""
        ratio, A = terms.ratio.detach(), terms.advantages
        log_probs, old = terms.log_probs.detach(), terms.old_log_probs
        low, high = self.options.ratio_low, self.options.ratio_high
        return {
            "actor/ppo_ratio_high_clipfrac": mean_of(ratio > high, mask),
            "actor/ppo_ratio_low_clipfrac": mean_of(ratio < low, mask),
            "actor/ppo_ratio_clipfrac": mean_of((ratio > high) | (ratio < low), mask),
            "actor/clipfrac": mean_of(ratio.clamp(low, high) * A < ratio * A, mask),
            "actor/ratio_mean": mean_of(ratio, mask),
            "actor/ratio_max": max_of(ratio, mask),
            "actor/ratio_min": min_of(ratio, mask),
            "actor/approxkl": mean_of(k2(log_probs, old), mask),
            "actor/policykl": mean_of(k1(log_probs, old), mask),
        }


@dataclass(frozen=True)
class ValueLoss:
    """sum(w max((V - R)^2, (clip(V, V_old - value_clip, V_old + value_clip) - R)^2)) / 2; without a clip (V - R)^2 / 2.

    Columns [b, r]: `returns` R; `loss_weight` w, from `token_weights` (seq-mean-token-mean as published);
    `values` V_old, only with a clip. Source: PPO's reference code; Engstrom et al., arXiv 2005.12729.
    """

    value_clip: float | None = None

    @property
    def needs_entropy(self) -> bool:
        """Never."""
        return False

    @property
    def needs_values(self) -> bool:
        """Always."""
        return True

    def __call__(self, micro: MicroBatch) -> tuple[torch.Tensor, dict[str, Tally]]:
        """The share of this micro-batch, a scalar, and metrics under the critic's names."""
        if micro.values is None:
            raise ValueError("a value loss needs MicroBatch.values, and the training strategy did not fill it")
        weight = column(micro, "loss_weight")
        mask = micro.response_mask & (weight != 0)
        values = torch.where(mask, micro.values.float(), 0)
        returns = column(micro, "returns").float()
        error = (values - returns).square()
        measures = {"critic/vpred": mean_of(values, mask), "critic/error": mean_of(error, mask)}
        worst = error
        if self.value_clip is not None:
            old = column(micro, "values").float()
            clipped = torch.clamp(values, old - self.value_clip, old + self.value_clip)
            clipped_error = (clipped - returns).square()
            worst = torch.max(error, clipped_error)
            measures["critic/value"] = mean_of(old, mask)
            measures["critic/clipfrac"] = mean_of(clipped_error > error, mask)
        loss = 0.5 * weighted_sum(worst, torch.where(mask, weight, 0))
        return loss, fetch({"critic/loss": sum_of(loss), **measures})


def column(micro: MicroBatch, name: str) -> torch.Tensor:
    """A column of the micro-batch.

    Raises:
        ValueError: it is not there.
    """
    if name not in micro.columns:
        there = ", ".join(sorted(micro.columns)) or "none"
        raise ValueError(f"the loss needs column '{name}'\n  the batch has: {there}")
    return micro.columns[name]
