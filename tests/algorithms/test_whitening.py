import logging

import numpy as np
import pytest
import torch

from roll_core.algorithms.whitening import whiten


def test_masked_tokens_have_zero_mean_and_unit_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    values = 5 + 3 * torch.randn(4, 6, generator=generator)
    mask = torch.rand(4, 6, generator=generator) < 0.5
    kept = values[mask].double().numpy()
    expected = (kept - kept.mean()) / np.sqrt(kept.var(ddof=1) + 1e-8)
    white = whiten(values, mask)
    np.testing.assert_allclose(white[mask].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert (white[~mask] == 0).all()


def test_equal_values_become_exactly_zero() -> None:
    assert whiten(torch.full((2, 3), 0.5), torch.ones(2, 3, dtype=torch.bool)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("garbage", [float("inf"), float("nan"), 1e9])
def test_masked_garbage_and_padding_change_nothing(garbage: float) -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    clean = whiten(values, torch.ones(2, 2, dtype=torch.bool))
    padded = torch.nn.functional.pad(values, (0, 10), value=garbage)
    mask = torch.nn.functional.pad(torch.ones(2, 2, dtype=torch.bool), (0, 10))
    assert torch.equal(whiten(padded, mask)[:, :2], clean)


@pytest.mark.parametrize("kept", [0, 1])
def test_fewer_than_two_tokens_are_left_alone_with_a_warning(kept: int, caplog: pytest.LogCaptureFixture) -> None:
    mask = torch.tensor([[kept == 1, False]])
    with caplog.at_level(logging.WARNING):
        white = whiten(torch.tensor([[7.0, float("nan")]]), mask)
    assert white.tolist() == [[7.0 * kept, 0.0]]
    assert f"whitening skipped: it needs two tokens that count, the batch has {kept}" in caplog.text
