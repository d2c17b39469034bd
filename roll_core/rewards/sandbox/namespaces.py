"""A jail out of Linux namespaces: no network, no other process, a read-only system and an empty home.

For machines without bubblewrap. Everything here runs in a forked process that is about to become the program.
Sources: the manual pages user_namespaces(7), mount_namespaces(7), pid_namespaces(7), pivot_root(2), prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

NOBODY = 65534
_NEW_USER, _NEW_MOUNT, _NEW_PID = 0x10000000, 0x00020000, 0x20000000
_NEW_NET, _NEW_IPC, _NEW_HOSTNAME = 0x40000000, 0x08000000, 0x04000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 32, 4096, 16384, 1 << 18
_DETACH = 2
_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _NO_NEW_PRIVILEGES = 1, 4, 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
# Flags of a mount that whoever has no rights over it may not take away, by their number in statvfs.
_KEPT = ((os.ST_NOSUID, _NO_SUID), (os.ST_NODEV, _NO_DEVICES), (os.ST_NOEXEC, _NO_EXEC), (os.ST_NOATIME, 1024))
_DEVICES = ("null", "zero", "random", "urandom")
HOME = "/box"


def system_folders() -> list[Path]:
    """What a program needs to see of this machine: the system's tools and libraries, and this Python."""
    wanted = ["/usr", "/bin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf"]
    wanted += [sys.base_prefix, sys.prefix]
    return [path for path in dict.fromkeys(map(Path, wanted)) if path.exists() or path.is_symlink()]


def libc() -> ctypes.CDLL:
    """The C library, loaded; call it before forking."""
    return ctypes.CDLL(None, use_errno=True)


def end_with_parent(c: ctypes.CDLL) -> None:
    """Let the kernel kill this process when the one that forked it ends."""
    _check(c.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL), "prctl")


def hide_memory(c: ctypes.CDLL) -> None:
    """No other process of the same user may read this one's memory."""
    _check(c.prctl(_SET_DUMPABLE, 0), "prctl")


def separate(c: ctypes.CDLL) -> None:
    """Leave the processes, the network and the mounts of this machine; the next fork is process 1.

    Raises:
        OSError: the machine does not allow it.
    """
    parts = _NEW_MOUNT | _NEW_PID | _NEW_NET | _NEW_IPC | _NEW_HOSTNAME
    if os.geteuid() == 0 and c.unshare(parts) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    _check(c.unshare(_NEW_USER | parts), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")


def give_up_rights(c: ctypes.CDLL) -> None:
    """Become nobody, for good. The kernel exempts root from the limit on processes."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _check(c.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")


def move_in(c: ctypes.CDLL, root: Path, folders: Sequence[Path], disk_bytes: int, files: Sequence[Path] = ()) -> None:
    """Make the jail's own file system at an empty folder, and go there. `files` appear in the home, read-only.

    Raises:
        OSError: the machine does not allow it.
    """
    _mount(c, None, "/", None, _RECURSIVE | _PRIVATE)
    _mount(c, "tmpfs", root, "tmpfs", _NO_SUID | _NO_DEVICES, "size=1m,mode=755")
    for name in ("proc", "dev", "tmp", HOME[1:]):
        (root / name).mkdir()
    for name in ("tmp", HOME[1:]):
        _mount(c, "tmpfs", root / name, "tmpfs", _NO_SUID | _NO_DEVICES, f"size={disk_bytes},mode=777")
    for folder in folders:
        _show(c, folder, root)
    for name in _DEVICES:
        (root / "dev" / name).touch()
        _mount(c, f"/dev/{name}", root / "dev" / name, None, _BIND)
    # Containers that mask parts of /proc do not allow it; Python runs without.
    with contextlib.suppress(PermissionError):
        _mount(c, "proc", root / "proc", "proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)
    for file in files:
        target = root / HOME[1:] / file.name
        target.touch()
        _mount(c, file, target, None, _BIND)
        _freeze(c, target)
    _mount(c, None, root, None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES)
    os.chdir(root)
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"no number of pivot_root is known for {platform.machine()}")
    _check(c.syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    _check(c.umount2(b".", _DETACH), "umount2")
    os.chdir(HOME)


def _show(c: ctypes.CDLL, path: Path, root: Path) -> None:
    target = root / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(path.readlink())
        return
    if target.exists():
        return  # Inside a folder that is shown already.
    if path.is_dir():
        target.mkdir()
    else:
        target.touch()
    _mount(c, path, target, None, _BIND | _RECURSIVE)
    _freeze(c, target)


def _freeze(c: ctypes.CDLL, target: Path) -> None:
    kept = os.statvfs(target).f_flag
    flags = _READ_ONLY | _NO_SUID | _NO_DEVICES
    for shown, flag in _KEPT:
        flags |= flag if kept & shown else 0
    _mount(c, None, target, None, _REMOUNT | _BIND | flags)


def _mount(c: ctypes.CDLL, what: object, where: object, kind: str | None, flags: int, options: str = "") -> None:
    source = None if what is None else os.fsencode(str(what))
    code = c.mount(
        source,
        os.fsencode(str(where)),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(code, f"mount {what or kind or ''} at {where}")


def _check(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
