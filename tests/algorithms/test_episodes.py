import numpy as np
import pytest
import torch

from roll_core.algorithms.advantages import AdvantageConfig, compute_advantages
from roll_core.algorithms.episodes import discounted_step_returns, gigpo, group_ids_of, segment_returns, step_reinforce

NAN = float("nan")
# Two episodes from one start and two from another; rows stand in no order.
GROUP = [7, 7, 7, 7, 9, 9, 9]
EPISODE = torch.tensor([1, 2, 1, 2, 3, 4, 1 + 4])
STEP = torch.tensor([1, 0, 0, 1, 0, 0, 0])
STATE = ["b", "a", "a", "c", "a", "a", "d"]
STEP_REWARD = torch.tensor([1.0, 0.5, 0.0, 0.0, 2.0, 0.0, 4.0])
EPISODE_REWARD = torch.tensor([1.0, 0.5, 1.0, 0.5, 2.0, 0.0, 4.0])
RETURNS = [1.0, 0.5, 0.9, 0.0, 2.0, 0.0, 4.0]


def compared(values: list[float]) -> list[float]:
    """(x - mean) / (std + 1e-6), 0 where nothing can be compared."""
    if len(values) < 2 or np.ptp(values) == 0:
        return [0.0] * len(values)
    return list((np.array(values) - np.mean(values)) / (np.std(values, ddof=1) + 1e-6))


def test_returns_discount_once_per_turn_in_any_order_of_rows() -> None:
    assert discounted_step_returns(STEP_REWARD, EPISODE, STEP, 0.9).tolist() == pytest.approx(RETURNS)
    order = torch.tensor([3, 6, 0, 2, 1, 5, 4])
    shuffled = discounted_step_returns(STEP_REWARD[order], EPISODE[order], STEP[order], 0.9)
    assert shuffled.tolist() == pytest.approx([RETURNS[i] for i in order.tolist()])


def test_a_turn_that_was_left_out_is_stepped_over() -> None:
    one = torch.ones(2, dtype=torch.long)
    assert discounted_step_returns(torch.tensor([0.0, 8.0]), one, torch.tensor([0, 5]), 0.5).tolist() == [4.0, 8.0]


def test_turns_before_one_without_a_grade_have_none() -> None:
    one = torch.ones(3, dtype=torch.long)
    returns = discounted_step_returns(torch.tensor([1.0, NAN, 1.0]), one, torch.arange(3), 0.5)
    assert returns.isnan().tolist() == [True, True, False] and returns[2] == 1.0


def test_copied_turns_are_refused() -> None:
    with pytest.raises(ValueError) as caught:
        discounted_step_returns(torch.ones(3), torch.ones(3), torch.tensor([0, 1, 1]), 1.0)
    assert str(caught.value) == (
        "3 rows hold 2 different turns, and a turn must be there once\n"
        "  try: discounting before rows are copied to fill a batch"
    )


def test_groups_are_rows_that_agree_in_every_column() -> None:
    assert group_ids_of(GROUP, STATE).tolist() == [0, 1, 1, 2, 3, 3, 4]
    assert group_ids_of(np.array(STATE, dtype=object)).tolist() == [0, 1, 1, 2, 1, 1, 3]
    with pytest.raises(ValueError, match="zip"):
        group_ids_of(GROUP, STATE[1:])


def test_turns_are_compared_within_their_state_and_episodes_within_their_start() -> None:
    # Group 7: episodes worth 1 and 0.5. Group 9: 2, 0 and 4. State a of group 7: returns 0.5 and 0.9; of 9: 2 and 0.
    e7, e9 = compared([1.0, 0.5]), compared([2.0, 0.0, 4.0])
    s7, s9 = compared([0.5, 0.9]), compared([2.0, 0.0])
    of_episode = np.array([e7[0], e7[1], e7[0], e7[1], e9[0], e9[1], e9[2]])
    of_turn = np.array([0.0, s7[0], s7[1], 0.0, s9[0], s9[1], 0.0])
    group, state = torch.tensor(GROUP), group_ids_of(GROUP, STATE)
    returns = discounted_step_returns(STEP_REWARD, EPISODE, STEP, 0.9)
    out = gigpo(EPISODE_REWARD, returns, EPISODE, group, state)
    np.testing.assert_allclose(out.numpy(), of_episode + of_turn, atol=1e-5)
    out = gigpo(EPISODE_REWARD, returns, EPISODE, group, state, episode_reward_weight=0.5, step_reward_weight=2.0)
    np.testing.assert_allclose(out.numpy(), 0.5 * of_episode + 2 * of_turn, atol=1e-5)


