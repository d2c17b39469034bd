"""A whole `roll run` of an example in a process of its own, as the benchmarks that compare settings time it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import QUIET, ROOT


def metrics_of_run(example: str, folder: Path, overrides: Sequence[str]) -> list[dict[str, Any]]:
    """The records of a run's metrics, by step; everything it writes goes below the folder.

    Args:
        example: the config, as a path below examples/.
        folder: must be new, or empty.
        overrides: what is changed of the config.
    """
    folder = folder.resolve()
    places = [
        f"output_dir={folder}",
        f"logging_dir={folder / 'logs'}",
        f"checkpoint_config.output_dir={folder / 'checkpoints'}",
        f"tracker_kwargs.log_dir={folder / 'tensorboard'}",
        f"rollout_dump_dir={folder / 'rollouts'}",
    ]
    command = [sys.executable, "-m", "roll_core", "run", str(ROOT / "examples" / example), *overrides, *places]
    environment = {**os.environ, **QUIET}
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(done.stdout)
    [file] = folder.rglob("metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]
