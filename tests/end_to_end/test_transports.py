"""The same run with and without a transport: equal numbers, nothing left behind, and a clear end when rows are lost."""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence

import psutil
import pytest

from tests.end_to_end.runs import Run, assert_all_gone, descendants, wait_for

MakeRun = Callable[..., Run]
SHORT = ("max_steps=3", "save_steps=0", "eval_steps=0", "ppo_epochs=2", "enable_reference=true", "use_kl_loss=true")
TRAINERS = ("actor_train.device_mapping=[0,1]", "actor_train.training_args.gradient_accumulation_steps=1")
ASYNC = ("async_generation_ratio=1", "actor_infer.device_mapping=[1]")
FILTERED = ("rewards.math_rule.query_filter_config={type: std_filter}", "is_use_additional_prompts=false")
RAY = "transfer_backend={backend_name: ray}"
LOCAL = "transfer_backend={backend_name: local}"
QUEUE = (
    "transfer_backend={backend_name: TransferQueue, "
    "backend_config: {backend: {SimpleStorage: {num_data_storage_units: 2}}}}"
)


@pytest.fixture(scope="module")
def plain(make_run: MakeRun) -> Run:
    run = make_run("plain", *SHORT, *TRAINERS)
    code, output = run.finish()
    assert code == 0, output
    return run


@pytest.mark.parametrize(
    "transport", [RAY, pytest.param(LOCAL, marks=pytest.mark.slow), pytest.param(QUEUE, marks=pytest.mark.slow)]
)
def test_a_transport_changes_no_number_and_keeps_no_row(plain: Run, make_run: MakeRun, transport: str) -> None:
    run = make_run("transport", *SHORT, *TRAINERS, transport)
    code, output = run.finish()
    assert code == 0, output
    assert run.rollouts() == plain.rollouts()
    assert run.metrics() == plain.metrics()
    assert held(run) == [(0.0, 0.0)] * 3


@pytest.mark.slow
@pytest.mark.parametrize("transport", [RAY, QUEUE], ids=["ray", "TransferQueue"])
def test_two_hundred_filtered_steps_leave_no_row_behind(make_run: MakeRun, transport: str) -> None:
    short = ("max_steps=200", "save_steps=0", "eval_steps=0", "response_length=4", "logging_steps=0")
    run = make_run("long", *short, *FILTERED, transport)
    process = run.start()
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    assert held(run) == [(0.0, 0.0)] * 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "victim", "cause"),
    [
        (RAY, "ray::Directory", "the directory of the ray transport has ended, and with it all rows"),
        (QUEUE, "ray::SimpleStorageUnit", "processes of TransferQueue have died: TransferQueueStorageUnit#"),
        (QUEUE, "ray::TransferQueueController", "processes of TransferQueue have died: TransferQueueController"),
    ],
    ids=["directory", "storage unit", "controller"],
)
@pytest.mark.parametrize("mode", [(), ASYNC], ids=["sync", "async"])
def test_lost_rows_end_a_run_with_their_cause_and_it_can_go_on(
    make_run: MakeRun, transport: str, victim: str, cause: str, mode: Sequence[str]
) -> None:
    run = make_run("lost", "max_steps=100000", "eval_steps=0", transport, *mode)
    process = run.start()
    run.wait_for_step(3)
    family = descendants(process.pid)
    os.kill(wait_for(lambda: named(process.pid, victim), victim, 10), signal.SIGKILL)
    killed = time.monotonic()
    output, _ = process.communicate(timeout=90)
    assert time.monotonic() - killed < 60
    assert process.returncode == 1
    assert cause in output and "resume_from_checkpoint=true" in output
    assert_all_gone(family)
    newest = max(int(name.partition("-")[2]) for name in run.checkpoints() if not name.startswith("."))
    code, output = run.finish("resume_from_checkpoint=true", f"max_steps={newest + 1}")
    assert code == 0, output


def named(root: int, title: str) -> int | None:
    """The first process below another whose title begins so."""
    for process in psutil.Process(root).children(recursive=True):
        command = process.cmdline()
        if command and command[0].startswith(title):
            return process.pid
    return None


def held(run: Run) -> list[tuple[float, float]]:
    """Rows and bytes in the transport after each training step."""
    [file] = [path for path in run.folder.rglob("metrics.jsonl")]
    records = [json.loads(line) for line in file.read_text().splitlines()]
    return [(one["system/transport_rows"], one["system/transport_bytes"]) for one in records if one["step"]]