def test_without_deviations_gigpo_takes_means_off() -> None:
    returns = torch.tensor(RETURNS)
    group, state = torch.tensor(GROUP), group_ids_of(GROUP, STATE)
    out = gigpo(EPISODE_REWARD, returns, EPISODE, group, state, norm_std_type=None)
    expected = [0.25 + 0, -0.25 - 0.2, 0.25 + 0.2, -0.25 + 0, 0 + 1, -2 - 1, 2 + 0]
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-6)


def test_a_long_episode_counts_once_in_its_group() -> None:
    episode, state = torch.tensor([0, 0, 0, 1]), torch.arange(4)
    rewards = torch.tensor([1.0, 1.0, 1.0, 0.0])
    out = gigpo(rewards, torch.zeros(4), episode, torch.zeros(4, dtype=torch.long), state, norm_std_type=None)
    assert out.tolist() == [0.5, 0.5, 0.5, -0.5]


def test_an_episode_without_a_grade_enters_no_group() -> None:
    rewards, returns = torch.tensor([1.0, 0.0, NAN]), torch.tensor([1.0, 0.0, NAN])
    group = torch.zeros(3, dtype=torch.long)
    out = gigpo(rewards, returns, torch.arange(3), group, group)
    pair = gigpo(rewards[:2], returns[:2], torch.arange(2), group[:2], group[:2])
    assert out[:2].tolist() == pair.tolist() and out[2] == 0
    masked = gigpo(
        torch.tensor([1.0, 0.0, 5.0]),
        torch.tensor([1.0, 0.0, 5.0]),
        torch.arange(3),
        group,
        group,
        valid=torch.tensor([True, True, False]),
    )
    assert masked.tolist() == out.tolist()


def test_rows_of_one_episode_with_different_rewards_are_refused() -> None:
    one = torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="rows of one episode have different episode_rewards"):
        gigpo(torch.tensor([1.0, 0.0]), torch.zeros(2), one, one, one)


def test_step_reinforce_compares_returns_as_the_norm_types_say() -> None:
    returns, group = torch.tensor(RETURNS), torch.tensor(GROUP)
    expected = compared(RETURNS[:4]) + compared(RETURNS[4:])
    np.testing.assert_allclose(step_reinforce(returns, group).numpy(), expected, atol=1e-5)
    over_batch = step_reinforce(returns, group, norm_mean_type="batch", norm_std_type="batch")
    np.testing.assert_allclose(over_batch.numpy(), compared(RETURNS), atol=1e-5)
    assert torch.equal(step_reinforce(returns, group, norm_mean_type=None, norm_std_type=None), returns)


def test_every_token_of_a_turn_has_its_discounted_return() -> None:
    mask = torch.tensor([[0, 1, 1, 0, 1, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.bool)
    rewards = torch.zeros(2, 10)
    rewards[0, [2, 4, 9]] = torch.tensor([1.0, 2.0, 4.0])
    rewards[1, 0] = 3.0
    out = segment_returns(rewards, mask, 0.5)
    assert out.tolist() == [[0, 3, 3, 0, 4, 0, 0, 4, 4, 4], [3] + [0] * 9]


def test_rewards_inside_a_turn_add_up_and_those_of_tools_go_to_the_turn_before() -> None:
    mask = torch.tensor([[True, True, False, True, False]])
    out = segment_returns(torch.tensor([[0.5, 1.0, 2.0, 0.0, 4.0]]), mask, 0.5)
    assert out.tolist() == [[3.5 + 0.5 * 4, 5.5, 0.0, 4.0, 0.0]]


def test_padding_changes_no_segment_return() -> None:
    mask = torch.tensor([[True, False, True]])
    rewards = torch.tensor([[1.0, 0.0, 2.0]])
    wide = segment_returns(*(torch.nn.functional.pad(x, (0, 9)) for x in (rewards, mask)), 0.9)
    assert torch.equal(wide[:, :3], segment_returns(rewards, mask, 0.9))
    assert segment_returns(rewards, torch.zeros_like(mask), 0.9).tolist() == [[0.0, 0.0, 0.0]]


def test_an_episode_of_two_turns_becomes_advantages() -> None:
    mask = torch.tensor([[1, 1, 0, 1], [1, 0, 1, 1]], dtype=torch.bool)
    config = AdvantageConfig("agentic_reinforce", gamma=0.5)
    out = compute_advantages(config, torch.tensor([4.0, 1.0]), mask, torch.zeros(2, dtype=torch.long))
    assert out.advantages.tolist() == [[2, 2, 0, 4], [0.5, 0, 1, 1]]


@pytest.mark.parametrize("name", ["gigpo", "step_reinforce"])
def test_rewards_that_were_compared_before_stand_on_every_token(name: str) -> None:
    mask = torch.tensor([[True, True], [True, False]])
    out = compute_advantages(AdvantageConfig(name), torch.tensor([0.7, -0.2]), mask, torch.tensor([0, 0]))
    np.testing.assert_allclose(out.advantages.numpy(), [[0.7, 0.7], [-0.2, 0]], atol=1e-7)
