"""Engines of the stand-in for SGLang, in `fake_sglang`."""

import os
from pathlib import Path
from typing import Any

import pytest

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference.sglang.strategy import SglangStrategy
from roll_core.platforms import Platform
from roll_core.platforms.cpu import CpuPlatform

FAKE = Path(__file__).parent / "fake_sglang"
ROOT = Path(__file__).parents[2]


def plant(monkeypatch: pytest.MonkeyPatch, folder: Path, version: str = "0.5.23") -> None:
    """The stand-in is installed, here and in processes that are started."""
    about = folder / f"sglang-{version}.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    for place in (ROOT, FAKE, folder):
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))


def sglang_role(folder: Path, *, devices: int = 1, dtype: str = "fp32", **strategy_config: Any) -> WorkerConfig:
    """A role that serves the model in a folder, as an engine on some devices."""
    return WorkerConfig(
        name="actor_infer",
        model_args={"model_name_or_path": str(folder), "dtype": dtype},
        strategy_args={"strategy_name": "sglang", "strategy_config": strategy_config},
        device_mapping=list(range(devices)),
    )


def make_sglang(folder: Path, *, platform: Platform | None = None, **options: Any) -> SglangStrategy:
    """An engine that has not been started."""
    return SglangStrategy(sglang_role(folder, **options), platform or CpuPlatform(), WorkerContext("actor_infer"))
