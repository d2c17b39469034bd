"""Who is on each device at one time, what they need together, and whether it fits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roll_core.config.memory import Need
from roll_core.errors import ConfigError, Problem

TIGHT = 0.8
"""An estimate beyond this share of a device may be too much: it is off by up to a fifth."""
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class DeviceMemory:
    """Devices with the same roles: what is there at once at most, and why. `peak` is None where a size is not known.

    `known` is what is needed at least.
    """

    devices: tuple[int, ...]
    roles: tuple[str, ...]
    peak: int | None
    known: int
    phase: str
    verdict: str = ""


def parse_size(text: str) -> int:
    """Bytes of a size such as 64GiB, 80GB or 32000MiB.

    Raises:
        ConfigError: it is no size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise ConfigError([Problem("--device-memory", "is no size of memory", text, "64GiB, 80GB or 32000MiB")])
    return int(float(match[1]) * _UNITS[match[2].lower()])


def on_devices(
    needs: Mapping[str, Need],
    placed: Mapping[str, Sequence[int]],
    engines: Sequence[str],
    *,
    takes_turns: bool,
    device_bytes: int | None,
) -> tuple[DeviceMemory, ...]:
    """What each device holds at most.

    Args:
        placed: the devices of each role.
        engines: roles that hold an engine.
        takes_turns: whether engines and trainers that share a device move off it for each other.
    """
    of_device: dict[int, tuple[str, ...]] = {}
    for role, devices in placed.items():
        for device in devices:
            of_device[device] = (*of_device.get(device, ()), role)
    alike: dict[tuple[str, ...], list[int]] = {}
    for device, roles in sorted(of_device.items()):
        alike.setdefault(roles, []).append(device)
    return tuple(
        _together(tuple(devices), roles, needs, set(engines), takes_turns, device_bytes)
        for roles, devices in alike.items()
    )


def _together(
    devices: tuple[int, ...],
    roles: tuple[str, ...],
    needs: Mapping[str, Need],
    engines: set[str],
    takes_turns: bool,
    device_bytes: int | None,
) -> DeviceMemory:
    known = max((_known(needs[role]) for role in roles), default=0)
    if any(needs[role].peak is None for role in roles):
        return DeviceMemory(devices, roles, None, known, "", _verdict(None, known, device_bytes))
    phases = _phases(roles, needs, engines, takes_turns)
    phase, peak = max(phases.items(), key=lambda item: item[1])
    return DeviceMemory(devices, roles, peak, max(known, peak), phase, _verdict(peak, peak, device_bytes))


def _phases(roles: tuple[str, ...], needs: Mapping[str, Need], engines: set[str], takes_turns: bool) -> dict[str, int]:
    """Bytes at the most in each part of a step: trainers work one after another, and engines beside or after them."""
    serving = [role for role in roles if role in engines]
    training = [role for role in roles if role not in engines]
    lasting = sum(needs[role].lasting for role in training)
    engine_peaks = sum(needs[role].peak or 0 for role in serving)
    works = {role: lasting - needs[role].lasting + (needs[role].peak or 0) for role in training}
    if not serving or not training or not takes_turns:
        if not training:
            return {"generation": engine_peaks}
        return {f"{role} at work": works[role] + engine_peaks for role in training}
    return {
        "generation": engine_peaks,
        "new weights": lasting + sum(needs[role].weights or 0 for role in serving),
        **{f"{role} at work": needed for role, needed in works.items()},
    }


def _known(need: Need) -> int:
    parts = (need.weights, need.gradients, need.optimizer, need.cache)
    return need.peak if need.peak is not None else sum(part or 0 for part in parts)


def _verdict(peak: int | None, known: int, device_bytes: int | None) -> str:
    if device_bytes is None:
        return "memory of a device unknown"
    if known > device_bytes:
        return "does not fit"
    if peak is None:
        return "unknown"
    return "tight" if peak > TIGHT * device_bytes else "fits"
