from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.runs import Run

MakeRun = Callable[..., Run]


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import prepare

    folder = tmp_path_factory.mktemp("assets")
    prepare.prepare(folder, seed=0, steps=5)
    lines = (folder / "data" / "heldout.jsonl").read_text().splitlines(keepends=True)
    (folder / "data" / "few.jsonl").write_text("".join(lines[:8]))
    return folder


@pytest.fixture(scope="session")
def make_run(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    def make(name: str, *overrides: str) -> Run:
        return Run(tmp_path_factory.mktemp(name), assets, overrides)

    return make
