"""The processes in which rewards score: a nursery that loads the reward once, and the children it forks.

A child that hangs or crashes is killed and replaced by a fork in milliseconds, because what it needs is already
loaded in the nursery. The nursery runs no scoring itself and has a single thread, so forking it is safe. It ends when
its parent closes the control socket or dies, and takes the children with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import resource
import signal
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import RollError
from roll_core.rewards.base import Reward
from roll_core.rewards.builtin import make_reward
from roll_core.rewards.checked import score_checked

_LENGTH = struct.Struct("!Q")
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Setup:
    """What the nursery has to load, and for whom."""

    spec: str
    options: dict[str, Any] = field(default_factory=dict)
    sys_path: list[str] = field(default_factory=list)
    memory_limit_bytes: int | None = None
    parent_pid: int = 0


@dataclass(frozen=True)
class Fork:
    """Fork a child. One byte that carries the child's socket follows; the answer is its process id."""


@dataclass(frozen=True)
class End:
    """Kill a child's process group; the answer is the child's wait status, or None if it is not ours."""

    pid: int


@dataclass(frozen=True)
class SelfTest:
    """To a child: run the reward's self-test; the answer is its list of sentences."""


def send_message(connection: socket.socket, message: object) -> None:
    """Send one pickled message, length first."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive_message(connection: socket.socket) -> Any:
    """Receive one message.

    Raises:
        EOFError: the other side closed the socket.
    """
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    return pickle.loads(_receive(connection, length))


def _receive(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise EOFError("the other process closed the connection")
        parts += part
    return bytes(parts)


def main(control_fd: int) -> None:
    """Run the nursery on an inherited control socket until the parent is gone."""
    control = socket.socket(fileno=control_fd)
    setup = receive_message(control)
    _watch_parent(setup.parent_pid)
    sys.path[:] = setup.sys_path
    try:
        reward = make_reward(setup.spec, setup.options)
        reward.warm_up()
    except RollError as error:
        send_message(control, str(error))
        return
    except BaseException as error:
        send_message(control, f"reward '{setup.spec}' cannot be made: {type(error).__name__}: {error}")
        return
    limit = setup.memory_limit_bytes if setup.memory_limit_bytes is not None else reward.memory_limit_bytes
    gc.collect()
    gc.freeze()
    send_message(control, None)
    children: set[int] = set()
    try:
        _serve(control, reward, setup.spec, limit, children)
    except (EOFError, OSError):
        pass
    finally:
        for pid in children:
            _kill(pid)


def _watch_parent(parent_pid: int) -> None:
    # The control socket tells most ends of the parent, but not while a reward's import hangs, nor when some other
    # process inherited the parent's end of it. PR_SET_PDEATHSIG would fire when the thread that started us ends.
    def look(*_: object) -> None:
        if os.getppid() != parent_pid:
            os._exit(0)

    look()
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)


def _serve(control: socket.socket, reward: Reward, name: str, limit: int | None, children: set[int]) -> None:
    nursery = os.getpid()
    while True:
        request = receive_message(control)
        if isinstance(request, Fork):
            _, fds, _, _ = socket.recv_fds(control, 1, 1)
            pid = os.fork()
            if pid == 0:
                control.close()
                _run_child(socket.socket(fileno=fds[0]), reward, name, limit, nursery)
            os.close(fds[0])
            children.add(pid)
            send_message(control, pid)
        elif isinstance(request, End):
            status = None
            if request.pid in children:
                children.remove(request.pid)
                status = _kill(request.pid)
            send_message(control, status)


def _kill(pid: int) -> int:
    # The child is unreaped until here, so its number cannot have gone to another process.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _run_child(connection: socket.socket, reward: Reward, name: str, limit: int | None, nursery: int) -> None:
    exit_code = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # A group of its own: whatever the reward starts is killed along with it.
        os.setpgid(0, 0)
        _die_with(nursery)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        while True:
            request = receive_message(connection)
            if isinstance(request, SelfTest):
                send_message(connection, reward.self_test())
                continue
            for sample in request:
                send_message(connection, score_checked(reward, name, sample))
    except (EOFError, OSError):
        exit_code = 0
    finally:
        os._exit(exit_code)


def _die_with(nursery: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nursery:
        os._exit(0)
