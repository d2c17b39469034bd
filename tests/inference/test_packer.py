"""Packing beside an update: only what is whole, and products wait for it."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from roll_core.inference import linear as linear_module
from roll_core.inference.linear import PACKED_ENTRIES, fused
from roll_core.inference.packer import Packer

INPUTS, OUTPUTS = 256, PACKED_ENTRIES // 256


@pytest.fixture
def layers() -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(INPUTS, OUTPUTS, bias=False).requires_grad_(False) for _ in range(3)]


def renew(layer: nn.Linear) -> None:
    layer.weight.copy_(torch.randn_like(layer.weight) / 16)


def test_a_fused_projection_is_packed_once_all_of_its_parts_have_come(layers: list[nn.Linear]) -> None:
    pair, alone = fused(*layers[:2]), fused(layers[2])
    packer, x = Packer([pair, alone]), torch.randn(4, INPUTS)
    before = pair(x)
    packer.begin()
    for layer in layers:
        renew(layer)
    packer.changed(layers[1].weight)
    packer.changed(layers[2].weight)
    packer.wait()
    torch.testing.assert_close(alone(x), layers[2](x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pair(x), before)
    packer.changed(layers[0].weight)
    torch.testing.assert_close(pair(x), torch.cat([layer(x) for layer in layers[:2]], dim=1), atol=1e-5, rtol=1e-5)
    packer.stop()


def test_weights_that_are_used_as_they_are_need_no_packing() -> None:
    small = fused(nn.Linear(8, 8).requires_grad_(False))
    packer = Packer([small])
    packer.begin()
    packer.changed(small.parts[0])
    assert small._packing is None
    packer.stop()


def test_products_and_the_next_update_wait_for_what_is_being_packed(
    layers: list[nn.Linear], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fused(layers[0])
    packer, x, may_pack = Packer([alone]), torch.randn(4, INPUTS), threading.Event()
    pack = linear_module._packed

    def slow(weight: torch.Tensor) -> torch.Tensor:
        assert may_pack.wait(60)
        return pack(weight)

    monkeypatch.setattr(linear_module, "_packed", slow)
    packer.begin()
    renew(layers[0])
    packer.changed(layers[0].weight)
    found: list[torch.Tensor] = []
    waiting = [threading.Thread(target=lambda: found.append(alone(x))), threading.Thread(target=packer.begin)]
    for thread in waiting:
        thread.start()
    assert not found and all(thread.is_alive() for thread in waiting)
    may_pack.set()
    for thread in waiting:
        thread.join(60)
    torch.testing.assert_close(found[0], layers[0](x), atol=1e-5, rtol=1e-5)
    packer.stop()


def test_a_failure_of_packing_reaches_whoever_computes_and_the_next_update_mends_it(
    layers: list[nn.Linear], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fused(layers[0])
    packer, x = Packer([alone]), torch.randn(4, INPUTS)

    def fail(weight: torch.Tensor) -> torch.Tensor:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(linear_module, "_packed", fail)
        packer.begin()
        packer.changed(layers[0].weight)
        for _ in range(2):
            with pytest.raises(MemoryError, match="no room"):
                alone(x)
    packer.begin()
    renew(layers[0])
    packer.changed(layers[0].weight)
    torch.testing.assert_close(alone(x), layers[0](x), atol=1e-5, rtol=1e-5)
    packer.stop()
