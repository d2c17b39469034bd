"""Everything that is looked at on a machine, by the subject that findings name.

What every machine has, `roll doctor` looks at by itself: open files, shared memory, Ray's ports, the list of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roll_ascend import cann, host, network, settings, versions
from roll_ascend.machine import Machine
from roll_core.findings import Finding, Seen

CHECKS: dict[str, Callable[[Machine], Iterator[Seen]]] = {
    "devices": host.devices,
    "visible cards": host.visible,
    "driver": cann.driver,
    "CANN": cann.toolkit,
    "chip and image": cann.chip,
    "version matrix": versions.stack,
    "torch and torch-npu": versions.torch_pair,
    "vllm and vllm-ascend": versions.vllm_pair,
    "triton": versions.triton,
    "flash_attn": versions.flash_attn,
    "HCCL ports of a card": network.card_ports,
    "HCCL ports of the host": network.host_ports,
    "HCCL interface": network.interface,
    "HCCL address": network.address,
    "HCCL timeouts": settings.timeouts,
    "values of variables": settings.values,
    "unread variables": settings.unread,
    "NZ layout": settings.weight_layout,
    "expandable segments": settings.segments,
    "task queue": settings.queue,
    "debugging": settings.debugging,
}


def findings(machine: Machine) -> list[Finding]:
    """What every check says of a machine; one that has nothing to look at says nothing."""
    return [
        Finding(seen.level, subject, seen.found, seen.remedy)
        for subject, look in CHECKS.items()
        for seen in look(machine)
    ]
