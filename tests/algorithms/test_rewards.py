import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.algorithms.rewards import RunningMoments, clip, normalise, overlong_penalty, place_on_last_token

NAN = float("nan")
SCOPES = (None, "batch", "group", "running")


def normalise_by_loops(
    rewards: list[float | None], groups: list[int], mean_type: str | None, std_type: str | None, history: list[float]
) -> list[float]:
    """(r - mean) / (std + 1e-6) with the standard library; an undefined or zero deviation scales nothing."""
    out = []
    for reward, group in zip(rewards, groups):
        if reward is None:
            out.append(0.0)
            continue
        pools = {
            "batch": [r for r in rewards if r is not None],
            "group": [r for r, g in zip(rewards, groups) if r is not None and g == group],
            "running": history,
        }
        centred = reward - (statistics.fmean(pools[mean_type]) if mean_type else 0.0)
        if std_type and len(set(pools[std_type])) > 1:
            centred /= statistics.stdev(pools[std_type]) + 1e-6
        out.append(centred)
    return out


@pytest.mark.parametrize("group_size", [1, 2, 8])
@pytest.mark.parametrize("std_type", SCOPES)
@pytest.mark.parametrize("mean_type", SCOPES)
def test_every_mean_with_every_deviation(mean_type: str | None, std_type: str | None, group_size: int) -> None:
    generator = torch.Generator().manual_seed(group_size)
    rewards = torch.rand(16, generator=generator, dtype=torch.float64)
    rewards[:group_size] = 1.0
    groups = torch.arange(16) // group_size
    running = RunningMoments()
    earlier = torch.rand(10, generator=generator, dtype=torch.float64)
    running.update(earlier)
    running.update(rewards)
    out = normalise(rewards, groups, mean_type, std_type, running=running)  # type: ignore[arg-type]
    history = earlier.tolist() + rewards.tolist()
    assert out.shape == rewards.shape
    expected = normalise_by_loops(rewards.tolist(), groups.tolist(), mean_type, std_type, history)
    assert out.tolist() == pytest.approx(expected, abs=1e-9)


def test_rows_of_a_group_need_not_be_neighbours() -> None:
    rewards = torch.tensor([1.0, 5.0, 3.0, 9.0])
    assert normalise(rewards, torch.tensor([4, 7, 4, 7]), "group", None).tolist() == [-1.0, -2.0, 1.0, 2.0]


def test_a_reward_without_a_grade_touches_no_statistic() -> None:
    graded = normalise(torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3, dtype=torch.long), "group", "group")
    with_hole = normalise(torch.tensor([1.0, NAN, 0.0, 0.0]), torch.zeros(4, dtype=torch.long), "group", "group")
    by_mask = normalise(
        torch.tensor([1.0, 7.0, 0.0, 0.0]),
        torch.zeros(4, dtype=torch.long),
        "group",
        "group",
        valid=torch.tensor([True, False, True, True]),
    )
    assert with_hole[[0, 2, 3]].tolist() == graded.tolist()
    assert with_hole[1].item() == 0.0
    assert torch.equal(with_hole, by_mask)
    assert graded.tolist() == pytest.approx([1.154699, -0.577349, -0.577349], abs=1e-5)


def test_equal_rewards_have_exactly_no_deviation() -> None:
    rewards = torch.full((7,), 0.7, dtype=torch.float64)
    assert rewards.sum() / 7 != 0.7, "the rounding this is about"
    assert normalise(rewards, torch.zeros(7, dtype=torch.long), "group", "group").tolist() == [0.0] * 7


def test_a_batch_without_any_grade_is_all_zeros() -> None:
    assert normalise(torch.tensor([NAN, NAN]), torch.tensor([0, 0]), "group", "batch").tolist() == [0.0, 0.0]


def test_running_moments_must_be_given() -> None:
    with pytest.raises(ValueError, match="running moments needs them"):
        normalise(torch.ones(2), torch.zeros(2, dtype=torch.long), "running", None)


def test_an_unknown_scope_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no normalisation over 'domain'\n  there are: batch, group, running, or none"):
        normalise(torch.ones(2), torch.zeros(2, dtype=torch.long), "domain", None)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(batches=st.lists(st.lists(st.floats(-100, 100) | st.none(), max_size=6), max_size=5))
def test_running_moments_equal_those_of_everything_seen(batches: list[list[float | None]]) -> None:
    running = RunningMoments()
    for batch in batches:
        running.update(torch.tensor([NAN if r is None else r for r in batch], dtype=torch.float64))
    seen = [r for batch in batches for r in batch if r is not None]
    assert running.count == len(seen)
    assert running.mean == pytest.approx(statistics.fmean(seen) if seen else 0.0, abs=1e-9)
    assert running.std == pytest.approx(statistics.stdev(seen) if len(seen) > 1 else 0.0, abs=1e-6)


def test_running_moments_go_on_after_a_resume() -> None:
    running, resumed = RunningMoments(), RunningMoments()
    running.update(torch.tensor([1.0, 2.0]))
    resumed.load_state_dict(running.state_dict())
    running.update(torch.tensor([5.0]))
    resumed.update(torch.tensor([5.0]))
    assert running == resumed


def test_clipping_counts_what_it_changed_among_the_true() -> None:
    values = torch.tensor([-3.0, 0.5, 2.0, 9.0])
    clipped, share = clip(values, 2.0, torch.tensor([True, True, True, False]))
    assert clipped.tolist() == [-2.0, 0.5, 2.0, 2.0]
    assert share == pytest.approx(1 / 3)
    assert clip(values, None, torch.ones(4, dtype=torch.bool)) == (values, 0.0)
    assert clip(values, 1.0, torch.zeros(4, dtype=torch.bool))[1] == 0.0


def test_a_reward_lands_on_the_last_true_token() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    placed = place_on_last_token(torch.tensor([2.0, 3.0, 4.0, 10.0]), mask)
    assert placed.tolist() == [[0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 4], [0, 0, 0, 0]]
    assert math.fsum(placed.flatten().tolist()) == 9.0


def test_a_long_response_is_punished_softly() -> None:
    lengths = torch.tensor([0, 12, 13, 14, 16, 20])
    assert overlong_penalty(lengths, 16, 4).tolist() == [0, 0, -0.25, -0.5, -1, -1]
    for buffer in (0, 17):
        with pytest.raises(ValueError, match=f"the buffer must be 1 to 16 tokens, the longest response, not {buffer}"):
            overlong_penalty(lengths, 16, buffer)
