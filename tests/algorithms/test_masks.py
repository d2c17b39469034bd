import numpy as np
import pytest
import torch

from roll_core.algorithms.masks import (
    difficulty_mask,
    error_max_len_mask,
    final_mask,
    max_len_mask,
    rows_that_matter,
    sample_weights,
)

NAN = float("nan")
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)


def test_responses_of_the_longest_length_are_dropped_at_any_padding() -> None:
    assert max_len_mask(MASK, 3).tolist() == [False, True, True, True]
    assert max_len_mask(torch.nn.functional.pad(MASK, (0, 10)), 3).tolist() == [False, True, True, True]


def test_difficulty_bounds_are_strict() -> None:
    scores = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.25, 0.25])
    groups = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    assert difficulty_mask(scores, groups, 0, 1).tolist() == [False] * 4 + [True] * 4
    assert difficulty_mask(scores, groups, 0.25, 0.5).tolist() == [False] * 8


def test_one_response_per_prompt_has_no_difficulty() -> None:
    assert difficulty_mask(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]), 0.1, 0.9).tolist() == [True, True]


def test_difficulty_ignores_rows_without_a_grade() -> None:
    scores = torch.tensor([1.0, NAN, 1.0, 0.0, NAN, NAN])
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    assert difficulty_mask(scores, groups, 0, 1).tolist() == [False, False, True, True, True, True]


def test_long_wrong_answers_are_dropped_and_partly_right_ones_stay() -> None:
    scores, mask = torch.tensor([0.0, 0.0, 0.0, 0.5]), MASK[[0, 1, 3, 0]]
    assert error_max_len_mask(scores, mask, 3).tolist() == [False, True, True, True]


def test_sample_weights_by_hand() -> None:
    kept = torch.tensor([True, True, True, False])
    difficulty = torch.tensor([0.0, 2.0, NAN, 0.5])
    lengths = torch.tensor([10, 20, 30, 1000])
    by_difficulty = np.array([0.5, 2.0, 1.0])
    by_length = np.array([1.5, 1.0, 0.5])
    for arguments, raw in (
        ({"difficulty": difficulty}, by_difficulty),
        ({"lengths": lengths}, by_length),
        ({"difficulty": difficulty, "lengths": lengths}, by_difficulty * by_length),
    ):
        weights = sample_weights(kept, **arguments)
        np.testing.assert_allclose(weights.numpy(), [*(raw / raw.mean()), 0], rtol=1e-6)


def test_sample_weights_of_nothing_are_zeros() -> None:
    nothing = torch.tensor([False, False])
    assert sample_weights(nothing, torch.ones(2), torch.tensor([3, 4])).tolist() == [0.0, 0.0]


def test_the_final_mask_is_what_every_mask_keeps() -> None:
    mask, metrics = final_mask(
        MASK,
        {
            "max_len_mask": torch.tensor([False, True, True, True]),
            "difficulty_mask": torch.tensor([True, True, True, False]),
        },
    )
    assert mask.tolist() == [[False] * 3, [True, True, False], [False] * 3, [False] * 3]
    assert metrics == {
        "actor/max_len_mask_ratio": 0.75,
        "actor/difficulty_mask_ratio": 0.75,
        "actor/final_mask_ratio": 0.25,
        "actor/samples_used": 1.0,
        "actor/samples_total": 4.0,
        "mask/final_mask_sum_eq_0": 0.0,
    }


def test_an_empty_final_mask_is_reported() -> None:
    mask, metrics = final_mask(MASK, {"max_len_mask": torch.zeros(4, dtype=torch.bool)})
    assert not mask.any() and metrics["mask/final_mask_sum_eq_0"] == 1.0


@pytest.mark.parametrize(
    ("regularisers", "expected"),
    [([], [True, False, False, False]), ([[[0, 0], [0, 0], [1, 0], [0, 0]]], [True, False, True, False])],
)
def test_rows_without_any_weighted_advantage_do_not_matter(
    regularisers: list[list[list[int]]], expected: list[bool]
) -> None:
    advantages = torch.tensor([[1.0, 0.0], [0.0, 5.0], [0.0, 0.0], [0.0, 0.0]])
    weight = torch.tensor([[0.5, 0.5], [0.5, 0.0], [0.5, 0.5], [0.5, 0.5]])
    assert rows_that_matter(advantages, weight, *map(torch.tensor, regularisers)).tolist() == expected
