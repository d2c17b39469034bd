"""From rewards to one advantage per token: the stages in order.

rewards [B]          normalise, clip, place on the last token
token rewards [B, R] subtract the divergence, clip, estimate
advantages [B, R]    whiten, clip
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from roll_core.algorithms.episodes import segment_returns
from roll_core.algorithms.estimators import discounted_returns, dr_grpo, gae, grpo, raft_plus_plus, rloo
from roll_core.algorithms.kl import add_token_level_kl
from roll_core.algorithms.rewards import RunningMoments, Scope, clip, graded, normalise, place_on_last_token
from roll_core.algorithms.whitening import whiten


@dataclass(frozen=True)
class Estimator:
    """What `adv_estimator` names.

    `normalise` takes rewards [B], group ids [B] and which rows are graded [B]; None leaves it to norm_mean_type
    and norm_std_type. `returns` takes token rewards and response mask [B, R] and gamma.
    """

    normalise: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor] | None = None
    returns: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor] = discounted_returns
    needs_values: bool = False
    always_whitens: bool = False


ESTIMATORS = {
    "gae": Estimator(needs_values=True),
    "reinforce": Estimator(),
    # REINFORCE++, arXiv 2501.03262: returns after the token-level KL, normalised over the whole batch.
    "reinforce_plus_plus": Estimator(always_whitens=True),
    "grpo": Estimator(normalise=grpo),
    "rloo": Estimator(normalise=rloo),
    "dr_grpo": Estimator(normalise=dr_grpo),
    "raft_plus_plus": Estimator(normalise=raft_plus_plus),
    # These two are given rewards that the functions of the same name in episodes have normalised.
    "gigpo": Estimator(),
    "step_reinforce": Estimator(),
    "agentic_reinforce": Estimator(returns=segment_returns),
}


@dataclass(frozen=True)
class AdvantageConfig:
    """How advantages are made; fields are named as the config's keys.

    Raises:
        ValueError: an estimator that is not here, or norm types given to one that has its own.
    """

    adv_estimator: str = "gae"
    gamma: float = 1.0
    lambd: float = 0.95
    norm_mean_type: Scope | None = None
    norm_std_type: Scope | None = None
    reward_clip: float | None = None
    whiten_rewards: bool = False
    whiten_advantages: bool = False
    advantage_clip: float | None = None

    def __post_init__(self) -> None:
        name = self.adv_estimator
        if name not in ESTIMATORS:
            raise ValueError(f"no adv_estimator named '{name}'\n  there are: {', '.join(ESTIMATORS)}")
        given = [scope for scope in (self.norm_mean_type, self.norm_std_type) if scope not in (None, "group")]
        if ESTIMATORS[name].normalise is not None and given:
            raise ValueError(
                f"adv_estimator '{name}' normalises within groups; norm_mean_type or norm_std_type says '{given[0]}'\n"
                "  try: adv_estimator reinforce, which takes any norm types"
            )


@dataclass(frozen=True)
class Advantages:
    """What training needs from the rewards of a batch.

    Shapes: rewards [B] (normalised and clipped); token_rewards, advantages, raw_advantages (before whitening
    and clipping), returns [B, R]. `metrics` holds critic/reward_clip_frac, critic/token_reward_clip_frac and
    critic/advantage_clip_frac.
    """

    rewards: torch.Tensor
    token_rewards: torch.Tensor
    advantages: torch.Tensor
    raw_advantages: torch.Tensor
    returns: torch.Tensor
    metrics: dict[str, float]


def compute_advantages(
    config: AdvantageConfig,
    rewards: torch.Tensor,
    response_mask: torch.Tensor,
    group_ids: torch.Tensor,
    *,
    loss_mask: torch.Tensor | None = None,
    valid: torch.Tensor | None = None,
    values: torch.Tensor | None = None,
    token_kl: torch.Tensor | None = None,
    kl_coefficient: float = 0.0,
    running: RunningMoments | None = None,
) -> Advantages:
    """All stages in the order of this file's first lines, over all rows of a step.

    Rows without a grade and responses without tokens enter no statistic and get advantage 0.

    Args:
        rewards: [B], NaN where there is no grade.
        response_mask: bool [B, R].
        group_ids: integer [B], equal for the responses to one prompt.
        loss_mask: bool [B, R], the response tokens that will be trained on; whitening looks at these only.
        valid: bool [B], rows with a grade; default those whose reward is not NaN.
        values: [B, R], a critic's; gae needs them.
        token_kl: [B, R], divergence from the reference; subtracted kl_coefficient times.
        running: see `normalise`.

    Raises:
        ValueError: gae without values, or what `grpo`, `rloo` and `normalise` refuse.
    """
    estimator = ESTIMATORS[config.adv_estimator]
    has_grade = graded(rewards, valid) & response_mask.any(-1)
    trained = (response_mask if loss_mask is None else response_mask & loss_mask) & has_grade[:, None]
    if estimator.normalise is None:
        scopes = config.norm_mean_type, config.norm_std_type
        normalised = normalise(rewards, group_ids, *scopes, has_grade, running)
    else:
        normalised = estimator.normalise(rewards, group_ids, has_grade)
    normalised, reward_clip_frac = clip(normalised, config.reward_clip, has_grade)
    token_rewards = place_on_last_token(normalised, response_mask)
    if token_kl is not None:
        token_rewards = add_token_level_kl(token_rewards, token_kl, response_mask, kl_coefficient)
    token_rewards, token_clip_frac = clip(token_rewards, config.reward_clip, trained)
    if config.whiten_rewards:
        token_rewards = whiten(token_rewards, trained)
    if estimator.needs_values:
        if values is None:
            raise ValueError(f"adv_estimator '{config.adv_estimator}' needs a critic's values, and none were given")
        raw, returns = gae(token_rewards, response_mask, values, config.gamma, config.lambd)
    else:
        raw = returns = estimator.returns(token_rewards, response_mask, config.gamma)
    raw = torch.where(trained, raw, 0)
    is_whitened = config.whiten_advantages or estimator.always_whitens
    advantages, advantage_clip_frac = clip(whiten(raw, trained) if is_whitened else raw, config.advantage_clip, trained)
    metrics = {
        "critic/reward_clip_frac": reward_clip_frac,
        "critic/token_reward_clip_frac": token_clip_frac,
        "critic/advantage_clip_frac": advantage_clip_frac,
    }
    return Advantages(normalised, token_rewards, advantages, raw, returns, metrics)
