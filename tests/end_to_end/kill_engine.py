"""Run a config and kill an engine, as kill -9 would, when engines have just been given certain prompts.

python kill_engine.py CONFIG [key=value ...]   with KILL_ENGINE="1 train/2/": rank and how the requests' ids begin
                                               or KILL_ENGINE="1 step/4": rank, and the step whose answers wait
"""

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.config.compose import load_config_file
from roll_core.inference import GenerationRequest
from roll_core.pipelines.run import run_config
from roll_core.rollout.async_collector import FlowCollector
from roll_core.rollout.routing import EngineRouter

SETTLED_S = 5.0
"""After which Ray knows that a process has died, and what was lost with it."""


def main() -> None:
    rank, prefix = os.environ["KILL_ENGINE"].split()
    submit = EngineRouter.submit

    def submit_and_kill(self: EngineRouter, groups: Sequence[Sequence[GenerationRequest]]) -> list[Call]:
        calls = submit(self, groups)
        if any(group[0].request_id.startswith(prefix) for group in groups):
            os.kill(process_id(self.engines.specs[int(rank)].log_file), signal.SIGKILL)
        return calls

    collect = FlowCollector.__call__

    def kill_and_collect(self: FlowCollector[Any], step: int) -> tuple[list[Any], dict[str, float]]:
        if prefix == f"step/{step}":
            os.kill(process_id(self.flow.engines.specs[int(rank)].log_file), signal.SIGKILL)
            time.sleep(SETTLED_S)
        return collect(self, step)

    EngineRouter.submit = submit_and_kill  # type: ignore[method-assign]
    FlowCollector.__call__ = kill_and_collect  # type: ignore[method-assign]
    config: Any = load_config_file(sys.argv[1], sys.argv[2:], pipeline="rlvr")
    run_config(config)


def process_id(log: Path) -> int:
    return int(re.findall(r"process (\d+) on", log.read_text())[-1])


if __name__ == "__main__":
    main()
