"""What `roll check --platform` says of a config's text before it is written anywhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

from roll_core.config.compose import read_config
from roll_core.config.plan import Request
from roll_core.config.planning import make_plan
from roll_core.errors import Problem
from roll_core.plugins import Registry

_LEVELS = 2
"""Folders above the config's own whose files an include such as `../../config/x` may name."""


def problems_of_text(text: str, path: Path, platform: str, registry: Registry) -> list[Problem]:
    """The problems that a config with this text would have in the place of the file at `path`."""
    with tempfile.TemporaryDirectory() as scratch:
        reading = read_config(_beside_its_includes(Path(scratch), text, path))
        earlier = [*reading.problems, *reading.rule_problems()]
        if reading.config is None:
            return earlier
        plan = make_plan(reading.config, registry, reading.pipeline, earlier, Request(platform))
        return [*reading.problems, *reading.sound([one for one in plan.problems if one not in reading.problems])]


def _beside_its_includes(scratch: Path, text: str, path: Path) -> Path:
    """Write the text where links lead to the files around its real place."""
    folders = [path.parent, *path.parent.parents][: _LEVELS + 1]
    here = scratch
    for outer, inner in zip(reversed(folders), [*reversed(folders[:-1]), path], strict=True):
        if "defaults" in text:
            _link(outer, here, without=inner.name)
        here = here / inner.name
        if inner != path:
            here.mkdir()
    here.write_text(text, encoding="utf-8", newline="")
    return here


def _link(folder: Path, place: Path, without: str) -> None:
    for child in folder.iterdir():
        if child.name != without and (child.is_dir() or child.suffix in (".yaml", ".yml")):
            (place / child.name).symlink_to(child)
