import numpy as np
import pytest
import torch

from roll_core.algorithms.metrics import group_metrics, length_metrics, score_metrics, token_metrics

NAN = float("nan")


def test_lengths_are_reported_for_all_right_and_wrong_responses() -> None:
    metrics = length_metrics(
        torch.tensor([5, 6, 7, 8]), torch.tensor([10, 4, 2, 10]), torch.tensor([1.0, 0.5, NAN, 1.0]), 10
    )
    assert metrics == {
        "token/prompt_length/mean": 6.5,
        "token/prompt_length/max": 8.0,
        "token/prompt_length/min": 5.0,
        "token/response_length/mean": 6.5,
        "token/response_length/max": 10.0,
        "token/response_length/min": 2.0,
        "token/response_length/diff": 8.0,
        "token/total_length/mean": 13.0,
        "token/total_length/max": 18.0,
        "token/total_length/min": 9.0,
        "token/total_length/diff": 9.0,
        "token/total_response_length/clip": 0.5,
        "token/right_response_length/mean": 10.0,
        "token/right_response_length/max": 10.0,
        "token/right_response_length/min": 10.0,
        "token/right_response_length/clip": 1.0,
        "token/error_response_length/mean": 4.0,
        "token/error_response_length/max": 4.0,
        "token/error_response_length/min": 4.0,
        "token/error_response_length/clip": 0.0,
        "response_length/mean": 6.5,
    }


def test_scores_without_a_grade_are_counted_apart() -> None:
    metrics = score_metrics(torch.tensor([1.0, 0.0, NAN, 0.5]), torch.tensor([0.9, -0.9, 0.0, 0.3]))
    expected = {
        "critic/score/mean": 0.5,
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "critic/rewards/mean": 0.1,
        "critic/rewards/max": 0.9,
        "critic/rewards/min": -0.9,
        "reward/mean": 0.5,
        "critic/ungraded_ratio": 0.25,
        "critic/correct/mean": 1 / 3,
        "critic/score_distribution/max_value": 1.0,
        "critic/score_distribution/min_value": 0.0,
        "critic/score_distribution/correct_samples_ratio": 1 / 3,
        "critic/score_distribution/incorrect_samples_ratio": 2 / 3,
    }
    assert metrics == pytest.approx(expected, abs=1e-7)


def test_token_numbers_are_over_the_tokens_trained_on() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    advantages = torch.tensor([[1.0, 3.0], [-2.0, NAN], [NAN, NAN]])
    metrics = token_metrics(
        mask,
        torch.tensor([1.0, 0.0, 0.0]),
        token_rewards=torch.tensor([[0.0, 1.0], [0.25, NAN], [NAN, NAN]]),
        advantages=advantages,
        raw_advantages=2 * advantages,
        returns=advantages,
        entropy=torch.tensor([[0.5, 1.5], [1.0, NAN], [NAN, NAN]]),
    )
    assert metrics["critic/advantages/mean"] == pytest.approx(2 / 3)
    assert metrics["critic/raw_advantages/max"] == 6.0
    assert metrics["critic/returns/min"] == -2.0
    assert metrics["critic/token_level_rewards_mean/mean"] == pytest.approx(0.375)
    assert metrics["critic/right_response/advantages/std"] == pytest.approx(np.sqrt(2))
    assert metrics["critic/error_response/raw_advantages/mean"] == -4.0
    assert metrics["critic/error_response/advantages/std"] == 0.0
    assert metrics["critic/entropy/mean"] == 1.0
    assert "critic/values/mean" not in metrics
    assert all(np.isfinite(number) for number in metrics.values())


def test_groups_are_right_wrong_or_mixed() -> None:
    metrics = group_metrics(
        torch.tensor([7, 7, 3, 3, 9, 9, 4]),
        torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, NAN, 1.0]),
        torch.tensor([10, 4, 5, 5, 100, 1, 50]),
        torch.tensor([0.5, -0.7, 0.0, 0.0, 0.0, 0.0, 0.0]),
    )
    expected = {
        "group/response_length_diff/mean": 3.0,
        "group/response_length_diff/max": 6.0,
        "group/response_length_diff/min": 0.0,
        "group/advantage_diff/mean": 0.6,
        "group/advantage_diff/max": 1.2,
        "group/advantage_diff/min": 0.0,
        "group/correct_ratio/mean": 0.75,
        "group/correct_ratio/std": np.std([0.5, 1.0], ddof=1),
        "group/correct_vs_incorrect_advantage_diff/mean": 1.2,
        "group/correct_vs_incorrect_advantage_diff/std": 0.0,
        "group/all_correct_groups_ratio": 0.5,
        "group/all_incorrect_groups_ratio": 0.0,
        "group/mixed_groups_ratio": 0.5,
        "group/zero_std_ratio": 0.5,
    }
    assert metrics == pytest.approx(expected, abs=1e-6)


def test_one_response_per_prompt_has_no_group_metrics() -> None:
    assert group_metrics(torch.arange(3), torch.ones(3), torch.ones(3), torch.ones(3)) == {}


def test_an_empty_batch_reports_nothing() -> None:
    empty = torch.zeros(0)
    assert length_metrics(empty, empty, empty, 8) == {}
    assert score_metrics(empty, empty) == {}
