"""Model folders shared by the tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from roll_core.inference.hf import HfInferStrategy
from tests.inference.models import make_engine, save_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a model of a kind; written once for each kind and seed."""
    found: dict[tuple[str, int], Path] = {}

    def folder(kind: str, seed: int = 0) -> Path:
        if (kind, seed) not in found:
            found[kind, seed] = save_model(tmp_path_factory.mktemp(kind), kind, seed)
        return found[kind, seed]

    return folder


@pytest.fixture
def start(folder_of: Callable[..., Path]) -> Iterator[Callable[..., HfInferStrategy]]:
    """Start engines; each is stopped at the end."""
    started: list[HfInferStrategy] = []

    def start_engine(kind: str | Path = "qwen3", **strategy_config: Any) -> HfInferStrategy:
        engine = make_engine(kind if isinstance(kind, Path) else folder_of(kind), **strategy_config)
        started.append(engine)
        engine.start()
        return engine

    yield start_engine
    for engine in started:
        engine.stop()
