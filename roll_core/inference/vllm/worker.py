"""What runs inside vLLM's worker processes, on any device: vLLM adds this class to its own worker class.

It uses what the workers of every platform have since 0.23: a `model_runner` that can `reload_weights`. Loading into the
model directly would be shorter and wrong: after loading, some devices keep weights only in a layout of their own,
which `reload_weights` makes anew, layer by layer.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from roll_core.inference.relay import Inlet
from roll_core.inference.vllm.log_probs import ScaledLogProbs
from roll_core.inference.vllm.orphans import end_with
from roll_core.weights import digest_of
from roll_core.weights.packing import unpack


class WorkerExtension:
    """Methods that the strategy calls on every rank of its engine. Their names begin with `roll_`, as vLLM's do not."""

    model_runner: Any
    vllm_config: Any

    def roll_prepare(self, owner_pid: int) -> bool:
        """Once, after the start; whether log-probs are right for every way of sampling, or only for plain sampling.

        This rank will end with the strategy's process, `owner_pid`.
        """
        end_with(owner_pid)
        sampler = getattr(self.model_runner, "sampler", None)
        if not isinstance(sampler, nn.Module):
            return False
        self.roll_log_probs = ScaledLogProbs(sampler)
        return True

    def roll_take_weights(self, address: str) -> tuple[str, list[str]]:
        """Take an update from the strategy's process; the digest of what came, and parameters that got nothing.

        All buckets go through one call of `reload_weights`: a layer whose parts come in different buckets is whole
        only at the end.
        """
        from vllm.config import set_current_vllm_config

        taken: list[tuple[str, tuple[int, ...]]] = []
        model = self.model_runner.get_model()
        with Inlet(address) as inlet, _watched(model) as loaded, set_current_vllm_config(self.vllm_config):
            # A generator, so that loading holds no more than the layers that are not whole yet.
            self.model_runner.reload_weights(weights_iterator=_tensors(inlet, taken))
        parameters = {name for name, _ in model.named_parameters()}
        return digest_of(inlet.version, taken), sorted(parameters - loaded)


def _tensors(inlet: Inlet, taken: list[tuple[str, tuple[int, ...]]]) -> Iterator[tuple[str, torch.Tensor]]:
    for path, entries in inlet.buckets():
        with Path(path).open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        inlet.opened()
        # The tensors keep the mapping alive for as long as loading needs them, though the file is gone by then.
        for name, tensor in unpack(entries, torch.frombuffer(mapped, dtype=torch.uint8)):
            taken.append((name, tuple(tensor.shape)))
            yield name, tensor


@contextmanager
def _watched(model: nn.Module) -> Iterator[set[str]]:
    """Collects the parameters that were loaded, which `reload_weights` only writes to the log."""
    loaded: set[str] = set()
    load: Any = model.load_weights

    def noting(*args: Any, **kwargs: Any) -> Any:
        names = load(*args, **kwargs)
        loaded.update(names or ())
        return names

    object.__setattr__(model, "load_weights", noting)
    try:
        yield loaded
    finally:
        object.__delattr__(model, "load_weights")
