"""Agentic runs at a free pace, and while the trainer trains: token-exact, bounded in age, and no episode lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.agentic_runs import LAKE, prepare_lake

HERE = Path(__file__).parent
CONFIG = LAKE / "cpu.yaml"
FOLDERS = {
    "output_dir": "",
    "logging_dir": "logs",
    "checkpoint_config.output_dir": "checkpoints",
    "tracker_kwargs.log_dir": "tensorboard",
    "rollout_dump_dir": "rollouts",
}
GROUPS, SIZE = 3, 4
TOLERANCE = 1e-3
ASYNC = ("async_generation_ratio=1", "actor_infer.device_mapping=[1]")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_lake(tmp_path_factory.mktemp("lake"))


def metrics_of(folder: Path) -> dict[int, dict[str, Any]]:
    """By step."""
    [file] = folder.rglob("metrics.jsonl")
    return {record["step"]: record for record in map(json.loads, file.read_text().splitlines())}


def run(folder: Path, model: Path, *overrides: str, script: Path | None = None, code: int = 0, **environ: str) -> str:
    """A small run that must end with a code; its output."""
    folder.mkdir(exist_ok=True)
    settings = [
        "platform=cpu",
        f"pretrain={model}",
        *(f"{key}={folder / name}" for key, name in FOLDERS.items()),
        f"rollout_batch_size={GROUPS * SIZE}",
        f"train_env_manager.num_env_groups={GROUPS}",
        f"train_env_manager.group_size={SIZE}",
        "val_batch_size=8",
        "val_env_manager.num_env_groups=8",
        f"actor_train.training_args.per_device_train_batch_size={GROUPS * SIZE}",
        "actor_train.training_args.gradient_accumulation_steps=1",
        "eval_steps=0",
        "save_steps=0",
        *overrides,
    ]
    command = [sys.executable, *((str(script),) if script else ("-m", "roll_core", "run")), str(CONFIG), *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environ}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def trained_groups(folder: Path) -> list[int]:
    """Numbers of the groups that every step trained on, step by step."""
    found = []
    for path in sorted((folder / "rollouts").glob("episodes-*.jsonl")):
        names = dict.fromkeys(json.loads(line)["traj_group_id"] for line in path.read_text().splitlines())
        for name in names:
            _tag, env_group, episode, _seed = name.split("_")
            found.append(int(episode) * GROUPS + int(env_group))
    return found


def saved(folder: Path, step: int) -> dict[str, Any]:
    """What the checkpoint after a step says of episodes on their way."""
    file = folder / "checkpoints" / f"checkpoint-{step}" / "pipeline" / "state.json"
    state: dict[str, Any] = json.loads(file.read_text())["sampler"]
    return state


def check(folder: Path, last: int) -> None:
    """No episode too old, whole groups only, each trained once, and all of them accounted for."""
    metrics = metrics_of(folder)
    assert [step for step in metrics if step] == list(range(1, last + 1))
    assert all(0 <= metrics[step]["scheduler/off_policy_max"] <= 1 for step in range(1, last + 1))
    trained, state = trained_groups(folder), saved(folder, last)
    assert len(set(trained)) == len(trained) == GROUPS * last
    groups, episodes, still_open = state["account"], state["episodes"], {each["number"] for each in state["open"]}
    assert groups["ended"]["trained"] == GROUPS * last
    assert episodes["ended"]["trained"] == GROUPS * SIZE * last
    assert groups["drawn"] == sum(groups["ended"].values()) + len(still_open)
    assert not still_open & set(trained)
    lost = set(range(groups["drawn"])) - set(trained) - still_open
    assert len(lost) == groups["ended"]["faulty"] + groups["ended"]["filtered"] + groups["ended"]["stale"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mode", "overrides"),
    [
        # The weights stay the same, so the tokens of every age must agree, over aborts and resumed answers.
        ("async", [*ASYNC, "actor_train.training_args.learning_rate=0"]),
        ("free", ["train_env_manager.pace=free"]),
        ("free by steps", ["train_env_manager.pace=free", "custom_envs.Lake.env_manager_cls=step"]),
    ],
)
def test_a_hundred_steps_train_on_the_tokens_that_were_sampled(
    mode: str, overrides: list[str], model: Path, tmp_path: Path
) -> None:
    wanted = ["max_steps=100", "enable_old_logprobs_recompute=true", *overrides]
    output = run(tmp_path / "run", model, *wanted, script=HERE / "exact_tokens.py", TOLERANCE=str(TOLERANCE))
    [told] = re.findall(r"EXACT steps=(\d+) rows=(\d+) tokens=(\d+) largest=(\S+)", output)
    print(mode, *told)
    assert int(told[0]) == 100
    assert int(told[1]) >= 100 * GROUPS * SIZE
    assert int(told[2]) >= int(told[1])
    assert float(told[3]) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_was_killed_in_mid_step_loses_no_episode_whatever_environments_do(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    wanted = [
        *ASYNC,
        "max_steps=6",
        "save_steps=3",
        "eval_steps=3",
        f"custom_envs.Lake.env_type={HERE / 'troubled_lake.py'}:UnluckyLake",
        "env_monitor.hung_timeout=4",
    ]
    run(
        folder,
        model,
        *wanted,
        script=HERE / "kill_at.py",
        code=-signal.SIGKILL,
        KILL_AT="train 5",
        KILL_PIPELINE="agentic",
    )
    before = saved(folder, 3)
    assert before["open"]
    assert "going on after step 3" in run(folder, model, *wanted, "resume_from_checkpoint=true")
    check(folder, 6)
    after = saved(folder, 6)
    held = {each["number"] for each in before["open"]}
    gone = held - set(trained_groups(folder)) - {each["number"] for each in after["open"]}
    assert len(gone) <= after["account"]["ended"]["faulty"] - before["account"]["ended"]["faulty"]
    assert sum(record.get("env/faults", 0) for record in metrics_of(folder).values()) > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_environments_may_live_in_workers_of_the_cluster(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(folder, model, *ASYNC, "max_steps=3", "save_steps=3", "train_env_manager.world_size=2")
    check(folder, 3)
    assert len(list((folder / "logs").rglob("train_env_manager-*.log"))) == 2
