"""The residual stream's normalisation is that of torch, whichever kernels do it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from roll_core.inference.rms_norm import ResidualNorm


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_normalised_as_torch_does_also_where_epsilon_counts(scale: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, weight = ResidualNorm(24, 1e-6, dtype, torch.device("cpu")), torch.randn(24, dtype=dtype)
    for num_tokens in (3, 40, 1):
        x = (scale * torch.randn(num_tokens, 24)).to(dtype)
        stream = norm.widen(x.clone())
        for _ in range(2):
            expected = F.rms_norm(x, (24,), weight, 1e-6)
            torch.testing.assert_close(norm(stream, weight), expected, atol=1e-6, rtol=1e-5)
            # Layers add to the stream in place.
            added = (scale * torch.randn(num_tokens, 24)).to(dtype)
            stream[:, :24] += added
            x = x + added


def test_a_row_of_zeros_stays_finite() -> None:
    norm = ResidualNorm(8, 1e-6, torch.float32, torch.device("cpu"))
    assert norm(norm.widen(torch.zeros(2, 8)), torch.ones(8)).abs().max() == 0
