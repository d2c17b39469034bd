"""What a token contributes to the policy loss: one formula per `pg_variant`.

In the formulas, p is the probability under the policy being trained, A the advantage, rho the importance ratio
p / p_old (of the token or of the whole response, see `importance_ratio_of`), and sg(x) is x without gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from roll_core.algorithms.correction import aggregate
from roll_core.algorithms.kl import LOG_RATIO_LIMIT

RatioLevel = Literal["token", "seq", "segment"]
Variant = Literal["ppo", "vanilla", "tis", "topr", "cispo", "kimi15"]


@dataclass(frozen=True)
class VariantConfig:
    """Constants of the formulas below. pg_clip_low and pg_clip_high are pg_clip where they are None."""

    pg_clip: float = 0.2
    pg_clip_low: float | None = None
    pg_clip_high: float | None = None
    dual_clip_loss: bool = False
    tis_lower_bound: float = 0.0
    tis_upper_bound: float = 1.0
    topr_positive_weight: float = 1.0
    topr_negative_weight: float = 1.0
    cispo_epsilon_low: float = 0.1
    cispo_epsilon_high: float = 0.1
    cispo_use_unified_mask: bool = False
    kimi15_tau: float = 0.1

    @property
    def ratio_low(self) -> float:
        """Ratios below it are clipped by ppo."""
        return 1 - (self.pg_clip if self.pg_clip_low is None else self.pg_clip_low)

    @property
    def ratio_high(self) -> float:
        """Ratios above it are clipped by ppo."""
        return 1 + (self.pg_clip if self.pg_clip_high is None else self.pg_clip_high)


@dataclass(frozen=True)
class PolicyTerms:
    """What the formulas are made of: [b, r] each, `scores` [b] (only topr reads it). Finite everywhere."""

    log_probs: torch.Tensor
    old_log_probs: torch.Tensor
    ratio: torch.Tensor
    advantages: torch.Tensor
    scores: torch.Tensor | None = None


def importance_ratio_of(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, mask: torch.Tensor, level: RatioLevel
) -> torch.Tensor:
    """rho, with its gradient.

        token    exp(log p - log p_old)
        seq      exp(mean over the response's true tokens of (log p - log p_old)), for each of its tokens;
                 the gradient goes through the mean. GSPO, arXiv 2507.18071, equation 7.
        segment  the same over each run of neighbouring true tokens: one turn of a dialogue

    The exponent is bounded by +-20, beyond which the gradient is 0.

    Shapes: all [b, r].
    """
    difference = torch.where(mask, log_probs - old_log_probs, 0)
    if level != "token":
        difference = aggregate(difference, mask, "geometric" if level == "seq" else "segment")
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def clipped_ratio_loss(terms: PolicyTerms, config: VariantConfig) -> torch.Tensor:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A), and where A < 0 with the dual clip at most -c A, c = 1 + 2 pg_clip.

    Sources: PPO, arXiv 1707.06347; dual clip, arXiv 1912.09729; unequal bounds, DAPO, arXiv 2503.14476.
    """
    A = terms.advantages
    surrogate = torch.min(terms.ratio * A, terms.ratio.clamp(config.ratio_low, config.ratio_high) * A)
    if config.dual_clip_loss:
        c = 1 + 2 * config.pg_clip
        surrogate = torch.where(A < 0, torch.max(surrogate, c * A), surrogate)
    return -surrogate


def vanilla_loss(terms: PolicyTerms, config: VariantConfig) -> torch.Tensor:
    """-A log p. REINFORCE, Williams (1992)."""
    return -terms.advantages * terms.log_probs


def truncated_importance_loss(terms: PolicyTerms, config: VariantConfig) -> torch.Tensor:
    """-sg(clip(rho, lower, upper)) A log p. Truncated importance sampling, Espeholt et al., arXiv 1802.01561."""
    rho = terms.ratio.detach().clamp(config.tis_lower_bound, config.tis_upper_bound)
    return -rho * terms.advantages * terms.log_probs


def tapered_off_policy_loss(terms: PolicyTerms, config: VariantConfig) -> torch.Tensor:
    """-w_pos A log p where the score is positive, else -w_neg sg(clip(rho, 0, 1)) A log p. TOPR, arXiv 2503.14286."""
    if terms.scores is None:
        raise ValueError("pg_variant topr needs the column 'scores', and the batch does not have it")
    rho = terms.ratio.detach().clamp(0, 1)
    is_positive = terms.scores[:, None] > 0
    weight = torch.where(is_positive, config.topr_positive_weight, config.topr_negative_weight * rho)
    return -weight * terms.advantages * terms.log_probs


def clipped_weight_loss(terms: PolicyTerms, config: VariantConfig) -> torch.Tensor:
    """-sg(clip(rho, 1 - low, 1 + high)) A log p; with the unified mask 0 where ppo's clip would have no gradient.

    Source: CISPO, MiniMax-M1, arXiv 2506.13585, equations 4 to 7.
    """
    A = terms.advantages
    low, high = 1 - config.cispo_epsilon_low, 1 + config.cispo_epsilon_high
    rho = terms.ratio.detach()
    loss = -rho.clamp(low, high) * A * terms.log_probs
    if config.cispo_use_unified_mask:
        loss = torch.where(((A > 0) & (rho > high)) | ((A < 0) & (rho < low)), 0, loss)
    return loss


def squared_log_ratio_loss(terms: PolicyTerms, config: VariantConfig) -> torch.Tensor:
    """-A log p + tau/2 (log p - log p_old)^2. Kimi k1.5, arXiv 2501.12599, section 2.3.2."""
    difference = terms.log_probs - terms.old_log_probs
    return -terms.advantages * terms.log_probs + config.kimi15_tau / 2 * difference.square()


VARIANTS: Mapping[str, Callable[[PolicyTerms, VariantConfig], torch.Tensor]] = {
    "ppo": clipped_ratio_loss,
    "vanilla": vanilla_loss,
    "tis": truncated_importance_loss,
    "topr": tapered_off_policy_loss,
    "cispo": clipped_weight_loss,
    "kimi15": squared_log_ratio_loss,
}
