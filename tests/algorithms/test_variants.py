import numpy as np
import pytest
import torch

from roll_core.algorithms.variants import importance_ratio_of


@pytest.mark.parametrize("garbage", [float("inf"), float("nan"), 1e9])
@pytest.mark.parametrize(("level", "expected"), [("token", [np.exp(0.2), np.exp(-0.6)]), ("seq", [np.exp(-0.2)] * 2)])
def test_a_ratio_is_of_true_tokens_only(level: str, expected: list[float], garbage: float) -> None:
    log_probs = torch.tensor([[-1.0, garbage, -2.0]], requires_grad=True)
    old, mask = torch.tensor([[-1.2, 0.0, -1.4]]), torch.tensor([[True, False, True]])
    ratio = importance_ratio_of(log_probs, old, mask, level)  # type: ignore[arg-type]
    ratio[mask].sum().backward()
    np.testing.assert_allclose(ratio[mask].detach().numpy(), expected, rtol=1e-6)
    assert ratio.isfinite().all()
    assert log_probs.grad is not None
    np.testing.assert_allclose(log_probs.grad.numpy(), [[expected[0], 0.0, expected[1]]], rtol=1e-6)


def test_a_segment_ratio_is_that_of_its_turn() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, 9.0, -3.0, -1.0]], requires_grad=True)
    old, mask = torch.tensor([[-1.2, -1.8, 0.0, -3.3, -1.1]]), torch.tensor([[True, True, False, True, True]])
    ratio = importance_ratio_of(log_probs, old, mask, "segment")
    np.testing.assert_allclose(ratio.detach().numpy(), [[1, 1, 1, np.exp(0.2), np.exp(0.2)]], rtol=1e-6)
    (ratio * torch.tensor([1.0, 3.0, 7.0, 1.0, 0.0])).sum().backward()
    assert log_probs.grad is not None
    np.testing.assert_allclose(log_probs.grad.numpy(), [[2, 2, 0, np.exp(0.2) / 2, np.exp(0.2) / 2]], rtol=1e-6)
