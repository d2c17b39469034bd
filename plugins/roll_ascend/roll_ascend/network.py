"""How HCCL reaches other processes and nodes: ports, interface, address."""

from __future__ import annotations

import re
from collections.abc import Iterator

from roll_ascend.machine import Machine
from roll_ascend.values import port_ranges
from roll_core.findings import Level, Seen, well

HOST_PORTS = 16
DEFAULT_BASE_PORT = 60000


def card_ports(machine: Machine) -> Iterator[Seen]:
    """Several roles on one card need several ports of its network interface."""
    name = "HCCL_NPU_SOCKET_PORT_RANGE"
    text = machine.environ.get(name)
    if text is None:
        yield well(f"{name} is not set; workers get auto")
    elif text.strip().isdigit():
        found = f"{name}={text} is one port, and the second role on a card fails to open it"
        yield Seen(Level.WARNING, found, f"export {name}=auto")
    else:
        yield well(f"{name}={text}")


def host_ports(machine: Machine) -> Iterator[Seen]:
    """The host's ports must be free, and kept from programs that take any free port."""
    try:
        ranges, setting = _host_ranges(machine)
    except ValueError:
        return  # A value that is no list of ports is reported among the values.
    if not ranges:
        yield well(f"{setting}: the system deals them")
        return
    shown = ",".join(f"{low}-{high}" for low, high in ranges)
    taken = sorted(port for port in machine.listening if any(low <= port <= high for low, high in ranges))
    if taken:
        found = f"{setting} means ports {shown}, and something listens on {', '.join(map(str, taken))}"
        yield Seen(Level.ERROR, found, "another HCCL_IF_BASE_PORT, or end what listens: ss -tlnp")
        return
    if not _reserved(machine, ranges):
        found = f"ports {shown} are free, but the system may deal them to any program"
        yield Seen(Level.WARNING, found, f"sysctl -w net.ipv4.ip_local_reserved_ports={shown}")
        return
    yield well(f"ports {shown} are free")


def interface(machine: Machine) -> Iterator[Seen]:
    """Nodes find each other through an interface that has the same name on each."""
    text = machine.environ.get("HCCL_SOCKET_IFNAME")
    there = sorted(machine.addresses)
    if text is None:
        if _num_nodes(machine) > 1:
            remedy = f"export HCCL_SOCKET_IFNAME=, alike on every node, one of: {', '.join(there)}"
            yield Seen(Level.WARNING, "several nodes, and HCCL_SOCKET_IFNAME is not set", remedy)
        else:
            yield well("one node: HCCL_SOCKET_IFNAME is not needed")
        return
    if not _matching(text, there):
        remedy = f"one of {', '.join(there)}; the name must be the same on every node"
        yield Seen(Level.ERROR, f"HCCL_SOCKET_IFNAME={text} fits no interface of this node", remedy)
        return
    yield well(f"HCCL_SOCKET_IFNAME={text}: {', '.join(_matching(text, there))}")


def address(machine: Machine) -> Iterator[Seen]:
    """HCCL_IF_IP belongs to one node; copied to another it makes that one unreachable."""
    text = machine.environ.get("HCCL_IF_IP")
    if text is None:
        yield well("HCCL_IF_IP is not set; the interface decides")
        return
    owners = [name for name, addresses in machine.addresses.items() if text in addresses]
    if not owners:
        own = sorted(one for addresses in machine.addresses.values() for one in addresses)
        remedy = f"the address of this node, one of {', '.join(own)}; every node has its own"
        yield Seen(Level.ERROR, f"HCCL_IF_IP={text} is not an address of this node", remedy)
        return
    named = machine.environ.get("HCCL_SOCKET_IFNAME")
    if named and not set(owners) & set(_matching(named, sorted(machine.addresses))):
        found = f"HCCL_IF_IP={text} is an address of {owners[0]}, and HCCL_SOCKET_IFNAME is {named}"
        yield Seen(Level.ERROR, found, "name one interface with both, or unset HCCL_IF_IP")
    elif owners == ["lo"] and _num_nodes(machine) > 1:
        yield Seen(Level.ERROR, f"HCCL_IF_IP={text} cannot be reached from other nodes", "this node's own address")
    else:
        yield well(f"HCCL_IF_IP={text} on {owners[0]}")


def _num_nodes(machine: Machine) -> int:
    text = machine.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdigit() else 1


def _host_ranges(machine: Machine) -> tuple[list[tuple[int, int]], str]:
    text = machine.environ.get("HCCL_HOST_SOCKET_PORT_RANGE")
    if text is not None:
        return ([] if text == "auto" else port_ranges(text)), f"HCCL_HOST_SOCKET_PORT_RANGE={text}"
    base = machine.environ.get("HCCL_IF_BASE_PORT")
    first = DEFAULT_BASE_PORT if base is None else int(base)
    setting = "HCCL's default" if base is None else f"HCCL_IF_BASE_PORT={base}"
    return [(first, first + HOST_PORTS - 1)], setting


def _reserved(machine: Machine, ranges: list[tuple[int, int]]) -> bool:
    dealt = [int(word) for word in machine.text("proc/sys/net/ipv4/ip_local_port_range").split()]
    if len(dealt) != 2:
        return True
    kept = machine.text("proc/sys/net/ipv4/ip_local_reserved_ports")
    reserved = port_ranges(kept) if kept else []
    return all(
        high < dealt[0] or low > dealt[1] or any(first <= low and high <= last for first, last in reserved)
        for low, high in ranges
    )


def _matching(text: str, interfaces: list[str]) -> list[str]:
    """HCCL's rule: names that begin so; `=` asks for the exact name, `^` for all others."""
    mark, names = re.match(r"(\^=|=|\^)?(.*)", text).groups("")  # type: ignore[union-attr]
    parts = [name.strip() for name in names.split(",") if name.strip()]

    def fits(interface: str) -> bool:
        return any(interface == part if "=" in mark else interface.startswith(part) for part in parts)

    return [one for one in interfaces if fits(one) != mark.startswith("^")]
