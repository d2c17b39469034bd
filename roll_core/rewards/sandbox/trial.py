"""One program before its judge: a process for each, a socket between them, and a deadline over both."""

from __future__ import annotations

import json
import os
import select
import signal
import site
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from roll_core.rewards.sandbox import limits as bounds
from roll_core.rewards.sandbox import namespaces, wire
from roll_core.rewards.sandbox.jail import Ended, Jail
from roll_core.rewards.sandbox.judge import Outcome, run_tests
from roll_core.rewards.sandbox.languages import Language
from roll_core.rewards.sandbox.limits import Limits
from roll_core.rewards.sandbox.remote import Program
from roll_core.rewards.sandbox.wire import Lost

PYTHON = (sys.executable, "-I", "-S", "-B", "-X", "utf8", "-X", "int_max_str_digits=0")
PACKAGES = tuple(path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir())
"""Folders of installed packages, for programs that use them. Their .pth files, which run code, are left out."""
_GUEST_FILES = (Path(wire.__file__).with_name("guest.py"), Path(wire.__file__))
# exit() and quit() come from a module that -S leaves out, and programs end by them.
_START = (
    "import sys, runpy, site; site.setquit(); sys.path += sys.argv[1:]; sys.argv[:] = ['program.py'];"
    "runpy.run_path('program.py', {}, '__main__')"
)


_DEEPEST_CALLS = 1000


class TooSlow(Exception):
    """The program or its tests did not end in time."""


def judge_program(jail: Jail, text: str, limits: Limits, judged: Callable[[Program], Outcome]) -> Outcome:
    """Load a Python program in a jail, and let a process of its own judge it.

    Raises:
        TooSlow: the limits' wall_s was over.
        JailBroken: the jail could not be started.
    """
    ours, theirs = socket.socketpair()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        command = [*PYTHON, _GUEST_FILES[0].name, *PACKAGES]
        inmate = jail.start(command, limits, (null, null, null, theirs.fileno()), _GUEST_FILES)
    finally:
        theirs.close()
        os.close(null)
    try:

        def work() -> Outcome:
            try:
                program = Program(ours, text)
            except Lost as lost:
                return Outcome(failure=f"the program ended while it was loaded: {lost}")
            except BaseException as error:
                return Outcome(failure=f"the program cannot be loaded: {type(error).__name__}: {error}"[:300])
            return judged(program)

        return apart(work, limits, keep=ours.fileno())
    finally:
        ours.close()
        inmate.kill()


def judge_text(response: str, codes: Sequence[str], limits: Limits) -> Outcome:
    """Run test codes about a text, in a process of its own. `{response}` in a code stands for the text."""
    filled = [code.replace("{response}", repr(response)) for code in codes]
    return apart(lambda: run_tests(None, filled, {"response": response}), limits)


def apart(work: Callable[[], Outcome], limits: Limits, keep: int = -1) -> Outcome:
    """Do work in a fork of this process, under limits.

    Raises:
        TooSlow: it did not end within wall_s.
    """
    c = namespaces.libc()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            namespaces.end_with_parent(c)
            namespaces.hide_memory(c)
            # Whatever this process allowed itself: nested data of the program must not end the judge's.
            sys.setrecursionlimit(_DEEPEST_CALLS)
            os.close(read)
            bounds.apply(replace(limits, processes=10_000))
            body = json.dumps(asdict(work())).encode()
        except BaseException as error:
            body = json.dumps(asdict(Outcome(failure=f"the tests ended with {type(error).__name__}"))).encode()
        with suppress(BaseException):
            os.write(write, body)
        os._exit(0)
    os.close(write)
    try:
        body = _read(read, limits.wall_s)
    finally:
        os.close(read)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return Outcome(**json.loads(body)) if body else Outcome(failure="the tests ended without a result")


def _read(descriptor: int, seconds: float) -> bytes:
    deadline, body = time.monotonic() + seconds, b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TooSlow(f"it ran longer than {seconds:g} s")
        part = os.read(descriptor, 1 << 16)
        if not part:
            return body
        body += part


@contextmanager
def runner(jail: Jail, text: str, language: Language | None, limits: Limits) -> Iterator[Callable[[str], Ended]]:
    """How to run a program on an input: Python where the language is None, else compiled first where it must be.

    Raises:
        JailBroken: the jail could not be started.
    """
    with tempfile.TemporaryDirectory(prefix="roll-program-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / (language.file if language is not None else "program.py")
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        file.chmod(0o644)
        command: list[str] = [*PYTHON, "-c", _START, *PACKAGES]
        if language is not None:
            command = ["/bin/sh", "-c", _script(language)]

        def run(stdin: str) -> Ended:
            return jail.run(command, limits, stdin.encode(errors="surrogatepass"), (file,))

        yield run


def _script(language: Language) -> str:
    steps = [" ".join(language.compile) + " 1>&2"] if language.compile else []
    return " && ".join([*steps, "exec " + " ".join(language.run)])


def call_function(program: Program, function: str, arguments: Any) -> Any:
    """Call a function of a program, or the method of that name of its class Solution."""
    if function in program.names:
        return program.name(function)(*arguments)
    if "Solution" in program.names:
        return getattr(program.name("Solution")(), function)(*arguments)
    raise NameError(f"the program has no function '{function}'")
