"""Mistakes are told all at once, in words, before a worker starts or a heavy library is loaded."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.runs import CONFIG, Run

MakeRun = Callable[..., Run]

RUN_AND_LOOK = """
import sys
from roll_core.cli import main
sys.argv[0] = "roll"
try:
    main()
finally:
    print("LOADED:", [name for name in ("ray", "torch", "transformers") if name in sys.modules])
"""
GOOD_ROW = {"id": "1", "prompt": "What is 1 + 1?", "ground_truth": "2", "tag": "math_rule"}


def refused(run: Run, *more: str) -> str:
    """What `roll run` says; it must have ended before anything was loaded."""
    result = subprocess.run(
        [sys.executable, "-c", RUN_AND_LOOK, "run", str(CONFIG), *run.settings, *more],
        cwd=run.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2, result.stdout + result.stderr
    assert "LOADED: []" in result.stdout
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def run(make_run: MakeRun) -> Run:
    return make_run("refused")


def with_rows(run: Run, name: str, text: str) -> str:
    (run.folder / name).write_text(text)
    return f"actor_train.data_args.file_name=[{run.folder / name}]"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("actor_trian.device_mapping=[0]", ["actor_trian", "actor_train"]),
        ("rollout_batch_siz=8", ["rollout_batch_siz", "rollout_batch_size"]),
        ("actor_train.training_args.learning_rat=1", ["actor_train.training_args.learning_rat", "learning_rate"]),
        ("actor_train.strategy_args.strategy_config.fsdp_sise=1", ["fsdp_sise", "fsdp_size"]),
        ("max_steps=many", ["max_steps", "many"]),
        ("adv_estimator=grop", ["adv_estimator", "grop", "grpo"]),
        ("pretrain=./no/such/model", ["pretrain", "no such folder"]),
        ("rollout_batch_size=5", ["rollout_batch_size", "20", "16"]),
        ("actor_infer.strategy_args.strategy_name=hf_infr", ["hf_infr", "hf_infer"]),
        ("track_with=tensorbord", ["tensorbord", "tensorboard"]),
        ("platform=cpuu", ["cpuu", "cpu"]),
        ("actor_train.device_mapping=list(range(0,2)", ["actor_train.device_mapping"]),
        ("resume_from_checkpoint=./nowhere/checkpoint-7", ["checkpoint-7"]),
    ],
)
def test_a_mistake_in_a_key_is_one_message(run: Run, override: str, words: list[str]) -> None:
    message = refused(run, override)
    assert message.startswith("1 problem"), message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(GOOD_ROW) + '\n{"id": "2", "prompt": \n', ["rows.jsonl:2", "not JSON"]),
        ("", ["rows.jsonl", "no rows"]),
        (json.dumps(GOOD_ROW | {"tag": "KodCode"}), ["rows.jsonl:1", "tag", "KodCode", "math_rule"]),
        (json.dumps(GOOD_ROW | {"ground_truth": None}), ["rows.jsonl:1", "ground_truth", "null"]),
        (json.dumps(GOOD_ROW | {"messages": []}), ["rows.jsonl:1", "messages"]),
    ],
)
def test_a_mistake_in_the_data_is_named_by_file_and_line(run: Run, text: str, words: list[str]) -> None:
    message = refused(run, with_rows(run, "rows.jsonl", text))
    assert message.startswith("1 problem"), message
    for word in words:
        assert word in message


def test_a_group_of_one_cannot_be_compared(run: Run) -> None:
    message = refused(run, "num_return_sequences_in_group=1", "rollout_batch_size=16")
    assert message.startswith("1 problem"), message
    assert "num_return_sequences_in_group" in message and "needs at least 2" in message


def test_all_mistakes_are_told_at_once(run: Run) -> None:
    message = refused(run, "rollout_batch_size=5", "pretrain=./no/such/model", "adv_estimator=grop")
    assert message.startswith("3 problems"), message


def test_the_published_sample_says_what_it_needs_and_what_is_here(tmp_path: Path) -> None:
    sample = CONFIG.parents[1] / "ascend_examples" / "qwen3_30b_rlvr_fsdp2.yaml"
    result = subprocess.run(
        [sys.executable, "-c", RUN_AND_LOOK, "run", str(sample)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2 and "LOADED: []" in result.stdout
    for words in ("platform npu", "roll-ascend", "16 devices", "this machine has: cpu"):
        assert words in result.stderr
