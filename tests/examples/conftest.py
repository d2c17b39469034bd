"""The quickstart's folder on the path, as when one of its scripts is run."""

from __future__ import annotations

from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"


@pytest.fixture(autouse=True)
def quickstart(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder."""
    monkeypatch.syspath_prepend(str(QUICKSTART))
    return QUICKSTART
