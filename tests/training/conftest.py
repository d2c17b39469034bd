"""Small models for the tests of trainers; and their folder on the path, as new processes import `tests.training...`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roll_core.training.fsdp2 import Fsdp2Strategy
from tests.training.support import write_model

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small model, for all tests of a module."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `model`, with tied embeddings."""
    return write_model(tmp_path_factory.mktemp("tied"), tied=True)


@pytest.fixture
def opened() -> Iterator[list[Fsdp2Strategy]]:
    """Strategies put in here are closed behind the test."""
    strategies: list[Fsdp2Strategy] = []
    yield strategies
    for strategy in strategies:
        strategy.close()
