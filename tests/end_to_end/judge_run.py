"""Run a config with one more engine, `stand_in`, which judges by a rule.

python judge_run.py CONFIG [key=value ...]
"""

import os
import sys
from pathlib import Path

REPOSITORY = str(Path(__file__).parents[2])


def main() -> None:
    from roll_core import Backend, builtins, hookimpl
    from roll_core.pipelines.run import run_file

    offered = builtins.roll_infer_strategies

    @hookimpl
    def roll_infer_strategies() -> list[Backend]:
        return [*offered(), Backend("stand_in", "tests.rewards.judge_engines:BySum")]

    builtins.roll_infer_strategies = roll_infer_strategies
    run_file(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    sys.path.insert(0, REPOSITORY)
    # Workers import the engine too.
    os.environ["PYTHONPATH"] = os.pathsep.join([REPOSITORY, os.environ.get("PYTHONPATH", "")])
    main()
