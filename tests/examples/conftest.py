"""The examples' folder and the quickstart's on the path, as when one of its scripts is run."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def quickstart(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The quickstart's folder."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(EXAMPLES / "quickstart"))
    return EXAMPLES / "quickstart"
