import pytest

from roll_core.pipelines.validation import validation_metrics
from roll_core.rewards import Status
from tests.rollout.samples import prompt, sample


def test_accuracy_is_told_over_all_answers_and_by_tag() -> None:
    samples = [sample(prompt("a", "one"), 0, [1], 1.0), sample(prompt("b", "two"), 1, [1, 2], 0.5)]
    assert validation_metrics(samples) == {
        "val_correct/all/mean": 0.5,
        "val_correct/one/mean": 1.0,
        "val_correct/two/mean": 0.0,
        "val/ungraded_ratio": 0.0,
        "val/response_length/mean": 1.5,
    }


def test_answers_without_a_verdict_are_counted_beside_the_accuracy() -> None:
    samples = [sample(prompt("a"), 0, [1], 1.0), sample(prompt("b"), 1, [1], 0.0, status=Status.TIMEOUT)]
    metrics = validation_metrics(samples)
    assert (metrics["val_correct/all/mean"], metrics["val/ungraded_ratio"]) == (0.5, pytest.approx(0.5))
