"""Small runs of the quickstart's config, on a model that was hardly trained, in processes of their own."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "examples" / "quickstart"))

CONFIG = REPOSITORY / "examples" / "quickstart" / "rlvr.yaml"
REWARD = f"{Path(__file__).parent / 'parity_reward.py'}:score"
BY_CHANCE = ("time/", "system/", "actor/backward_seconds")
"""Metrics that measure the machine."""


def learnt(
    folder: Path, example: str, *arguments: str, environ: Mapping[str, str] | None = None, timeout_s: float = 1800
) -> tuple[float, float, str]:
    """Run an example's `run.py` as a user does, in a folder: held-out accuracy before and after, and all it printed."""
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / example / "run.py"), *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **(environ or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.splitlines()[-1]
    found = re.fullmatch(r"RESULT before=(\d\.\d\d) after=(\d\.\d\d) seconds=(\d+)", last)
    assert found is not None, last
    return float(found[1]), float(found[2]), result.stdout


@dataclass
class Run:
    """Where one run writes, and what it takes beside the small settings."""

    config: ClassVar[Path] = CONFIG
    folder: Path
    assets: Path
    overrides: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> Sequence[str]:
        """Everything the run writes goes to its folder."""
        return [
            f"output_dir={self.folder}",
            f"logging_dir={self.folder / 'logs'}",
            f"checkpoint_config.output_dir={self.folder / 'checkpoints'}",
            f"tracker_kwargs.log_dir={self.folder / 'tensorboard'}",
            f"rollout_dump_dir={self.folder / 'rollouts'}",
        ]

    @property
    def settings(self) -> Sequence[str]:
        return [
            "platform=cpu",
            f"pretrain={self.assets / 'model'}",
            f"actor_train.data_args.dataset_dir={self.assets / 'data'}",
            f"validation.data_args.dataset_dir={self.assets / 'data'}",
            "validation.data_args.file_name=[few.jsonl]",
            *self.places,
            f"rewards.math_rule.worker_cls={REWARD}",
            "rollout_batch_size=4",
            "num_return_sequences_in_group=4",
            "response_length=12",
            "actor_train.training_args.per_device_train_batch_size=4",
            "actor_train.training_args.gradient_accumulation_steps=4",
            "max_steps=4",
            "save_steps=2",
            "eval_steps=2",
            *self.overrides,
        ]

    def start(self, *more: str, script: Path | None = None) -> subprocess.Popen[str]:
        """Start it, with further overrides."""
        command = [sys.executable, "-m", "roll_core", "run", str(self.config)]
        if script is not None:
            command = [sys.executable, str(script), str(self.config)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **self.environ}
        return subprocess.Popen(
            [*command, *self.settings, *more],
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def finish(self, *more: str, script: Path | None = None) -> tuple[int, str]:
        """Run it to its end: exit code and output."""
        process = self.start(*more, script=script)
        output, _ = process.communicate(timeout=240)
        return process.returncode, output

    def metrics(self) -> dict[int, dict[str, Any]]:
        """Metrics by step, without those that measure the machine."""
        [file] = [path for path in self.folder.rglob("metrics.jsonl")]
        records = [json.loads(line) for line in file.read_text().splitlines()]
        return {
            record["step"]: {name: v for name, v in record.items() if not name.startswith(BY_CHANCE) and name != "wall"}
            for record in records
        }

    def rollouts(self) -> dict[str, str]:
        """Every answer that was sampled, by file."""
        return {path.name: path.read_text() for path in sorted((self.folder / "rollouts").glob("*.jsonl"))}

    def checkpoints(self) -> list[str]:
        """Names under the checkpoint folder, hidden ones included."""
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())

    def worker_pid(self, name: str, timeout_s: float = 120) -> int:
        """Process id of a worker such as actor_train-0, once it has started."""

        def found() -> int | None:
            logs = list((self.folder / "logs").rglob(f"{name}.log"))
            ids = re.findall(r"process (\d+) on", logs[0].read_text()) if logs else []
            return int(ids[-1]) if ids else None

        return wait_for(found, f"{name} to start", timeout_s)

    def wait_for_step(self, step: int, timeout_s: float = 120, process: subprocess.Popen[str] | None = None) -> None:
        """Until the metrics of a step are there; a process that ends before is a failure with its output."""

        def is_there() -> bool | None:
            if process is not None and process.poll() is not None:
                raise AssertionError(f"ended before step {step}: {process.communicate()[0]}")
            files = list(self.folder.rglob("metrics.jsonl"))
            return True if files and f'"step": {step},' in files[0].read_text() else None

        wait_for(is_there, f"step {step}", timeout_s)


def wait_for(look: Callable[[], Any], what: str, timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {timeout_s:g} s in vain for {what}")


def descendants(pid: int) -> list[psutil.Process]:
    return [process for process in psutil.Process(pid).children(recursive=True) if process.is_running()]


def assert_all_gone(processes: Sequence[psutil.Process], timeout_s: float = 30) -> None:
    _, alive = psutil.wait_procs(list(processes), timeout=timeout_s)
    alive = [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not alive, f"still running: {[process.cmdline()[:3] for process in alive]}"
