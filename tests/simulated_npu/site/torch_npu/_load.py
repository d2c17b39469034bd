"""Loads the compiled part. It never compiles: a worker that did so while others wait would look like a hang."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_extension() -> Any:
    build = _module("_simulated_npu_build", Path(__file__).parents[2] / "build.py")
    library = build.library()
    if not library.exists():
        raise ImportError(f"no simulated NPU at {library}\n  try: build it with tests.simulated_npu.build.build()")
    return _module(build.NAME, library)


extension = _load_extension()


def register_collectives() -> None:
    """Make `hccl` a backend for tensors on the device, as torch_npu does."""
    import torch.distributed as dist

    def create(options: Any, _backend_options: Any) -> Any:
        store = dist.PrefixStore("hccl-on-gloo", options.store)
        gloo = dist.ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
        return extension.create_hccl(gloo, dist.PrefixStore("hccl-ranks", options.store))

    if torch.distributed.is_available():
        dist.Backend.register_backend("hccl", create, extended_api=True, devices=["npu"])
