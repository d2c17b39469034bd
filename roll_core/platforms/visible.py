"""From a device's id, as its node knows it, to its index among the devices a process may see."""

from __future__ import annotations

from collections.abc import Sequence

from roll_core.errors import RollError


def logical_index(visible: Sequence[str] | None, device_id: str | int, variable: str = "") -> int:
    """Position of a device in the list of visible ones; this is the index that torch takes.

    Ids are opaque text and are compared as such: they may be numbers in any order, UUIDs or parts of a device.
    `visible` None means that nothing limits what is seen, and then an id is its own index. `variable` is the
    environment variable the list came from, for the message.

    Raises:
        RollError: the device is not among the visible ones, which the message lists.
    """
    wanted = str(device_id).strip()
    if visible is None:
        if wanted.isdecimal():
            return int(wanted)
        raise RollError(f"device '{wanted}' has no index\n  visible: all, because {variable or 'no variable'} is unset")
    if wanted in visible:
        return list(visible).index(wanted)
    source = f" ({variable})" if variable else ""
    raise RollError(f"device '{wanted}' is not visible to this process\n  visible: {','.join(visible)}{source}")
