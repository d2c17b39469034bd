"""The processes in which environments live: each has a thread, carries out what it is told there, and reports.

Nothing that an environment does short of hanging or ending its process gets out of here as anything but a `Fault`.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import numbers
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from roll_core.envs.base import BUILTIN_ENVIRONMENTS, make_environment
from roll_core.objects import resolve_object
from roll_core.rewards.child import receive_message, send_message
from roll_core.rollout.environments import Act, Begin, Fault, FaultKind, Kind, Observed

MAX_CHARACTERS = 200_000
"""Of one observation. What is longer fits no model's context, and would only fill memory on its way."""
_REASON_LIMIT = 1000
_CLOSING_S = 1.5
_PR_SET_PDEATHSIG = 1

AGGREGATIONS = ("mean", "sum", "min", "max", "last", "first")


@dataclass(frozen=True)
class Setup:
    """What a process needs to know: where modules are found, kinds by tag, and whose child it is."""

    sys_path: list[str]
    kinds: Mapping[str, Kind]
    parent_pid: int


class _Bad(Exception):
    """What an environment returned cannot be used."""

    def __init__(self, kind: FaultKind, reason: str) -> None:
        super().__init__(reason)
        self.kind: FaultKind = kind


def main(descriptor: int) -> None:
    """Serve on an inherited socket until the parent is gone."""
    connection = socket.socket(fileno=descriptor)
    setup = receive_message(connection)
    _die_with(setup.parent_pid)
    sys.path[:] = setup.sys_path
    for kind in setup.kinds.values():
        # Imported now, so that deadlines are for environments alone; what fails is told by the first order.
        with contextlib.suppress(Exception):
            resolve_object(kind.spec, BUILTIN_ENVIRONMENTS, "environment")
    send_message(connection, None)
    homes = Homes(setup.kinds)
    threads: dict[int, _SlotThread] = {}
    sending = threading.Lock()
    with contextlib.suppress(EOFError, OSError):
        while True:
            order = receive_message(connection)
            if order.slot not in threads:
                threads[order.slot] = _SlotThread(order.slot, homes, connection, sending)
            threads[order.slot].orders.put(order)
    for thread in threads.values():
        thread.orders.put(None)
    until = time.monotonic() + _CLOSING_S
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    sys.stdout.flush()
    sys.stderr.flush()
    # An environment that does not come to an end keeps its thread, and would keep the process.
    os._exit(0)


class _SlotThread(threading.Thread):
    """Carries out the orders of one slot: some environments may be used from one thread only."""

    def __init__(self, slot: int, homes: Homes, connection: socket.socket, sending: threading.Lock) -> None:
        super().__init__(name=f"environment {slot}", daemon=True)
        self.slot, self.homes, self.connection, self.sending = slot, homes, connection, sending
        self.orders: SimpleQueue[Begin | Act | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while (order := self.orders.get()) is not None:
                answer = self.homes.carry_out(order)
                with self.sending:
                    send_message(self.connection, (self.slot, answer))
        self.homes.drop(self.slot)


class Homes:
    """Environments by slot, and the tag of each."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = kinds
        self.homes: dict[int, tuple[str, Any]] = {}

    def carry_out(self, order: Begin | Act) -> Observed | Fault:
        """The answer of the slot's environment. One with a fault is gone; the next `Begin` makes another."""
        phase: FaultKind = "step" if isinstance(order, Act) else "reset"
        try:
            if isinstance(order, Act):
                return stepped(self.homes[order.slot][1].step(order.action))
            observed = began(self._environment(order).reset(order.seed))
            for action in order.actions:
                observed = stepped(self.homes[order.slot][1].step(action))
            if order.expected is not None and observed.text != order.expected:
                reason = "played again with the same seed and actions, it came out otherwise"
                raise _Bad("not_reproducible", reason)
            return observed if order.then is None else stepped(self.homes[order.slot][1].step(order.then))
        except _Bad as error:
            fault = Fault(error.kind, str(error))
        # Whatever an environment raises is its own matter, SystemExit included: it ends its episode only.
        except BaseException as error:
            kind = "make" if isinstance(order, Begin) and order.slot not in self.homes else phase
            fault = Fault(kind, _told(error))
        self.drop(order.slot)
        return fault

    def _environment(self, order: Begin) -> Any:
        tag, environment = self.homes.get(order.slot, ("", None))
        if environment is None or tag != order.tag:
            self.drop(order.slot)
            kind = self.kinds[order.tag]
            environment = make_environment(kind.spec, kind.options)
            self.homes[order.slot] = order.tag, environment
        return environment

    def drop(self, slot: int) -> None:
        """Close the environment of a slot, if it has one."""
        _, environment = self.homes.pop(slot, ("", None))
        close = getattr(environment, "close", None)
        if close is not None:
            try:
                close()
            except BaseException as error:
                print(f"an environment's close() raised {_told(error)}", file=sys.stderr)


def began(returned: object) -> Observed:
    """What `reset` returned, checked."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise _Bad("bad_return", f"reset returned {_shown(returned)}; it must return (observation, info)")
    text, info = returned
    info = _mapping(info, "info")
    return Observed(
        _text(text), instruction=_text(info.get("env_instruction") or ""), suffix=_text(info.get("suffix") or "")
    )


def stepped(returned: object) -> Observed:
    """What `step` returned, checked."""
    if not isinstance(returned, tuple) or len(returned) != 5:
        rule = "it must return (observation, reward, terminated, truncated, info)"
        raise _Bad("bad_return", f"step returned {_shown(returned)}; {rule}")
    text, reward, terminated, truncated, info = returned
    info = _mapping(info, "info")
    metrics = _mapping(info.get("metrics") or {}, "info['metrics']")
    aggregation = _mapping(info.get("metrics_agg_mode") or {}, "info['metrics_agg_mode']")
    unknown = [mode for mode in aggregation.values() if mode not in AGGREGATIONS]
    if unknown:
        raise _Bad("bad_return", f"no metrics_agg_mode named {_shown(unknown[0])}; there are: {AGGREGATIONS}")
    return Observed(
        text=_text(text),
        reward=_number(reward, "reward"),
        terminated=bool(terminated),
        truncated=bool(truncated),
        suffix=_text(info.get("suffix") or ""),
        is_tool=bool(info.get("use_tool")),
        metrics={str(name): _number(value, f"metric {name}") for name, value in metrics.items()},
        aggregation={str(name): str(mode) for name, mode in aggregation.items()},
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Bad("bad_return", f"the observation is {_shown(value)}, not text")
    if len(value) > MAX_CHARACTERS:
        raise _Bad("too_long", f"a text of {len(value)} characters; at most {MAX_CHARACTERS} are taken")
    # Lone surrogates can be in a Python string, and in no file and no tokenizer.
    return value.encode("utf-8", "replace").decode()


def _number(value: object, name: str) -> float:
    if not isinstance(value, numbers.Real) and not hasattr(value, "__float__"):
        raise _Bad("bad_return", f"the {name} is {_shown(value)}, not a number")
    number = float(value)
    if not math.isfinite(number):
        raise _Bad("not_finite", f"the {name} is {number}")
    return number


def _mapping(value: object, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _Bad("bad_return", f"{name} is {_shown(value)}, not a mapping")
    return value


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"a value whose repr() raises {type(error).__name__}"
    return f"{text[:80]} ({type(value).__name__})"


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    try:
        text = str(error)
    except Exception:
        text = "(no text)"
    return f"{type(error).__name__}: {text[:600]}{where}"[:_REASON_LIMIT]


def _die_with(parent_pid: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)
