"""A class per planted mistake, and one per contract on roll_demo as it is; `test_faults.py` runs them by name.

Not a test file by its name: nearly all of its tests fail, and should.
"""

from __future__ import annotations

import importlib
from typing import Any

from roll_demo.engine import DemoEngine
from roll_demo.patch import DemoPatch
from roll_demo.platform import DemoPlatform
from roll_demo.trainer import DemoTrainer
from roll_demo.transport import DemoTransport

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.testing.contract import Contract
from roll_core.testing.infer_contract import InferContract
from roll_core.testing.patch_contract import PatchContract
from roll_core.testing.platform_contract import PlatformContract
from roll_core.testing.plugin_contract import PluginContract
from roll_core.testing.train_contract import TrainContract
from roll_core.testing.transport_contract import TransportContract
from tests.testing.planted_list import FAULTS, Fault


def make_engine(backend: type[Any]) -> Any:
    def make(self: Any, folder: Any, **strategy_config: Any) -> Any:
        role = WorkerConfig.model_validate(
            {
                "name": "actor_infer",
                "model_args": {"model_name_or_path": str(folder), "dtype": "fp32"},
                "strategy_args": {"strategy_name": "demo_infer", "strategy_config": strategy_config},
            }
        )
        return backend(role, DemoPlatform(), WorkerContext("actor_infer"))

    return make


def members(contract: type[Contract], backend: type[Any]) -> dict[str, Any]:
    """What a contract needs to be run on a backend."""
    names = {
        PlatformContract: "platform_class",
        TrainContract: "strategy_class",
        TransportContract: "transport_class",
        PatchContract: "patch_class",
    }
    return {"make": make_engine(backend)} if contract is InferContract else {names[contract]: backend}


def of_fault(number: int, fault: Fault) -> type[Contract]:
    package = f"roll_faulty_{number:02}"
    if fault.contract is PluginContract:
        given = {"plugin": package}
    elif fault.edit is not None:
        given = {"platform_class": importlib.import_module(f"{package}.platform").DemoPlatform}
    else:
        assert fault.backend is not None
        given = members(fault.contract, fault.backend)
    return type(f"TestFault{number:02}", (fault.contract,), given | dict(fault.settings))


for _number, _fault in enumerate(FAULTS):
    globals()[f"TestFault{_number:02}"] = of_fault(_number, _fault)


class TestPlatformAsItIs(PlatformContract):
    platform_class = DemoPlatform


class TestTrainAsItIs(TrainContract):
    strategy_class = DemoTrainer


class TestTransportAsItIs(TransportContract):
    transport_class = DemoTransport


class TestPatchAsItIs(PatchContract):
    patch_class = DemoPatch


class TestInferAsItIs(InferContract):
    make = make_engine(DemoEngine)


class TestPluginAsItIs(PluginContract):
    plugin = "roll_demo"
