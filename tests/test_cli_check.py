"""`roll check`: the plan and every problem, quickly, with nothing started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """\
rollout_batch_size: 8
num_return_sequences_in_group: 4
prompt_length: 32
response_length: 32
adv_estimator: grpo
pretrain: ./model
actor_train:
  model_args: {dtype: fp32}
  training_args: {per_device_train_batch_size: 4, gradient_accumulation_steps: 2}
  data_args: {file_name: train.jsonl}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: [0, 1]
actor_infer:
  model_args: {dtype: fp32}
  strategy_args: {strategy_name: hf_infer}
  device_mapping: [0, 1]
rewards: {math_rule: {}}
"""
ROW = '{"id": "1", "prompt": "What is 1 + 1?", "ground_truth": "2", "tag": "math_rule"}\n'
HEAVY = ("torch", "ray", "transformers", "numpy")

PROGRAM = f"""
import sys
from roll_core.cli import main
sys.argv = ["roll", "check", *sys.argv[1:]]
code = 0
try:
    main()
except SystemExit as end:
    code = end.code or 0
loaded = [name for name in {HEAVY!r} if name in sys.modules]
print("LOADED", loaded, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "train.jsonl").write_text(ROW)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path


def roll_check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ROLL_")}
    environ |= {"ROLL_PLUGINS": "", "ROLL_PLATFORM": "cpu"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )


def test_a_sound_config_exits_0_and_shows_its_plan(folder: Path) -> None:
    done = roll_check(folder, "run.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problems in" in done.stdout
    assert "2 mini-batches of 16 (2 ranks * 4 rows * 2 micro-batches); 2 optimiser steps per step" in done.stdout
    assert "roll_core.training.fsdp2:Fsdp2Strategy" in done.stdout
    assert "OMP_NUM_THREADS" in done.stdout


def test_all_problems_are_shown_at_once_and_it_exits_2(folder: Path) -> None:
    done = roll_check(folder, "run.yaml", "rollout_batch_size=6", "pretrain=nowhere", "actor_infer.device_maping=[0]")
    assert done.returncode == 2
    assert "- actor_infer.device_maping: unknown key in the override" in done.stdout
    assert "- pretrain: there is no such folder" in done.stdout
    assert "= 24 responses must be a multiple of the 16 rows" in done.stdout
    assert "3 problems in" in done.stdout


def test_no_heavy_library_is_imported(folder: Path) -> None:
    for arguments in (["run.yaml"], ["run.yaml", "seed=x"], ["ascend_examples/qwen3_30b_rlvr_fsdp2.yaml"]):
        assert "LOADED []" in roll_check(folder, *arguments).stderr


def test_a_config_of_the_examples_is_found_from_anywhere(folder: Path) -> None:
    done = roll_check(folder, "ascend_examples/qwen3_30b_rlvr_fsdp2", "--platform", "npu", "--nodes", "1")
    assert "platform  npu" in done.stdout
    assert "32 prompts * 8 = 256 responses" in done.stdout


def test_json_holds_the_plan_and_the_problems(folder: Path) -> None:
    done = roll_check(folder, "run.yaml", "--json", "rollout_batch_size=6")
    assert done.returncode == 2
    data = json.loads(done.stdout)
    assert data["platform"] == "cpu"
    assert data["batches"]["actor_train"]["samples"] == 24
    assert [problem["path"] for problem in data["problems"]] == ["rollout_batch_size"]
    assert data["roles"][0]["workers"][1]["devices"] == [{"device": 1, "node": 0, "local": 1}]


def test_a_file_that_is_not_there_is_one_message_without_a_traceback(folder: Path) -> None:
    done = roll_check(folder, "rum.yaml")
    assert done.returncode == 2
    assert "did you mean 'run'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_written(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    roll_check(folder, "run.yaml")
    assert sorted(folder.rglob("*")) == before
