import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.algorithms.estimators import (
    credit_masked_rewards,
    discounted_returns,
    dr_grpo,
    gae,
    grpo,
    raft_plus_plus,
    rloo,
)

NAN = float("nan")


def gae_by_definition(rewards: list[float], values: list[float], gamma: float, lambd: float) -> list[float]:
    """A_t as the sum over k of (gamma lambd)^k delta_{t+k}, for a row whose tokens are all true."""
    n = len(rewards)
    after = [*values[1:], 0.0]
    deltas = [rewards[t] + gamma * after[t] - values[t] for t in range(n)]
    return [sum((gamma * lambd) ** k * deltas[t + k] for k in range(n - t)) for t in range(n)]


def test_a_masked_value_never_leaks_into_advantages() -> None:
    advantages, returns = gae(
        torch.tensor([[0.0, 1.0, 0.0]]),
        torch.tensor([[True, True, False]]),
        torch.tensor([[0.0, 0.0, 100.0]]),
        gamma=1.0,
        lambd=0.95,
    )
    np.testing.assert_allclose(advantages.numpy(), [[0.95, 1.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(returns.numpy(), [[0.95, 1.0, 0.0]], atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    mask=st.lists(st.lists(st.booleans(), min_size=8, max_size=8), min_size=1, max_size=4),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    lambd=st.sampled_from([0.0, 0.95, 1.0]),
    garbage=st.sampled_from([float("inf"), NAN, 1e9]),
    seed=st.integers(0, 1000),
)
def test_gae_equals_its_definition_on_the_true_tokens(
    mask: list[list[bool]], gamma: float, lambd: float, garbage: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    is_true = torch.tensor(mask)
    rewards = torch.where(is_true, torch.randn(is_true.shape, generator=generator), 0)
    values = torch.where(is_true, torch.randn(is_true.shape, generator=generator), garbage)
    advantages, returns = gae(rewards, is_true, values, gamma, lambd)
    for row, row_mask in enumerate(is_true):
        expected = gae_by_definition(rewards[row][row_mask].tolist(), values[row][row_mask].tolist(), gamma, lambd)
        np.testing.assert_allclose(advantages[row][row_mask].numpy(), expected, atol=1e-5)
        np.testing.assert_allclose(
            returns[row][row_mask].numpy(), np.array(expected) + values[row][row_mask].numpy(), atol=1e-5
        )
    assert (advantages[~is_true] == 0).all() and (returns[~is_true] == 0).all()


def test_padding_by_ten_columns_changes_no_advantage() -> None:
    rewards, values = torch.tensor([[0.0, 0.5, 2.0]]), torch.tensor([[0.3, 0.2, 0.7]])
    mask = torch.tensor([[True, False, True]])
    narrow, _ = gae(rewards, mask, values, 0.9, 0.8)
    wide, _ = gae(*(torch.nn.functional.pad(x, (0, 10)) for x in (rewards, mask, values)), 0.9, 0.8)
    assert torch.equal(wide[:, :3], narrow)


def test_returns_discount_once_per_true_token() -> None:
    mask = torch.tensor([[True, True, False, False, True]])
    returns = discounted_returns(torch.tensor([[1.0, 0.0, 0.0, 0.0, 8.0]]), mask, 0.5)
    assert returns.tolist() == [[1.0 + 0.25 * 8, 4.0, 0.0, 0.0, 8.0]]


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_a_terminal_reward_on_a_masked_token_is_not_lost(gamma: float) -> None:
    returns = discounted_returns(torch.tensor([[0.0, 0.0, 3.0]]), torch.tensor([[True, True, False]]), gamma)
    assert returns.tolist() == [[3.0 * gamma, 3.0, 0.0]]


def test_a_reward_goes_back_to_the_action_before_it_and_no_further() -> None:
    mask = torch.tensor([[False, True, False, False, True, False], [False] * 6])
    rewards = torch.tensor([[100.0, 1.0, 2.0, 4.0, 8.0, 16.0], [1.0] * 6])
    assert credit_masked_rewards(rewards, mask).tolist() == [[0, 7, 0, 0, 24, 0], [0] * 6]


def test_group_advantages_by_hand() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 3.0, 3.0, 0.0, 1.0])
    groups = torch.tensor([5, 5, 5, 5, 9, 9, 2, 2])
    std = np.std([1, 0, 0, 1], ddof=1) + 1e-6
    pair = 0.5 / (np.sqrt(0.5) + 1e-6)
    expected = [0.5 / std, -0.5 / std, -0.5 / std, 0.5 / std, 0, 0, -pair, pair]
    np.testing.assert_allclose(grpo(rewards, groups).numpy(), expected, atol=1e-6)


def test_leave_one_out_by_hand() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5, 4.0, 2.0])
    groups = torch.tensor([0, 0, 0, 1, 1])
    np.testing.assert_allclose(rloo(rewards, groups).numpy(), [0.75, -0.75, 0.0, 2.0, -2.0], atol=1e-6)


def test_without_the_deviation_by_hand() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.5, 4.0, 2.0])
    groups = torch.tensor([0, 0, 0, 1, 1])
    assert dr_grpo(rewards, groups).tolist() == [0.5, -0.5, 0.0, 1.0, -1.0]


def test_only_the_best_of_a_group_that_succeeded_are_learnt_from() -> None:
    rewards = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 0.5, NAN, 0.2, -1.0, -2.0])
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
    assert raft_plus_plus(rewards, groups).tolist() == [1, 0, 1, 0, 0, 1, 0, 0, 0, 0]
    hidden = raft_plus_plus(torch.tensor([1.0, 0.5]), torch.tensor([0, 0]), torch.tensor([False, True]))
    assert hidden.tolist() == [0, 1]


@pytest.mark.parametrize("estimator", [grpo, rloo, dr_grpo])
def test_equal_rewards_teach_exactly_nothing(estimator: object) -> None:
    rewards = torch.full((7,), 0.7, dtype=torch.float64)
    assert estimator(rewards, torch.zeros(7, dtype=torch.long)).tolist() == [0.0] * 7  # type: ignore[operator]


def test_a_missing_grade_leaves_the_others_of_its_group_as_if_it_were_not_there() -> None:
    groups = torch.zeros(4, dtype=torch.long)
    with_hole = torch.tensor([1.0, NAN, 0.0, 0.0])
    three = torch.tensor([1.0, 0.0, 0.0])
    for estimator in (grpo, rloo, dr_grpo):
        out = estimator(with_hole, groups)
        assert out[[0, 2, 3]].tolist() == estimator(three, groups[:3]).tolist()
        assert out[1].item() == 0.0
        assert estimator(torch.tensor([1.0, NAN]), groups[:2]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("estimator", [grpo, rloo, dr_grpo, raft_plus_plus])
def test_a_group_of_one_is_refused(estimator: object) -> None:
    with pytest.raises(ValueError) as caught:
        estimator(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 1]))  # type: ignore[operator]
    assert str(caught.value).endswith(
        "compares the responses to one prompt, and 1 of 2 prompts have a single response\n"
        "  try: num_return_sequences_in_group of 2 or more"
    )
