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
