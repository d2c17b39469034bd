"""What a turn of an episode was worth: the estimators of runs in environments.

Shapes in this file: N rows, each one turn of an episode or (agentic_reinforce) a whole one with R tokens. Rows may
stand in any order. A row without a grade holds NaN; it enters no statistic and becomes 0.

A pipeline calls `gigpo` or `step_reinforce` for one number per row and hands it as `rewards` to
`compute_advantages` with the estimator of the same name, which places it on tokens, discounts, whitens and clips.
agentic_reinforce is `compute_advantages` with `segment_returns` in the place of discounted tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from roll_core.algorithms.aggregation import segment_index
from roll_core.algorithms.estimators import credit_masked_rewards
from roll_core.algorithms.rewards import Scope, graded, normalise


def group_ids_of(*columns: Sequence[Hashable]) -> torch.Tensor:
    """Integer [N], equal where all columns are: group_ids_of(group, state_hash) are GiGPO's anchor states.

    Numbers are given in the order of first appearance. Columns are of N values each, such as an object array.
    """
    numbers: dict[tuple[Hashable, ...], int] = {}
    rows = zip(*(list(column) for column in columns), strict=True)
    return torch.tensor([numbers.setdefault(row, len(numbers)) for row in rows], dtype=torch.long)


def discounted_step_returns(
    step_rewards: torch.Tensor, trajectory_ids: torch.Tensor, steps: torch.Tensor, gamma: float
) -> torch.Tensor:
    """G_k = r_k + gamma G_{k+1} over the turns of each episode; k+1 is the row with the next larger step.

    A turn without a grade leaves every earlier turn of its episode without one. Source: GiGPO, arXiv 2505.10978,
    section 4.2.

    Args:
        step_rewards: [N], NaN where there is no grade.
        trajectory_ids: integer [N], equal for the turns of one episode.
        steps: integer [N], the turn's place in its episode.
        gamma: discount per turn; `step_reward_gamma` in a config.

    Returns:
        [N] of the dtype of step_rewards.

    Raises:
        ValueError: two rows are the same turn: copies to fill a batch are made after this.
    """
    rewards, episodes, places = step_rewards.tolist(), trajectory_ids.tolist(), steps.tolist()
    if len(set(zip(episodes, places))) < len(places):
        raise ValueError(
            f"{len(places)} rows hold {len(set(zip(episodes, places)))} different turns, and a turn must be there once"
            "\n  try: discounting before rows are copied to fill a batch"
        )
    returns = [0.0] * len(rewards)
    later: dict[int, float] = {}
    for row in sorted(range(len(rewards)), key=places.__getitem__, reverse=True):
        returns[row] = later[episodes[row]] = rewards[row] + gamma * later.get(episodes[row], 0.0)
    return torch.tensor(returns, dtype=step_rewards.dtype, device=step_rewards.device)


def step_reinforce(
    step_returns: torch.Tensor,
    group_ids: torch.Tensor,
    *,
    norm_mean_type: Scope | None = "group",
    norm_std_type: Scope | None = "group",
    valid: torch.Tensor | None = None,
) -> torch.Tensor:
    """(G - mean) / (std + 1e-6) of the discounted returns of turns, over the batch or a group; None leaves G as it is.

    Shapes: step_returns [N] from `discounted_step_returns`, group_ids integer [N], valid bool [N] -> [N]. See
    `normalise` for groups of one and of equal returns.
    """
    return normalise(step_returns, group_ids, norm_mean_type, norm_std_type, valid)


def gigpo(
    episode_rewards: torch.Tensor,
    step_returns: torch.Tensor,
    trajectory_ids: torch.Tensor,
    group_ids: torch.Tensor,
    state_ids: torch.Tensor,
    *,
    episode_reward_weight: float = 1.0,
    step_reward_weight: float = 1.0,
    norm_mean_type: Scope | None = "group",
    norm_std_type: Scope | None = "group",
    valid: torch.Tensor | None = None,
) -> torch.Tensor:
    """Group in group: how an episode did among its group's, and a turn among those that began in the same state.

        E = (R - mean) / (std + 1e-6)   R rewards of the episodes of a group, each episode counted once
        S = (G - mean) / (std + 1e-6)   G discounted returns of the turns of a group from one state
        A = episode_reward_weight E + step_reward_weight S

    std is unbiased; norm_std_type None divides by 1. A state that was met once, or from which all returns are
    equal, has S = 0. Source: GiGPO, arXiv 2505.10978, equations 3, 7 and 8, where step_reward_weight is omega.

    Args:
        episode_rewards: [N], the reward of the row's whole episode: the same on all its rows.
        step_returns: [N], from `discounted_step_returns`.
        trajectory_ids: integer [N], equal for the turns of one episode.
        group_ids: integer [N], equal for episodes from the same start.
        state_ids: integer [N], equal for rows of one group whose state before the turn was the same:
            `group_ids_of(group, state_hash)`.
        norm_mean_type, norm_std_type: what E is compared with; S is always of its state.
        valid: bool [N], rows that have a grade; default those that are not NaN.

    Returns:
        [N] of the dtype of episode_rewards.

    Raises:
        ValueError: rows of one episode have different rewards.
    """
    episodes, index = torch.unique(trajectory_ids, return_inverse=True)
    row_of = torch.empty(len(episodes), dtype=torch.long, device=index.device)
    row_of[index] = torch.arange(len(index), device=index.device)
    has_grade = graded(episode_rewards, valid)
    one_each = torch.where(graded(episode_rewards), episode_rewards, 0)
    if (one_each != one_each[row_of[index]]).any():
        raise ValueError("rows of one episode have different episode_rewards, and gigpo takes one for each episode")
    is_graded = torch.zeros(len(episodes), dtype=torch.bool, device=index.device)
    is_graded[index[has_grade]] = True
    of_episode = normalise(episode_rewards[row_of], group_ids[row_of], norm_mean_type, norm_std_type, is_graded)[index]
    turn_grades = graded(step_returns, has_grade)
    std_type: Scope | None = None if norm_std_type is None else "group"
    of_turn = normalise(step_returns, state_ids, "group", std_type, turn_grades)
    total = episode_reward_weight * of_episode + step_reward_weight * of_turn
    return torch.where(has_grade, total, 0).to(episode_rewards.dtype)


def segment_returns(token_rewards: torch.Tensor, response_mask: torch.Tensor, gamma: float) -> torch.Tensor:
    """agentic_reinforce: G_i = r_i + gamma G_{i+1} over the turns i of a row, the same on all tokens of a turn.

    A turn is a run of neighbouring true tokens and r_i the sum of its token rewards; what stands on masked tokens
    belongs to the turn before them (`credit_masked_rewards`). Discounting counts turns, not tokens, so a longer
    answer is worth no less. Source: REINFORCE, Williams (1992), with a turn as the action.

    Shapes: token_rewards, response_mask [N, R] -> [N, R], 0 where the mask is false.
    """
    rewards = credit_masked_rewards(token_rewards, response_mask)
    turn = segment_index(response_mask)
    returns = torch.zeros(len(turn), turn.shape[-1] + 2, dtype=rewards.dtype, device=rewards.device)
    returns = returns.scatter_add(-1, turn, rewards)
    for i in reversed(range(int(turn.max()) if turn.numel() else 0)):
        returns[:, i] += gamma * returns[:, i + 1]
    return torch.where(response_mask, returns.gather(-1, turn), 0)
