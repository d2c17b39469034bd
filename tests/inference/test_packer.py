"""Packing behind an update: products, and the next update, wait for it."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from roll_core.inference import linear as linear_module
from roll_core.inference.linear import PACKED_ENTRIES, Linear, fused
from roll_core.inference.packer import Packer

INPUTS, OUTPUTS = 256, PACKED_ENTRIES // 256


@pytest.fixture
def layers() -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(INPUTS, OUTPUTS, bias=False).requires_grad_(False) for _ in range(3)]


def renew(packer: Packer, *layers: nn.Linear) -> None:
    """An update of the weights."""
    packer.settle()
    for layer in layers:
        layer.weight.copy_(torch.randn_like(layer.weight) / 16)
    packer.begin()


def is_current(projection: Linear, *layers: nn.Linear) -> bool:
    x = torch.randn(4, INPUTS)
    return torch.allclose(projection(x), torch.cat([layer(x) for layer in layers], dim=1), atol=1e-5, rtol=1e-5)


def test_after_each_update_products_are_of_the_new_weights(layers: list[nn.Linear]) -> None:
    pair, alone = fused(*layers[:2]), fused(layers[2])
    packer = Packer([pair, alone])
    for _ in range(3):
        renew(packer, *layers)
        assert is_current(alone, layers[2]) and is_current(pair, *layers[:2])
    packer.stop()


def test_weights_that_are_used_as_they_are_need_no_packing() -> None:
    packer = Packer([fused(nn.Linear(8, 8).requires_grad_(False))])
    assert packer.linears == ()
    packer.begin()
    packer.stop()


def test_products_and_the_next_update_wait_for_what_is_being_packed(
    layers: list[nn.Linear], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, may_pack, pack = fused(layers[0]), threading.Event(), linear_module._packed
    packer = Packer([alone])

    def slow(weight: torch.Tensor) -> torch.Tensor:
        assert may_pack.wait(60)
        return pack(weight)

    monkeypatch.setattr(linear_module, "_packed", slow)
    renew(packer, layers[0])
    found: list[bool] = []
    waiting = [
        threading.Thread(target=lambda: found.append(is_current(alone, layers[0]))),
        threading.Thread(target=packer.settle),
    ]
    for thread in waiting:
        thread.start()
    assert not found and all(thread.is_alive() for thread in waiting)
    may_pack.set()
    for thread in waiting:
        thread.join(60)
    assert found == [True]
    packer.stop()


def test_a_failure_of_packing_reaches_whoever_computes_and_the_next_update_mends_it(
    layers: list[nn.Linear], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fused(layers[0])
    packer = Packer([alone])

    def fail(weight: torch.Tensor) -> torch.Tensor:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(linear_module, "_packed", fail)
        renew(packer, layers[0])
        for _ in range(2):
            with pytest.raises(MemoryError, match="no room"):
                alone(torch.randn(4, INPUTS))
    renew(packer, layers[0])
    assert is_current(alone, layers[0])
    packer.stop()
