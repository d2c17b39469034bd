"""Ports that a cluster needs, this machine's name, and proxies that come between its processes."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator, Mapping

from roll_core.findings import Finding, Level

RAY_PORTS = {
    "Ray head": ("MASTER_PORT", 6379, "ray start --head --port=<another>"),
    "Ray dashboard": ("DASHBOARD_PORT", 8265, "ray start --head --dashboard-port=<another>"),
    "Ray client server": ("", 10001, "ray start --head --ray-client-server-port=<another>"),
}
"""Ports of a head that is started by hand: the variable that moves each, its default, and the option that moves it."""
_PRIVATE = "a run that joins no cluster takes free ports by itself and does not mind"
_RESOLVING_S = 2.0


def port_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the ports of a Ray head are free here. A run that starts its own Ray does not need them."""
    for subject, (variable, default, option) in RAY_PORTS.items():
        text = environ.get(variable, "") if variable else ""
        if text and not (text.isdigit() and 0 < int(text) < 65536):
            yield Finding(Level.ERROR, subject, f"{variable}={text} is no port", f"{variable}={default}")
            continue
        port = int(text or default)
        source = f" ({variable})" if text else ""
        problem = _port_problem(port)
        if not problem:
            yield Finding(Level.OK, subject, f"port {port}{source} is free")
            continue
        move = f"{variable}=<a free port> on every node, or {option}" if variable else option
        remedy = f"to start a head here: `ray stop` if the cluster is yours, else {move}; {_PRIVATE}"
        yield Finding(Level.WARNING, subject, f"port {port}{source} {problem}", remedy)


def name_findings() -> Iterator[Finding]:
    """Whether this machine's own name has an address: torch and Ray ask for it."""
    name = socket.gethostname()
    address = _address(name)
    if address is None:
        remedy = f"a line `127.0.0.1 {name}` in /etc/hosts; on several nodes the address that the others reach"
        yield Finding(Level.WARNING, "host name", f"{name} has no address within {_RESOLVING_S:g} s", remedy)
    else:
        yield Finding(Level.OK, "host name", f"{name} is {address}")


def proxy_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """A proxy for addresses inside the cluster: Ray's connections would go through it and fail."""
    named = next((name for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY") if environ.get(name)), "")
    if not named:
        return
    exempt = [part.strip() for part in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",")]
    head = environ.get("MASTER_ADDR", "")
    missing = [name for name in ("localhost", "127.0.0.1", head) if name and name not in exempt and "*" not in exempt]
    if missing:
        found = f"{named} is set, and no_proxy lacks {', '.join(missing)}"
        yield Finding(Level.WARNING, "proxy", found, f"export no_proxy={','.join(filter(None, [*exempt, *missing]))}")
    else:
        yield Finding(Level.OK, "proxy", f"{named} is set, and not used inside the machine")


def _port_problem(port: int) -> str:
    """Why a port cannot be listened on; empty where it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # Without it, connections of a cluster that has just ended would make its ports look taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"is taken{_owner(port)}"
            return f"cannot be used: {error.strerror}"
    return ""


def _owner(port: int) -> str:
    """Which process listens, where this user may know."""
    import psutil

    try:
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid:
                return f" by process {one.pid} ({psutil.Process(one.pid).name()})"
    except (psutil.Error, OSError):
        return ""
    return ""


def _address(name: str) -> str | None:
    found: list[str] = []

    def ask() -> None:
        try:
            found.append(socket.gethostbyname(name))
        except OSError:
            return

    # A resolver that does not answer takes far longer than anyone waits for a report.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_RESOLVING_S)
    return found[0] if found else None
