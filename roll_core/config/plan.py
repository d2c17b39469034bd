"""What a run would do: who runs where, with what, and how batches are cut. `roll check` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roll_core.config.environment import Variable
from roll_core.config.memory_plan import MemoryPlan
from roll_core.config.rollout_steps import RolloutSteps
from roll_core.config.rules.batches import BatchArithmetic
from roll_core.errors import Problem


@dataclass(frozen=True)
class DevicePlace:
    """A device of the config, and where it is: node and index on that node both start at 0."""

    device: int
    node: int
    local: int


@dataclass(frozen=True)
class WorkerPlan:
    """One worker. `devices` is empty for a plain process, whose node Ray chooses."""

    rank: int
    devices: tuple[DevicePlace, ...]


@dataclass(frozen=True)
class RolePlan:
    """A role: the strategy asked for and where its class is, its workers, and their environment."""

    name: str
    strategy: str
    provider: str
    target: str
    workers: tuple[WorkerPlan, ...]
    environment: Mapping[str, Variable]


@dataclass(frozen=True)
class Cluster:
    """The machines a plan is for. Each number comes with who said it."""

    nodes: int
    nodes_source: str
    devices_per_node: int
    devices_source: str


@dataclass(frozen=True)
class Request:
    """A cluster to plan for in place of this machine: `roll check --platform X --nodes N --devices-per-node M`.

    `device_bytes` is the memory of one device.
    """

    platform: str | None = None
    nodes: int | None = None
    devices_per_node: int | None = None
    device_bytes: int | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the plan is for other machines than this one."""
        return self.platform is not None


@dataclass(frozen=True)
class Plan:
    """Everything `roll check` tells. `batches` has the arithmetic of each role that trains."""

    source: str
    pipeline: str
    platform: str
    platform_reasons: tuple[str, ...]
    cluster: Cluster
    roles: tuple[RolePlan, ...]
    batches: Mapping[str, BatchArithmetic]
    rows: int | None
    memory: MemoryPlan | None = None
    problems: tuple[Problem, ...] = ()
    notices: tuple[str, ...] = ()
    rollout: RolloutSteps | None = None
    """Of a run that trains nothing: how it is cut into steps, where the prompts could be counted."""

    @property
    def steps_per_epoch(self) -> int | None:
        """Pipeline steps until every row was drawn once; None where rows could not be counted."""
        batch = self.batches.get("actor_train")
        return None if self.rows is None or batch is None else self.rows // batch.prompts

    def as_data(self) -> dict[str, Any]:
        """The plan as plain JSON data."""
        data = asdict(self)
        for name, batch in self.batches.items():
            extra = {
                "samples": batch.samples,
                "mini_batch": batch.mini_batch,
                "mini_batches": batch.mini_batches,
                "optimizer_steps": batch.optimizer_steps,
            }
            data["batches"][name] |= extra
        data["problems"] = [asdict(problem) | {"value": _plain(problem.value)} for problem in self.problems]
        return data | {"steps_per_epoch": self.steps_per_epoch}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
