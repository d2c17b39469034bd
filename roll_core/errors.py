"""The errors that users see. Each names what was asked, what there is, and what to do."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


class RollError(Exception):
    """A mistake or a failure with a message written for the user: the command line prints it without a traceback."""

    exit_code = 1
    """What the command line exits with."""


@contextmanager
def told_to_users() -> Iterator[None]:
    """An error for users ends the program with its message and its notes, and with its exit code."""
    try:
        yield
    except RollError as error:
        print(error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        sys.exit(error.exit_code)


class PluginError(RollError):
    """A plugin or a backend that was asked for by name cannot be used."""


class DataError(RollError):
    """A data file is missing, empty or holds a row that cannot be used."""


class CheckpointError(RollError):
    """A checkpoint is missing, incomplete or does not fit this run."""


class WorkerDied(RollError):
    """A worker process ended while the run still needed it."""


class WeightSyncError(RollError):
    """An engine did not confirm the weights that the trainer sent."""


class IllegalOrder(RollError):
    """An engine was asked for something its state does not allow, such as generating while asleep."""


class BadRequest(RollError):
    """A generation request that no engine could serve, such as one without a prompt or longer than the model allows."""


class EngineFailed(RollError):
    """An engine broke down; the message holds its traceback, and everything that ran in it is lost."""


class Interrupted(RollError):
    """The user or a batch system stopped the run; takes over what was noted on the KeyboardInterrupt."""

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        name = str(interrupt) or signal.SIGINT.name
        super().__init__(f"stopped by {name}")
        self.exit_code = 128 + signal.Signals[name]
        for note in getattr(interrupt, "__notes__", ()):
            self.add_note(note)


@dataclass(frozen=True)
class Problem:
    """One thing in a config that cannot work.

    `path` is the dotted key, `value` what the user wrote, `rule` what must hold, `hint` what to do. `is_not_built`
    marks what is sound as a config and beyond this version: a run is refused, a plan for other machines is not.
    """

    path: str
    rule: str
    value: object = None
    hint: str = ""
    is_not_built: bool = False

    def __str__(self) -> str:
        head = f"{self.path}: {self.rule}" if self.path else self.rule
        shown = "" if self.value is None else f"\n    given: {self.value!r}"
        hint = "" if not self.hint else f"\n    try:   {self.hint}"
        return head + shown + hint


class ConfigError(RollError):
    """A config with problems; all of them are reported together."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = list(problems)
        self.source = source
        count = len(self.problems)
        where = f" in {source}" if source else ""
        lines = [f"{count} problem{'s' if count != 1 else ''}{where}"]
        lines += [f"- {problem}" for problem in self.problems]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[Problem], str]]:
        # A worker's error reaches the driver pickled, and that makes it anew from the arguments of its base class.
        return ConfigError, (self.problems, self.source)
