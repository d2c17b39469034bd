"""The child's side of taking turns: a loop that runs as many steps as it is told, then waits.

Commands come as lines of JSON on standard input: {"steps": 4} to run four steps, {"request": "name", ...} for
anything else, nothing (end of input) to stop. Each is answered by one line on what was standard output when the
process started; what the process and its libraries print goes to the log instead. Standard library only: this runs
in every environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

Answer = Mapping[str, Any]


def versions() -> dict[str, str]:
    """What computes in this environment."""
    return {name: version(name) for name in ("torch", "transformers")}


class Stopped(BaseException):
    """No more steps are wanted."""


class Gate:
    """Lets a loop through, step by step.

    Args:
        log: where everything that is printed goes from now on.
        requests: what is done for each kind of request.
    """

    def __init__(self, log: Path, requests: Mapping[str, Callable[[Answer], Answer]] | None = None) -> None:
        self._replies = os.fdopen(os.dup(1), "w")
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        self.requests = dict(requests or {})
        self._left = 0
        self._steps: list[Answer] = []

    def open(self, **facts: Any) -> None:
        """Say that the loop is ready, and wait for the first command."""
        self._reply(facts)
        self._wait()

    def passed(self, **facts: Any) -> None:
        """A step has ended. Returns when the next one may begin.

        Raises:
            Stopped: there is no next one.
        """
        self._steps.append(facts)
        self._left -= 1
        if self._left == 0:
            self._reply({"steps": self._steps})
            self._wait()

    def _wait(self) -> None:
        while line := sys.stdin.readline():
            command = json.loads(line)
            if "steps" in command:
                self._left, self._steps = int(command["steps"]), []
                return
            self._reply(self.requests[command["request"]](command))
        raise Stopped

    def _reply(self, facts: Answer) -> None:
        self._replies.write(json.dumps(facts) + "\n")
        self._replies.flush()
