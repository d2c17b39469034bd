"""What a response or a token was worth, compared with what was to be expected: the estimators' formulas."""

from __future__ import annotations

import torch

from roll_core.algorithms.rewards import EPSILON, graded, group_moments

TokenEstimate = tuple[torch.Tensor, torch.Tensor]


def credit_masked_rewards(token_rewards: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """Move a reward that sits on a masked token to the last true token before it.

    A tool's output is masked, and an episode may end with one: its reward belongs to the action that caused it.
    A reward before the first true token was not earned by any, and is dropped. Rewards are read under the
    mask too, so unlike everything else here they must be finite there.

    Shapes: token_rewards, response_mask [B, R] -> [B, R], 0 where the mask is false.
    """
    action = response_mask.long().cumsum(-1)
    totals = torch.zeros(len(action), action.shape[-1] + 1, dtype=token_rewards.dtype, device=token_rewards.device)
    totals = totals.scatter_add(-1, action, token_rewards)
    return torch.where(response_mask, totals.gather(-1, action), 0)


def gae(
    token_rewards: torch.Tensor, response_mask: torch.Tensor, values: torch.Tensor, gamma: float, lambd: float
) -> TokenEstimate:
    """Generalised advantage estimation, arXiv 1506.02438, over the true tokens only.

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t = delta_t + gamma lambd A_{t+1}
        returns_t = A_t + V_t

    t+1 is the next true token: masked ones in between (a tool's output) are stepped over without discount, and
    their values are not read. After the last true token V and A are 0.

    Shapes: token_rewards, response_mask, values [B, R] -> advantages, returns [B, R], 0 where the mask is false.
    """
    rewards = credit_masked_rewards(token_rewards, response_mask)
    known_values = torch.where(response_mask, values, 0)
    next_value = next_advantage = torch.zeros_like(known_values[:, 0])
    columns: list[torch.Tensor] = []
    for t in reversed(range(rewards.shape[-1])):
        delta = rewards[:, t] + gamma * next_value - known_values[:, t]
        advantage = delta + gamma * lambd * next_advantage
        next_advantage = torch.where(response_mask[:, t], advantage, next_advantage)
        next_value = torch.where(response_mask[:, t], known_values[:, t], next_value)
        columns.append(next_advantage)
    advantages = torch.where(response_mask, torch.stack(columns[::-1], -1), 0)
    return advantages, advantages + known_values


def discounted_returns(token_rewards: torch.Tensor, response_mask: torch.Tensor, gamma: float) -> torch.Tensor:
    """G_t = r_t + gamma G_{t+1}, where t+1 is the next true token. Williams (1992), REINFORCE.

    Shapes: token_rewards, response_mask [B, R] -> [B, R], 0 where the mask is false.
    """
    no_values = torch.zeros_like(token_rewards)
    return gae(token_rewards, response_mask, no_values, gamma, lambd=1.0)[0]


def grpo(rewards: torch.Tensor, group_ids: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """(r - mean_group) / (std_group + 1e-6), std unbiased; 0 where all rewards of a group are equal.

    Rows without a grade enter no statistic and get 0. Source: GRPO, arXiv 2402.03300, section 4.1.

    Shapes: rewards [B], group_ids integer [B], valid bool [B] -> [B].

    Raises:
        ValueError: a group with a single row, graded or not.
    """
    _refuse_single_rows("grpo", group_ids)
    has_grade = graded(rewards, valid)
    group = group_moments(rewards, group_ids, has_grade)
    deviation = torch.where(has_grade, rewards, 0) - group.mean
    return torch.where(has_grade, deviation / (group.std + EPSILON), 0).to(rewards.dtype)


def rloo(rewards: torch.Tensor, group_ids: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """r_i minus the mean reward of the others in its group: n/(n-1) (r_i - mean_group).

    Rows without a grade count for nobody and get 0, and so does the only graded row of a group.
    Source: RLOO, arXiv 2402.14740, section 3.

    Shapes: rewards [B], group_ids integer [B], valid bool [B] -> [B].

    Raises:
        ValueError: a group with a single row, graded or not.
    """
    _refuse_single_rows("rloo", group_ids)
    has_grade = graded(rewards, valid)
    group = group_moments(rewards, group_ids, has_grade)
    deviation = torch.where(has_grade, rewards, 0) - group.mean
    n = group.count
    return torch.where(has_grade & (n > 1), n / (n - 1).clamp(min=1) * deviation, 0).to(rewards.dtype)


def dr_grpo(rewards: torch.Tensor, group_ids: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """r - mean_group: GRPO without the deviation, which favours prompts that are nearly always right or wrong.

    Its other half is the aggregation `seq-mean-token-sum-norm`, which divides by a constant instead of the response's
    length. Rows without a grade enter no mean and get 0. Source: Dr. GRPO, arXiv 2503.20783, section 3.2.

    Shapes: rewards [B], group_ids integer [B], valid bool [B] -> [B].

    Raises:
        ValueError: a group with a single row, graded or not.
    """
    _refuse_single_rows("dr_grpo", group_ids)
    has_grade = graded(rewards, valid)
    group = group_moments(rewards, group_ids, has_grade)
    return torch.where(has_grade, torch.where(has_grade, rewards, 0) - group.mean, 0).to(rewards.dtype)


def raft_plus_plus(rewards: torch.Tensor, group_ids: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """1 where r is the best of its group and more than 0, else 0: only what succeeded is learnt from.

    With the loss `ppo` this is RAFT++; with `vanilla` it is RAFT, supervised training on the best answers. The paper
    has max_group alone; a group in which nothing succeeds would then be imitated, so it teaches nothing here.
    Source: Xiong et al., "A Minimalist Approach to LLM Reasoning", arXiv 2504.11343, equation 3.

    Shapes: rewards [B], group_ids integer [B], valid bool [B] -> [B].

    Raises:
        ValueError: a group with a single row, graded or not.
    """
    _refuse_single_rows("raft_plus_plus", group_ids)
    has_grade = graded(rewards, valid)
    known = torch.where(has_grade, rewards, -torch.inf)
    groups, index = torch.unique(group_ids, return_inverse=True)
    lowest = torch.full((len(groups),), -torch.inf, dtype=rewards.dtype, device=rewards.device)
    best = lowest.scatter_reduce(0, index, known, "amax")
    return ((known == best[index]) & (known > 0)).to(rewards.dtype)


def _refuse_single_rows(name: str, group_ids: torch.Tensor) -> None:
    _, counts = torch.unique(group_ids, return_counts=True)
    if (counts == 1).any():
        raise ValueError(
            f"{name} compares the responses to one prompt, and {int((counts == 1).sum())} of {len(counts)} prompts "
            "have a single response\n  try: num_return_sequences_in_group of 2 or more"
        )
