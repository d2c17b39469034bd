"""Run a config and kill an engine, as kill -9 would, when engines have just been given certain prompts.

python kill_engine.py CONFIG [key=value ...]   with KILL_ENGINE="1 train/2/": rank and how the requests' ids begin
"""

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.config.compose import load_config_file
from roll_core.inference import GenerationRequest
from roll_core.pipelines.run import run_config
from roll_core.rollout.routing import EngineRouter


def main() -> None:
    rank, prefix = os.environ["KILL_ENGINE"].split()
    submit = EngineRouter.submit

    def submit_and_kill(self: EngineRouter, groups: Sequence[Sequence[GenerationRequest]]) -> list[Call]:
        calls = submit(self, groups)
        if any(group[0].request_id.startswith(prefix) for group in groups):
            os.kill(process_id(self.engines.specs[int(rank)].log_file), signal.SIGKILL)
        return calls

    EngineRouter.submit = submit_and_kill  # type: ignore[method-assign]
    config: Any = load_config_file(sys.argv[1], sys.argv[2:], pipeline="rlvr")
    run_config(config)


def process_id(log: Path) -> int:
    return int(re.findall(r"process (\d+) on", log.read_text())[-1])


if __name__ == "__main__":
    main()
