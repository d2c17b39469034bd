"""A trainer: core's, in float32 only. A trainer of your own fills `roll_core.training.TrainStrategy`."""

from roll_core.config.schema import WorkerConfig
from roll_core.errors import Problem
from roll_core.platforms import Platform
from roll_core.training.fsdp2 import Fsdp2Strategy


class DemoTrainer(Fsdp2Strategy):
    """Says so where a config asks for another precision, before anything starts."""

    @classmethod
    def problems(cls, role: WorkerConfig, platform: Platform) -> list[Problem]:
        """Core's, and the precision."""
        found = Fsdp2Strategy.problems(role, platform)
        dtype = role.model_args.dtype
        if dtype not in ("fp32", "float32"):
            found.append(Problem("model_args.dtype", "demo_train computes in float32", dtype, "fp32"))
        return found
