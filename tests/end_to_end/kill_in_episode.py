"""Run a config and kill this process, as kill -9 would, in the midst of episodes or of a rollout's file.

python kill_in_episode.py CONFIG [key=value ...]   with KILL_AT="episodes train/4" or "rollout 2": at the third turn
of an episode that a step or a validation plays, and where the file of a step is written and has no name yet
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from roll_core.config.compose import load_config_file
from roll_core.pipelines.run import run_config
from roll_core.rollout.env_episode import Episode


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_episodes(label: str) -> None:
    request = Episode.request

    def request_or_die(self: Episode, params: Any, current: str, *rest: Any) -> Any:
        if current == label and len(self.turns) == 2:
            die()
        return request(self, params, current, *rest)

    Episode.request = request_or_die  # type: ignore[method-assign]


def die_in_rollout(step: str) -> None:
    replace = Path.replace

    def replace_or_die(self: Path, target: Any) -> Path:
        if Path(target).name.endswith(f"-{int(step):06d}.jsonl"):
            die()
        return replace(self, target)

    Path.replace = replace_or_die  # type: ignore[method-assign,assignment]


def main() -> None:
    where, when = os.environ["KILL_AT"].split()
    {"episodes": die_in_episodes, "rollout": die_in_rollout}[where](when)
    config: Any = load_config_file(sys.argv[1], sys.argv[2:])
    run_config(config)


if __name__ == "__main__":
    main()
