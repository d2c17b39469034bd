"""Calls on workers: waiting for them, and one clear error when any worker of the run fails."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from roll_core.cluster.spec import WorkerSpec
from roll_core.errors import RollError, WorkerDied

if TYPE_CHECKING:
    from roll_core.cluster.group import WorkerGroup

GRACE_S = 5.0
"""After a first failure, how long to wait for the failure that caused it: a dead rank breaks its peers' collectives,
and theirs is often heard of first."""


@dataclass(frozen=True, eq=False)
class Call:
    """A method call on its way on one worker. `ref` is an object reference, or a generator of them."""

    worker: WorkerSpec
    method: str
    ref: Any


COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Ray colours its messages for a terminal."""


class Waiter:
    """Waits for calls while watching every worker of the run, called or not."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.watches: dict[Any, Call] = {}

    def watch(self, group: WorkerGroup) -> None:
        """From now on, the death of any of these workers ends any wait."""
        self.watches |= {call.ref: call for call in group.watches}

    def unwatch(self, group: WorkerGroup) -> None:
        """Their deaths are the matter of whoever calls them."""
        for call in group.watches:
            self.watches.pop(call.ref, None)

    def unwatch_peers(self, group: WorkerGroup) -> None:
        """Where there are several workers, the others take over: the death of one is no reason to end a wait."""
        if len(group) > 1:
            self.unwatch(group)

    def wait(self, calls: Sequence[Call], timeout_s: float | None = None) -> list[Any]:
        """Results of all calls, in their order.

        Raises:
            WorkerDied: a worker ended; names role, rank, cause and log.
            RollError: a worker's own error, or no answer in time, naming who did not answer.
        """
        import ray

        pending = {call.ref: call for call in calls}
        deadline = time.monotonic() + (timeout_s or self.timeout_s)
        while pending:
            ready, _ = ray.wait([*pending, *self.watches], num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RollError(_no_answer(list(pending.values()), timeout_s or self.timeout_s))
            self._check([pending.get(ref) or self.watches[ref] for ref in ready], list(pending.values()))
            for ref in ready:
                pending.pop(ref, None)
        return [ray.get(call.ref) for call in calls]

    def ready(self, calls: Sequence[Call], timeout_s: float | None = None) -> list[Call]:
        """Those calls that have finished, at least one; errors as in `wait`."""
        import ray

        by_ref = {call.ref: call for call in calls}
        done, _ = ray.wait([*by_ref, *self.watches], num_returns=1, timeout=timeout_s or self.timeout_s)
        if not done:
            raise RollError(_no_answer(calls, timeout_s or self.timeout_s))
        more, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0)
        finished = [by_ref.get(ref) or self.watches[ref] for ref in dict.fromkeys([*done, *more])]
        self._check(finished, calls)
        return [call for call in finished if call.ref in by_ref]

    def poll(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        """Those calls that have finished within some seconds, perhaps none; errors as in `wait`."""
        import ray

        by_ref = {call.ref: call for call in calls}
        if not by_ref:
            return []
        done, _ = ray.wait([*by_ref, *self.watches], num_returns=1, timeout=seconds)
        return self.ready(calls) if done else []

    def take(self, stream: Call) -> Any | None:
        """The next item of a call that yields; None when there are no more. Errors as in `wait`."""
        import ray
        from ray.exceptions import RayError

        try:
            return ray.get(next(stream.ref))
        except StopIteration:
            return None
        except (RayError, RollError) as error:
            self._fail([(stream, error)], [])

    def _check(self, finished: Sequence[Call], others: Sequence[Call]) -> None:
        failures = [(call, error) for call in finished if (error := _error_of(call)) is not None]
        if failures:
            self._fail(failures, [call for call in others if call not in finished])

    def _fail(self, failures: list[tuple[Call, BaseException]], others: Sequence[Call]) -> NoReturn:
        if not any(_is_death(error) or _is_for_users(error) for _call, error in failures):
            failures += self._later_failures(others)
        # A death explains the errors it causes in others, so it is the one to report.
        failures.sort(key=lambda failure: not _is_death(failure[1]))
        _report(*failures[0])

    def _later_failures(self, calls: Sequence[Call]) -> list[tuple[Call, BaseException]]:
        import ray

        rest = {call.ref: call for call in calls} | self.watches
        deadline, found = time.monotonic() + GRACE_S, []
        while rest and (left := deadline - time.monotonic()) > 0:
            ready, _ = ray.wait(list(rest), num_returns=1, timeout=left)
            for ref in ready:
                call = rest.pop(ref)
                error = _error_of(call)
                if error is not None:
                    found.append((call, error))
                    if _is_death(error):
                        return found
        return found


def _error_of(call: Call) -> BaseException | None:
    import ray
    from ray.exceptions import RayError

    if isinstance(call.ref, ray.ObjectRefGenerator):
        return None  # A stream's error comes out of the item that `take` gets.
    try:
        ray.get(call.ref, timeout=0)
    except (RayError, RollError) as error:
        found: BaseException = error
        return found
    return None


def _is_death(error: BaseException) -> bool:
    from ray.exceptions import RayActorError, WorkerCrashedError

    return isinstance(error, RayActorError | WorkerCrashedError)


def _is_for_users(error: BaseException) -> bool:
    from ray.exceptions import RayTaskError

    return isinstance(error, RayTaskError) and isinstance(error.cause, RollError)


def _report(call: Call, error: BaseException) -> NoReturn:
    from ray.exceptions import RayTaskError

    who = f"{call.worker.context.role} rank {call.worker.context.rank}"
    during = "" if call.method == "watch" else f"\n  during: {call.method}"
    where = f"\n  log: {call.worker.log_file}{_tail(call.worker.log_file)}"
    if _is_death(error) and "error raised in its creation task" in str(error):
        raise RollError(f"{who} could not start{where}\n{COLOUR.sub('', str(error))}") from error
    if _is_death(error):
        raise WorkerDied(f"{who} died{during}\n  cause: {_cause(error)}{where}") from error
    if isinstance(error, RayTaskError) and isinstance(error.cause, RollError):
        raise error.cause  # The worker said it in words for the user.
    raise RollError(f"{who} failed{during}{where}\n{COLOUR.sub('', str(error))}") from error


def _cause(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "SIGKILL" in line or "exit" in line.lower() or "killed" in line]
    # Ray goes on with a paragraph of what it might have been, the same for every death.
    return (telling or lines or [type(error).__name__])[0].partition(" Some common causes include")[0]


def _tail(log_file: Path, lines: int = 5) -> str:
    try:
        text = log_file.read_text(errors="replace")
    except OSError:
        return " (on that worker's node)"
    last = [line for line in text.splitlines() if line.strip() and not line.startswith(":actor_name:")][-lines:]
    return "".join(f"\n    | {line}" for line in last)


def _no_answer(calls: Sequence[Call], timeout_s: float) -> str:
    names = ", ".join(f"{call.worker.name} ({call.method})" for call in calls)
    return (
        f"no answer within {timeout_s:g} s from: {names}"
        "\n  try: a larger rpc_timeout if the work is that long; else see those workers' logs"
    )
