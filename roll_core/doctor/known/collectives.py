"""Ranks that wait for each other."""

from roll_core.findings import KnownError

COLLECTIVE_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"unable to find address for",
            r"unable to resolve hostname",
            r"ifa != nullptr",
            r"temporary failure in name resolution",
            r"name or service not known",
            r"gaierror",
        ),
        "a host name has no address on this machine: its own, or the one of a peer or server",
        "a line with address and name in /etc/hosts on every node, or GLOO_SOCKET_IFNAME=<the network card>; "
        "a machine without a network needs HF_HUB_OFFLINE=1",
    ),
    KnownError(
        (
            r"watchdog caught collective operation timeout",
            r"timed out waiting \d+ ?ms for (recv|send)",
            r"collective.{0,60}time(d )?out",
            r"DistStoreError",
            r"timed out after \d+ seconds waiting for clients",
            r"client socket has timed out",
            r"TCPStore.{0,80}(timeout|failed|refused)",
            r"wait timeout after \d+ ?ms",
        ),
        "a rank waited for others that never came: one of them has died, or runs other code (an empty batch, "
        "a branch only some ranks take), or is only slower than backend_timeout allows",
        "the logs of the other ranks, earliest error first; backend_timeout (minutes) of the role where "
        "loading or the first step takes long; MASTER_ADDR and ports reachable between nodes",
    ),
    KnownError(
        (r"connection (was )?(closed|reset) by peer", r"connection refused", r"socket closed", r"broken pipe"),
        "the process at the other end has ended, or never listened; this error is a consequence",
        "the log of the peer in logging_dir, for the error that came first",
    ),
)
