"""Intervals of shares: known values, and coverage where answers to one prompt are alike."""

import random

import pytest

from roll_core.algorithms.confidence import share, wilson


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_single_cases_have_the_published_intervals(right: int, total: int, low: float, high: float) -> None:
    assert wilson(right / total, total) == pytest.approx((low, high), abs=5e-5)
    found = share([[number < right] for number in range(total)])
    assert (found.right, found.total, found.groups) == (right, total, total)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_answers_that_are_all_alike_count_once() -> None:
    alike = share([[True] * 8] * 5 + [[False] * 8] * 5)
    single = share([[True]] * 5 + [[False]] * 5)
    assert (alike.right, alike.total, alike.groups_right) == (40, 80, 5)
    # Ten groups estimate the variance between them with nine degrees of freedom.
    assert alike.high - alike.low == pytest.approx(single.high - single.low, rel=0.06)


def test_nothing_right_at_all_is_as_sure_as_there_are_groups() -> None:
    assert share([[False] * 8] * 20).high == pytest.approx(wilson(0.0, 20)[1])


def test_no_case_has_no_share() -> None:
    with pytest.raises(ValueError, match="at least one case"):
        share([[]])


def test_nineteen_of_twenty_intervals_hold_the_true_share() -> None:
    rng = random.Random(0)
    held = 0
    for _ in range(400):
        groups = []
        for _group in range(60):
            # A prompt is easy or hard; on the whole half of the answers are right.
            ease = rng.choice((0.1, 0.9))
            groups.append([rng.random() < ease for _ in range(4)])
        found = share(groups)
        held += found.low <= 0.5 <= found.high
    assert held / 400 > 0.92
