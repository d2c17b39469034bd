"""The cards that the host gives, and those that a process may use."""

from __future__ import annotations

from collections.abc import Iterator

from roll_ascend.machine import Machine
from roll_core.findings import Level, Seen, well

MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")


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
    """Whether the cards that this process may use are there; what the list itself lacks, `roll doctor` says."""
    text = machine.environ.get("ASCEND_RT_VISIBLE_DEVICES", "")
    ids = [part.strip() for part in text.split(",") if part.strip()]
    cards = {name.removeprefix("davinci") for name in machine.devices}
    strangers = [one for one in ids if one.isdigit() and one not in cards]
    if cards and strangers:
        found = f"ASCEND_RT_VISIBLE_DEVICES={text} names {', '.join(strangers)}, and there is no such card"
        yield Seen(Level.ERROR, found, f"some of {', '.join(sorted(cards, key=int))}")
    elif cards and ids:
        yield well(f"{text}; device_mapping counts within them, from 0 to {len(ids) - 1}")
