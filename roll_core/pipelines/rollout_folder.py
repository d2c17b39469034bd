"""The files of a run that trains nothing: one per step, each whole or absent, and what a later run needs to go on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from roll_core.checkpoint.storage import flush_to_disk, storage_error
from roll_core.errors import CheckpointError

STATE_FILE = "rollout.json"


class RolloutFolder:
    """A folder of `<prefix>-000001.jsonl`, ... and a state file.

    The state of a step is written before its file gets its name, so that a step whose file is there can be gone on
    from, whenever the run was killed. A step without a file is made again, from the state of the step before it.

    Args:
        identity: what decides which samples a step has; a folder of another identity is never added to.
    """

    def __init__(self, folder: Path, prefix: str, identity: Mapping[str, Any]) -> None:
        self.folder, self.prefix = folder, prefix
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self.states: dict[int, dict[str, Any]] = {}

    def open(self, goes_on: bool) -> set[int]:
        """Make the folder ready; returns the steps that an earlier run has finished.

        Raises:
            CheckpointError: files of an earlier run are there that is not to be gone on with, or was another one.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for partial in self.folder.glob(f".{self.prefix}-*.jsonl.partial"):
            partial.unlink()
        done = {step for step in self._steps() if step > 0}
        saved = self._read_state()
        if done and not goes_on:
            raise CheckpointError(
                f"{self.folder} has {len(done)} files of an earlier rollout, and nothing is overwritten"
                "\n  try: resume_from_checkpoint=true to go on with it, or another rollout_dump_dir"
            )
        if not done:
            self._write_state()
            return set()
        self._check(saved)
        self.states = {int(step): state for step, state in saved["states"].items()}
        return done & self.states.keys()

    def write(self, step: int, records: Iterable[Mapping[str, Any]], state: Mapping[str, Any]) -> None:
        """Write a step's records and the state after it.

        Raises:
            CheckpointError: the disk refused.
        """
        path = self._path(step)
        partial = path.with_name(f".{path.name}.partial")
        try:
            with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
                for record in records:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self.states[step] = dict(state)
            self._write_state()
            partial.replace(path)
            flush_to_disk(self.folder)
        except OSError as error:
            raise storage_error("write a rollout", path, error) from error

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every record that is there, with its step, in the order of the steps."""
        for step in sorted(self._steps()):
            with self._path(step).open(encoding="utf-8") as file:
                for line in file:
                    yield step, json.loads(line)

    def _path(self, step: int) -> Path:
        return self.folder / f"{self.prefix}-{step:06d}.jsonl"

    def _steps(self) -> Iterator[int]:
        for path in self.folder.glob(f"{self.prefix}-*.jsonl"):
            number = path.stem.removeprefix(f"{self.prefix}-")
            if number.isdigit():
                yield int(number)

    def _read_state(self) -> dict[str, Any]:
        path = self.folder / STATE_FILE
        if not path.is_file():
            return {}
        try:
            state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{path} cannot be read: {error}\n  try: another rollout_dump_dir") from error
        return state

    def _write_state(self) -> None:
        path = self.folder / STATE_FILE
        partial = path.with_name(f".{STATE_FILE}.partial")
        with partial.open("w", encoding="utf-8") as file:
            json.dump({"identity": self.identity, "states": self.states}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def _check(self, saved: Mapping[str, Any]) -> None:
        if not saved:
            raise CheckpointError(
                f"{self.folder} has rollouts and no {STATE_FILE}, so what they are of cannot be told"
                "\n  try: another rollout_dump_dir"
            )
        before = saved["identity"]
        changed = [name for name in {**before, **self.identity} if before.get(name) != self.identity.get(name)]
        if changed:
            pairs = {name: (_short(before.get(name)), _short(self.identity.get(name))) for name in changed}
            shown = [f"\n  {name}: {then} then, {now} now" for name, (then, now) in pairs.items()]
            raise CheckpointError(
                f"{self.folder} has a rollout with other settings, which this one cannot go on with{''.join(shown)}"
                "\n  try: another rollout_dump_dir, or the settings of that run"
            )


def _short(value: object, most: int = 100) -> str:
    text = json.dumps(value)
    return text if len(text) <= most else text[:most] + "..."
