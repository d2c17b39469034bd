"""Small agentic runs of the frozen lake's config, on a model that was hardly trained, in processes of their own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.end_to_end.runs import REPOSITORY, Run

LAKE = REPOSITORY / "examples" / "agentic_frozen_lake"
ENVIRONMENTS = Path(__file__).parent / "troubled_lake.py"


def prepare_lake(folder: Path) -> Path:
    """The folder of a model that knows what an answer looks like."""
    command = [sys.executable, str(LAKE / "prepare.py"), "--folder", str(folder), "--steps", "3"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "model"


class LakeRun(Run):
    """A run of agentic_frozen_lake/cpu.yaml; `assets` is the model's folder."""

    config = LAKE / "cpu.yaml"

    @property
    def settings(self) -> Sequence[str]:
        return [
            "platform=cpu",
            f"pretrain={self.assets}",
            *self.places,
            "rollout_batch_size=12",
            "train_env_manager.num_env_groups=3",
            "train_env_manager.group_size=4",
            "val_batch_size=8",
            "val_env_manager.num_env_groups=8",
            "actor_train.training_args.per_device_train_batch_size=12",
            "actor_train.training_args.gradient_accumulation_steps=1",
            "eval_steps=2",
            "save_steps=2",
            "max_steps=4",
            *self.overrides,
        ]
