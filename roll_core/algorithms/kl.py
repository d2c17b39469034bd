"""Kullback-Leibler divergence from sampled tokens, as a loss term and as a part of the reward.

Estimators and their names k1, k2, k3: John Schulman, "Approximating KL Divergence" (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

LOG_RATIO_LIMIT = 20.0
"""exp overflows float32 at 88, and the gradient of a clamp around an infinity is NaN, so the exponent is bounded."""


def k1(log_probs: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """log p - log q: unbiased, may be negative. Any equal shapes."""
    return log_probs - base


def absolute(log_probs: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """|log p - log q|. Any equal shapes."""
    return (log_probs - base).abs()


def k2(log_probs: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """(log p - log q)^2 / 2: biased, low variance, its gradient is that of the true divergence. Any equal shapes."""
    return 0.5 * (log_probs - base).square()


def k3(log_probs: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """e^d - d - 1 with d = log q - log p, at most 10: unbiased, never negative. Any equal shapes.

    d is bounded by +-20 first; beyond either bound the gradient is 0.
    """
    d = (base - log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (d.exp() - d - 1).clamp(-10, 10)


KL_FORMS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "kl": k1,
    "k1": k1,
    "abs": absolute,
    "mse": k2,
    "k2": k2,
    "k3": k3,
    "low_var_kl": k3,
}


def kl_divergence(log_probs: torch.Tensor, base: torch.Tensor, form: str) -> torch.Tensor:
    """Per-token estimate of KL(p || q) from the log-probabilities of tokens sampled from p.

    Shapes: log_probs (log p), base (log q) [B, R] -> [B, R].

    Raises:
        ValueError: an unknown form, or `full`, which these inputs cannot give.
    """
    if form == "full":
        raise ValueError(
            "kl_penalty 'full' sums over the vocabulary; only log-probabilities of the sampled tokens are kept\n"
            f"  try: one of {', '.join(KL_FORMS)}"
        )
    if form not in KL_FORMS:
        raise ValueError(f"no kl_penalty named '{form}'\n  there are: {', '.join(KL_FORMS)}")
    return KL_FORMS[form](log_probs, base)


def add_token_level_kl(
    token_rewards: torch.Tensor, token_kl: torch.Tensor, mask: torch.Tensor, coefficient: float
) -> torch.Tensor:
    """r[b,t] - coefficient * kl[b,t] on the true tokens; rewards elsewhere stay as they are.

    Shapes: all tensors [B, R]. Source: Ziegler et al., arXiv 1909.08593, section 2.2.
    """
    return token_rewards - coefficient * torch.where(mask, token_kl, 0)


class KlController(Protocol):
    """Holds the coefficient of the KL part of the reward. Update it once per step, not once per domain."""

    coefficient: float

    def update(self, kl: float, num_rows: int) -> None:
        """Take a step's mean divergence over the rows of its batch into account."""

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must hold."""

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a checkpoint."""


@dataclass
class FixedKlController:
    """A coefficient that never changes."""

    coefficient: float

    def update(self, kl: float, num_rows: int) -> None:
        """Nothing to learn."""

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must hold."""
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """The coefficient is the config's, also after a resume."""


@dataclass
class AdaptiveKlController:
    """A coefficient steered so that the divergence comes near a target.

        coefficient *= 1 + clip(kl / target - 1, -0.2, 0.2) * num_rows / horizon

    Source: Ziegler et al., arXiv 1909.08593, section 2.2.
    """

    coefficient: float
    target: float
    horizon: float = 10000.0

    def update(self, kl: float, num_rows: int) -> None:
        """One step of the formula above."""
        error = min(max(kl / self.target - 1, -0.2), 0.2)
        self.coefficient *= 1 + error * num_rows / self.horizon

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must hold."""
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a checkpoint."""
        self.coefficient = state["coefficient"]


def kl_controller(initial: float, target: float | None = None, horizon: float = 10000.0) -> KlController:
    """A fixed controller without a target, else an adaptive one."""
    return FixedKlController(initial) if target is None else AdaptiveKlController(initial, target, horizon)
