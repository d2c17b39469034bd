"""Where programs run: in the strongest isolation that this machine offers, decided once and said."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import psutil

from roll_core.rewards.sandbox import limits as bounds
from roll_core.rewards.sandbox import namespaces, users
from roll_core.rewards.sandbox.limits import Limits

Kind = Literal["bubblewrap", "namespaces", "limits"]

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": namespaces.HOME,
    "TMPDIR": namespaces.HOME,
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_ENDING_S = 1.0


class JailBroken(Exception):
    """The jail itself failed, so nothing is known about the program."""


@dataclass(frozen=True)
class Ended:
    """How a program ended. `code` is its exit code, or minus the signal; `why` is "" unless a limit ended it."""

    code: int
    stdout: bytes
    stderr: bytes
    why: str = ""


class Inmate:
    """A program in its jail; `kill` ends it and all that it started."""

    def __init__(self, pid: int, folder: Path | None, user: int | None = None) -> None:
        self.pid, self._folder, self._user = pid, folder, user
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, seconds: float) -> int | None:
        """As `poll`, but gives it time to end."""
        deadline = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        return self._status

    def kill(self) -> None:
        """End it. Outside namespaces its descendants are looked for, wherever they hid."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self._user is not None:
            users.end_all(self._user)
        elif self._folder is not None:
            _sweep(self._folder)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self.wait(_ENDING_S)


