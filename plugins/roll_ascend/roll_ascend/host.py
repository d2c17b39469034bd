"""What the host or the container gives: device files, open files, shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from roll_ascend.machine import Machine, Seen, well
from roll_core.findings import Level

MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
OPEN_FILES = 65536
SHARED_GIB = 8


def devices(machine: Machine) -> Iterator[Seen]:
    """Cards, and the files through which they are managed; a container has those that it was given."""
    cards = machine.devices
    missing = [name for name in MANAGERS if not (machine.root / "dev" / name).exists()]
    if not cards:
        yield Seen(
            Level.ERROR,
            "no device file /dev/davinci*",
            "docker run --device /dev/davinci0 ... for each card; npu-smi info on the host shows which there are",
        )
    elif missing:
        flags = " ".join(f"--device /dev/{name}" for name in missing)
        yield Seen(Level.ERROR, f"{len(cards)} cards without {', '.join(missing)}", f"docker run {flags} ...")
    elif machine.chip == "A3" and len(cards) < 16:
        yield Seen(
            Level.WARNING,
            f"{len(cards)} cards of an Atlas A3, which has 16",
            "docker run --device /dev/davinci0 ... --device /dev/davinci15, if this container should have all",
        )
    else:
        yield well(f"{len(cards)} cards, {cards[0]} to {cards[-1]}")


def visible(machine: Machine) -> Iterator[Seen]:
    """Which of them this process may use."""
    text = machine.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    if text is None:
        yield well("all: ASCEND_RT_VISIBLE_DEVICES is not set")
        return
    ids = [part.strip() for part in text.split(",") if part.strip()]
    cards = {name.removeprefix("davinci") for name in machine.devices}
    strangers = [one for one in ids if one.isdigit() and cards and one not in cards]
    if not ids:
        yield Seen(Level.ERROR, "ASCEND_RT_VISIBLE_DEVICES is empty, which hides every card", "unset it")
    elif strangers or len(set(ids)) < len(ids):
        what = f"names {', '.join(strangers)}, and there is no such card" if strangers else "names a card twice"
        yield Seen(Level.ERROR, f"ASCEND_RT_VISIBLE_DEVICES={text} {what}", f"cards here: {', '.join(sorted(cards))}")
    else:
        yield well(f"ASCEND_RT_VISIBLE_DEVICES={text}; device_mapping counts within it, from 0 to {len(ids) - 1}")


def open_files(machine: Machine) -> Iterator[Seen]:
    """Each worker holds many sockets and shared files."""
    if machine.open_files >= OPEN_FILES:
        yield well("enough")
        return
    level = Level.ERROR if machine.open_files <= 1024 else Level.WARNING
    remedy = f"ulimit -n {OPEN_FILES}, or docker run --ulimit nofile={OPEN_FILES}:{OPEN_FILES}"
    yield Seen(level, f"{machine.open_files} files may be open, and {OPEN_FILES} are advised", remedy)


def shared_memory(machine: Machine) -> Iterator[Seen]:
    """Ray and the engine's processes pass data through /dev/shm; docker gives 64 MB of it."""
    if machine.shared_bytes is None:
        yield Seen(Level.WARNING, "no /dev/shm", "docker run --ipc=host")
        return
    size = machine.shared_bytes / 2**30
    if size < SHARED_GIB:
        remedy = "docker run --ipc=host, or --shm-size 64g"
        yield Seen(Level.WARNING, f"/dev/shm has {size:.2f} GiB, and {SHARED_GIB} GiB are the least advised", remedy)
        return
    yield well(f"/dev/shm has {size:.0f} GiB")
