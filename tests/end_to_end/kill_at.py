"""Run a config and kill this process, as kill -9 would, at a chosen point of a chosen step.

python kill_at.py CONFIG [key=value ...]   with KILL_AT="train 4" or "checkpoint 4"

For an agentic config with KILL_PIPELINE=agentic.
"""

import os
import signal
import sys
from typing import Any

from roll_core.checkpoint import CheckpointFolder
from roll_core.config.compose import load_config_file
from roll_core.pipelines.run import run_config
from roll_core.pipelines.update import PolicyUpdate


def main() -> None:
    where, step = os.environ["KILL_AT"].split()

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if where == "train":
        update = PolicyUpdate.__call__

        def update_and_die(self: PolicyUpdate, batch: Any, current: int) -> Any:
            metrics = update(self, batch, current)
            if current == int(step):
                die()
            return metrics

        PolicyUpdate.__call__ = update_and_die  # type: ignore[method-assign]
    else:
        finish = CheckpointFolder.finish

        def finish_or_die(self: CheckpointFolder, current: int, *rest: Any) -> Any:
            if current == int(step):
                die()
            return finish(self, current, *rest)

        CheckpointFolder.finish = finish_or_die  # type: ignore[method-assign]
    run_config(load_config_file(sys.argv[1], sys.argv[2:], pipeline=os.environ.get("KILL_PIPELINE", "rlvr")))


if __name__ == "__main__":
    main()
