"""`acl.rt`: the runtime."""

import os


def get_device_count() -> tuple[int, int]:
    """The number of devices of this machine, and 0 for no error."""
    given = os.environ.get("SIMULATED_NPU_DEVICES", "8")
    return (int(given) if given.isdecimal() else len(given.split(","))), 0
