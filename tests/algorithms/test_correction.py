import numpy as np
import pytest
import torch

from roll_core.algorithms.correction import (
    CorrectionConfig,
    ImportanceWeight,
    MismatchFilter,
    aggregate,
    correct_mismatch,
)
from roll_core.algorithms.tallies import fetch

MASK = np.array([[1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 0], [0] * 6], dtype=bool)
SEGMENTS = [[[0, 1], [3], [5]], [[1, 2, 3]], []]
GENERATOR = np.random.default_rng(0)
OLD = -GENERATOR.random(MASK.shape)
INFER = OLD + 0.3 * GENERATOR.standard_normal(MASK.shape)


def aggregate_by_loops(values: np.ndarray, granularity: str) -> np.ndarray:
    out = np.zeros_like(values)
    for b, segments in enumerate(SEGMENTS):
        tokens = [t for segment in segments for t in segment]
        for segment in segments:
            for t in segment:
                out[b, t] = {
                    "token": values[b, t],
                    "geometric": np.mean([values[b, u] for u in tokens]),
                    "sequence": np.sum([values[b, u] for u in tokens]),
                    "segment": np.mean([values[b, u] for u in segment]),
                }[granularity]
    return out


def tensors(garbage: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mask = torch.from_numpy(MASK)
    return (
        torch.where(mask, torch.from_numpy(OLD).float(), garbage),
        torch.where(mask, torch.from_numpy(INFER).float(), garbage),
        mask,
    )


@pytest.mark.parametrize("granularity", ["token", "geometric", "sequence", "segment"])
def test_weights_and_metrics_at_each_granularity(granularity: str) -> None:
    config = CorrectionConfig(ImportanceWeight(granularity, 1.1))  # type: ignore[arg-type]
    out = correct_mismatch(*tensors(), config)
    ratio = np.exp(aggregate_by_loops(OLD - INFER, granularity))
    np.testing.assert_allclose(out.weights.numpy(), np.where(MASK, np.minimum(ratio, 1.1), 0), rtol=1e-5)
    metrics = fetch(out.measures)
    difference = aggregate_by_loops(np.exp(OLD) - np.exp(INFER), granularity)
    assert metrics[f"actor/train_infer_ratio_{granularity}_mean"].value == pytest.approx(ratio[MASK].mean(), rel=1e-5)
    assert metrics[f"actor/train_infer_diff_{granularity}_mean"].value == pytest.approx(
        difference[MASK].mean(), abs=1e-6
    )
    assert metrics["actor/is_weight_clipfrac"].value == pytest.approx((ratio[MASK] > 1.1).mean())
    assert torch.equal(out.mask, torch.from_numpy(MASK))


def test_without_a_bound_the_ratio_is_the_weight() -> None:
    out = correct_mismatch(*tensors(), CorrectionConfig(ImportanceWeight("token", None)))
    np.testing.assert_allclose(out.weights.numpy()[MASK], np.exp(OLD - INFER)[MASK], rtol=1e-5)


def test_filters_keep_what_is_inside_all_bounds() -> None:
    filters = (
        MismatchFilter("token", ratio_enabled=True, ratio_low=0.8, ratio_high=1.2),
        MismatchFilter("segment", diff_enabled=True, diff_low=-0.05, diff_high=0.1),
    )
    out = correct_mismatch(*tensors(), CorrectionConfig(filters=filters))
    ratio = np.exp(OLD - INFER)
    difference = aggregate_by_loops(np.exp(OLD) - np.exp(INFER), "segment")
    first, second = (ratio >= 0.8) & (ratio <= 1.2), (difference >= -0.05) & (difference <= 0.1)
    expected = MASK & first & second
    assert 0 < expected.sum() < MASK.sum()
    assert out.mask.numpy().tolist() == expected.tolist()
    metrics = fetch(out.measures)
    assert metrics["actor/train_infer_token_ratio_mask_mean"].value == pytest.approx(first[MASK].mean())
    assert metrics["actor/train_infer_segment_diff_mask_mean"].value == pytest.approx(second[MASK].mean())
    assert metrics["actor/train_infer_final_mask_mean"].value == pytest.approx(expected[MASK].mean())
    assert out.weights.numpy().tolist() == MASK.astype(float).tolist()


@pytest.mark.parametrize("garbage", [float("inf"), float("nan"), 1e9])
def test_masked_garbage_changes_nothing(garbage: float) -> None:
    config = CorrectionConfig(ImportanceWeight("segment"), (MismatchFilter("sequence", ratio_enabled=True),))
    clean, dirty = correct_mismatch(*tensors(), config), correct_mismatch(*tensors(garbage), config)
    assert torch.equal(clean.weights, dirty.weights) and torch.equal(clean.mask, dirty.mask)
    assert fetch(clean.measures) == fetch(dirty.measures)


def test_a_long_response_does_not_overflow_the_sequence_ratio() -> None:
    old, mask = torch.zeros(1, 4000), torch.ones(1, 4000, dtype=torch.bool)
    out = correct_mismatch(old, old - 1, mask, CorrectionConfig(ImportanceWeight("sequence", None)))
    assert out.weights.isfinite().all()


def test_an_unknown_granularity_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="no aggregation named 'row'\n  there are: token, geometric, sequence, segment"
    ):
        aggregate(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), "row")  # type: ignore[arg-type]
