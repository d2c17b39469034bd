"""Projections of the compact decoder: fused and packed ones give what the model's own layers give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from roll_core.inference.linear import PACKED_ENTRIES, Linear, fused

SIZES = {"plain": (32, 64), "packed": (256, PACKED_ENTRIES // 256)}


@pytest.fixture(params=SIZES, ids=list(SIZES))
def sizes(request: pytest.FixtureRequest) -> tuple[int, int]:
    torch.manual_seed(0)
    return SIZES[request.param]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 8, 300])
def test_a_projection_is_the_models_own(sizes: tuple[int, int], bias: bool, rows: int) -> None:
    layer = nn.Linear(*sizes, bias=bias)
    x, residual = torch.randn(rows, sizes[0]), torch.randn(rows, sizes[1])
    with torch.inference_mode():
        ours = Linear(layer.weight, layer.bias)
        torch.testing.assert_close(ours(x), layer(x), atol=1e-5, rtol=1e-5)
        expected = residual + layer(x)
        # A part of a wider matrix, as the compact decoder keeps its residual stream.
        wide = torch.cat([residual, torch.ones(rows, 1)], dim=1)
        ours.add_to(wide[:, :-1], x)
        torch.testing.assert_close(wide[:, :-1], expected, atol=1e-5, rtol=1e-5)
        assert (wide[:, -1] == 1).all()


def test_large_weights_are_packed_on_a_plain_processor() -> None:
    for name, (inputs, outputs) in SIZES.items():
        assert Linear(torch.zeros(outputs, inputs), None).is_packed == (name == "packed")


def test_fused_projections_stand_side_by_side_and_follow_new_weights(sizes: tuple[int, int]) -> None:
    layers = [nn.Linear(*sizes), nn.Linear(*sizes)]
    x = torch.randn(5, sizes[0])
    with torch.no_grad():
        both = fused(*layers)
        for layer in layers:
            layer.weight.copy_(torch.randn_like(layer.weight) / 16)
            layer.bias.copy_(torch.randn_like(layer.bias))
        both.pack()
        torch.testing.assert_close(both(x), torch.cat([layer(x) for layer in layers], dim=1), atol=1e-5, rtol=1e-5)
