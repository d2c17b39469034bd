"""What roll_transferqueue offers to roll-core: TransferQueue as a transport."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from roll_core import Availability, Backend, hookimpl

ROLL_PLUGIN_API = 1


def probe() -> Availability:
    """Whether the package TransferQueue is there; it is not imported."""
    if importlib.util.find_spec("transfer_queue") is None:
        return Availability(False, "the package TransferQueue is not installed")
    return Availability(True, f"TransferQueue {importlib.metadata.version('TransferQueue')}")


@hookimpl
def roll_transports() -> list[Backend]:
    """Rows in TransferQueue's storage units."""
    target = "roll_transferqueue.transport:TransferQueueTransport"
    return [Backend("TransferQueue", target, "rows in storage units, each a process", probe=probe)]
