"""What roll_demo offers to roll-core. It imports the standard library and roll_core only."""

import os

from roll_core import Availability, Backend, hookimpl

ROLL_PLUGIN_API = 1


def probe_devices() -> Availability:
    """The devices are there where DEMO_DEVICES says how many."""
    count = os.environ.get("DEMO_DEVICES", "0")
    return Availability(count != "0", f"DEMO_DEVICES is {count}")


@hookimpl
def roll_platforms() -> list[Backend]:
    """Devices that are only numbers."""
    target = "roll_demo.platform:DemoPlatform"
    return [Backend("demo", target, "processes that pass for devices", probe=probe_devices, extra="device")]


@hookimpl
def roll_train_strategies() -> list[Backend]:
    """Core's own trainer under a name of ours; a real one brings its own."""
    return [Backend("demo_train", "roll_demo.trainer:DemoTrainer", "FSDP2 that trains in float32 only")]


@hookimpl
def roll_infer_strategies() -> list[Backend]:
    """Core's own engine under a name of ours; a real one brings its own."""
    return [Backend("demo_infer", "roll_demo.engine:DemoEngine", "hf_infer with few requests at a time")]


@hookimpl
def roll_transports() -> list[Backend]:
    """Rows in memory, with a count of what was moved."""
    return [Backend("demo_rows", "roll_demo.transport:DemoTransport", "rows of one process, counted")]


@hookimpl
def roll_model_patches() -> list[Backend]:
    """A computation cut in two."""
    return [Backend("demo_halves", "roll_demo.patch:DemoPatch", "runs each MLP on half of the positions at a time")]