class Jail:
    """Starts programs in isolation of one kind.

    Args:
        kind: the kind wanted; None takes the strongest that works here.

    Raises:
        JailBroken: a kind was asked for that does not work here.
    """

    def __init__(self, kind: Kind | None = None) -> None:
        self._libc = namespaces.libc()
        self._root = _mount_point()
        self._lends_users = os.geteuid() == 0
        self._numbers = count()
        self.kind, self.weaker = self._choose(kind)

    @property
    def warning(self) -> str:
        """What is not isolated; empty where everything is."""
        if self.kind != "limits":
            return ""
        is_root = os.geteuid() == 0 and not self._lends_users
        owned = "read every file" if self._lends_users else "read and write this user's files"
        unbound = " As root's, their processes cannot be counted." if is_root else ""
        return (
            f"programs run without isolation: they can use the network, {owned} and see "
            f"processes; only time, memory and number of files are limited ({self.weaker}).{unbound} "
            "Install bubblewrap, or allow unprivileged user namespaces"
        )

    def run(self, command: Sequence[str], limits: Limits, stdin: bytes = b"", files: Sequence[Path] = ()) -> Ended:
        """Run a command to its end, or to that of a limit. `files` appear in its home, read-only.

        Raises:
            JailBroken: it could not be started.
        """
        with tempfile.TemporaryFile() as source:
            source.write(stdin)
            source.seek(0)
            out, out_end = os.pipe()
            err, err_end = os.pipe()
            try:
                inmate = self.start(command, limits, (source.fileno(), out_end, err_end), files)
            except BaseException:
                os.close(out)
                os.close(err)
                raise
            finally:
                os.close(out_end)
                os.close(err_end)
        try:
            return _collect(inmate, out, err, limits)
        finally:
            inmate.kill()
            os.close(out)
            os.close(err)

    def start(
        self, command: Sequence[str], limits: Limits, descriptors: Sequence[int], files: Sequence[Path] = ()
    ) -> Inmate:
        """Start a command whose descriptors 0, 1, ... are those given, and which has no others.

        Raises:
            JailBroken: it could not be started.
        """
        told, tell = os.pipe()
        folder = Path(tempfile.mkdtemp(prefix="roll-home-")) if self.kind == "limits" else None
        user = users.number(next(self._numbers)) if self.kind == "limits" and self._lends_users else None
        pid = os.fork()
        if pid == 0:
            try:
                os.close(told)
                tell = _arrange([*descriptors, tell])
                self._become(command, limits, tell, files, folder, user)
            except BaseException as error:
                with contextlib.suppress(BaseException):
                    os.write(tell, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(1)
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            problem = pipe.read().decode(errors="replace")
        inmate = Inmate(pid, folder, user)
        if problem:
            inmate.kill()
            raise JailBroken(f"the program could not be started in its jail ({self.kind}): {problem}")
        return inmate

    def _become(
        self,
        command: Sequence[str],
        limits: Limits,
        tell: int,
        files: Sequence[Path],
        folder: Path | None,
        user: int | None,
    ) -> None:
        os.setpgid(0, 0)
        namespaces.end_with_parent(self._libc)
        if self.kind == "limits":
            assert folder is not None
            for file in files:
                shutil.copy(file, folder)
            os.chdir(folder)
            if user is not None:
                users.become(self._libc, user, folder)
                namespaces.end_with_parent(self._libc)  # Again, as a change of user undoes it.
            bounds.apply(limits)
            os.execve(command[0], list(command), ENVIRONMENT | {"HOME": str(folder), "TMPDIR": str(folder)})
        if self.kind == "bubblewrap":
            wrapped = _bubblewrap(command, files)
            bounds.apply(limits)
            os.execve(wrapped[0], wrapped, ENVIRONMENT)
        namespaces.separate(self._libc)
        pid = os.fork()
        if pid:
            os.closerange(0, tell + 1)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code < 0:
                # The same end as the program's, so that whoever waits sees it.
                with contextlib.suppress(OSError):
                    signal.signal(-code, signal.SIG_DFL)
                os.kill(os.getpid(), -code)
            os._exit(code)
        namespaces.end_with_parent(self._libc)
        namespaces.move_in(self._libc, self._root, namespaces.system_folders(), limits.disk_bytes, files)
        namespaces.give_up_rights(self._libc)
        namespaces.end_with_parent(self._libc)  # Again, as a change of user undoes it.
        bounds.apply(limits)
        os.execve(command[0], list(command), ENVIRONMENT)

    def _choose(self, wanted: Kind | None) -> tuple[Kind, str]:
        problems = []
        kinds: tuple[Kind, ...] = ("bubblewrap", "namespaces", "limits") if wanted is None else (wanted,)
        for kind in kinds:
            self.kind = kind
            problem = self._problem()
            if problem and kind == "limits" and self._lends_users:
                problems.append(f"a user of their own: {problem}")
                self._lends_users = False
                problem = self._problem()
            if not problem:
                return kind, "; ".join(problems)
            problems.append(f"{kind}: {problem}")
        raise JailBroken(f"no program can be run: {'; '.join(problems)}")

    def _problem(self) -> str:
        """Why no program can be run in the kind of now; empty where one can."""
        try:
            ended = self.run([sys.executable, "-I", "-S", "-c", "print(6 * 7)"], Limits())
        except (JailBroken, OSError) as error:
            return str(error)
        return (
            "" if ended.stdout == b"42\n" else ended.stderr.decode(errors="replace").strip()[-200:] or str(ended.code)
        )


def _mount_point() -> Path:
    """The empty folder at which jails are made, each in mounts of its own: one for all processes of a user."""
    path = Path(tempfile.gettempdir()) / f"roll-jail-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o755)
    if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid():
        raise JailBroken(f"{path} is not a folder of this user's; remove it")
    return path


def _sweep(home: Path) -> None:
    """End whatever left the program's process group: all that it started has its home."""
    for _again in range(3):
        strays = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(home):
                    process.kill()
                    strays.append(process)
        if not strays:
            return


def _arrange(descriptors: Sequence[int]) -> int:
    """Let the descriptors be 0, 1, 2, ... and close all others; the last one's number, which exec closes."""
    apart = [os.dup2(one, 100 + index, inheritable=False) for index, one in enumerate(descriptors)]
    for index, one in enumerate(apart):
        os.dup2(one, index, inheritable=index < len(apart) - 1)
    os.closerange(len(apart), os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 65536 else 65536)
    return len(apart) - 1


def _bubblewrap(command: Sequence[str], files: Sequence[Path]) -> list[str]:
    found = shutil.which("bwrap")
    if found is None:
        raise FileNotFoundError("bwrap is not installed")
    wrapped = [found, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--tmpfs", "/tmp"]
    for path in namespaces.system_folders():
        wrapped += (
            ["--symlink", str(path.readlink()), str(path)] if path.is_symlink() else ["--ro-bind", *2 * [str(path)]]
        )
    wrapped += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", namespaces.HOME]
    for file in files:
        wrapped += ["--ro-bind", str(file), f"{namespaces.HOME}/{file.name}"]
    return [*wrapped, "--chdir", namespaces.HOME, "--", *command]


def _collect(inmate: Inmate, out: int, err: int, limits: Limits) -> Ended:
    kept: dict[int, bytearray] = {out: bytearray(), err: bytearray()}
    deadline = time.monotonic() + limits.wall_s
    waiting, why = [out, err], ""
    while waiting and not why:
        left = deadline - time.monotonic()
        ready = select.select(waiting, [], [], max(0.0, left))[0]
        if not ready:
            why = f"it ran longer than {limits.wall_s:g} s"
        for one in ready:
            part = os.read(one, 1 << 16)
            kept[one] += part
            if not part:
                waiting.remove(one)
            if len(kept[one]) > limits.output_bytes:
                why = f"it wrote more than {limits.output_bytes} bytes"
    code = inmate.wait(max(0.0, deadline - time.monotonic())) if not why else None
    if code is None:
        why = why or f"it ran longer than {limits.wall_s:g} s"
        inmate.kill()
        code = inmate.poll()
    return Ended(-signal.SIGKILL if code is None else code, bytes(kept[out]), bytes(kept[err]), why)
