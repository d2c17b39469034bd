"""Rollouts that go on while others train, in runs as a user starts them: bounded in age, and no prompt lost."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.runs import Run
from tests.end_to_end.test_transports import QUEUE, RAY, held

MakeRun = Callable[..., Run]
KILL_AT = Path(__file__).parent / "kill_at.py"
KILL_ENGINE = Path(__file__).parent / "kill_engine.py"
COPIED = "transfer_backend={backend_name: ray, backend_config: {ownership: copied}}"
ASYNC = (
    "async_generation_ratio=1",
    "actor_infer.device_mapping=[1]",
    "eval_steps=3",
    "save_steps=3",
    "max_steps=6",
    # Groups that are all right or all wrong are dropped.
    "rewards.math_rule.query_filter_config={type: std_filter, filter_args: {std_threshold: 0}}",
)


def open_prompts(run: Run, step: int) -> dict[str, Any]:
    """What the checkpoint after a step says of prompts on their way."""
    file = run.folder / "checkpoints" / f"checkpoint-{step}" / "pipeline" / "state.json"
    state: dict[str, Any] = json.loads(file.read_text())["sampler"]
    return state


def trained_prompts(run: Run) -> dict[int, Counter[str]]:
    """How many answers to each prompt every step trained on."""
    found = {}
    for name, text in run.rollouts().items():
        if name.startswith("step-"):
            # Answers may hold characters at which splitlines would split too.
            rows = [json.loads(line) for line in text.strip("\n").split("\n")]
            found[int(name[5:11])] = Counter(row["id"] for row in rows)
    return found


def check(run: Run, last: int, bound: int = 1) -> None:
    """No sample too old, whole prompts only, and every prompt that was drawn accounted for, by metrics and state."""
    metrics = run.metrics()
    assert [step for step in metrics if step] == list(range(1, last + 1))
    for step in range(1, last + 1):
        assert 0 <= metrics[step]["scheduler/off_policy_max"] <= bound, step
    trained = trained_prompts(run)
    assert list(trained) == list(range(1, last + 1))
    for step, answers in trained.items():
        assert len(answers) == 4 and set(answers.values()) == {4}, step
    names = [name for answers in trained.values() for name in answers]
    assert len(set(names)) == len(names) == 4 * last, "a prompt of the first epoch was trained on twice"
    state = open_prompts(run, last)
    account, still_open = state["account"], {each["id"] for each in state["open"]}
    assert account["ended"]["trained"] == 4 * last
    assert account["drawn"] == sum(account["ended"].values()) + len(state["open"])
    # The flow goes on dropping after a step has told how many it dropped.
    assert account["ended"]["filtered"] >= sum(metrics[s]["scheduler/query_filter_count"] for s in range(1, last + 1))
    assert not still_open & set(names)


@pytest.mark.slow
@pytest.mark.parametrize("transport", [(), (RAY,)], ids=["in calls", "ray"])
def test_a_run_that_was_killed_in_mid_step_trains_on_no_prompt_twice_and_loses_none(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, transport: tuple[str, ...]
) -> None:
    run = make_run("async_killed", *ASYNC, *transport)
    monkeypatch.setenv("KILL_AT", "train 5")
    code, output = run.finish(script=KILL_AT)
    assert code == -signal.SIGKILL, output
    assert run.checkpoints() == ["checkpoint-3"]
    before = open_prompts(run, 3)
    held = {each["id"] for each in before["open"]}
    code, output = run.finish("resume_from_checkpoint=true")
    assert code == 0, output
    assert "going on after step 3" in output
    check(run, 6)
    state, trained, metrics = open_prompts(run, 6), trained_prompts(run), run.metrics()
    later = {name for step in (4, 5, 6) for name in trained[step]}
    assert before["account"]["drawn"] >= 12 + len(held)
    # What was open then was trained on since, or dropped by the filter since, or is open still.
    missing = held - later - {each["id"] for each in state["open"]}
    assert len(missing) <= state["account"]["ended"]["filtered"] - before["account"]["ended"]["filtered"]
    assert {step for step in metrics if "val_correct/all/mean" in metrics[step]} == {0, 3, 6}
    assert max(metrics[step]["scheduler/off_policy_max"] for step in range(2, 7)) == 1, "nothing ever overlapped"


@pytest.mark.slow
@pytest.mark.parametrize("transport", [(), (RAY,), (QUEUE,)], ids=["in calls", "ray", "TransferQueue"])
def test_a_long_run_is_never_staler_than_its_bound_and_accounts_for_every_prompt(
    make_run: MakeRun, transport: tuple[str, ...]
) -> None:
    long = ("max_steps=100", "save_steps=100", "eval_steps=0", "async_generation_ratio=2")
    run = make_run("async", *ASYNC, *long, *transport)
    code, output = run.finish()
    assert code == 0, output
    check(run, 100, bound=2)
    if transport:
        # A row for each answer to what is open, for what the newest state still refers to, and for what is on its way.
        most_open = 4 + max(one["scheduler/query_open_count"] for one in run.metrics().values())
        assert max(rows for rows, _bytes in held(run)) <= 3 * 4 * most_open


@pytest.mark.slow
@pytest.mark.parametrize("transport", [(), (COPIED,)], ids=["in calls", "copied"])
def test_two_engines_and_a_dead_one_lose_no_prompt(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, transport: tuple[str, ...]
) -> None:
    two = ("actor_infer.device_mapping=[1,2]", "max_steps=30", "save_steps=30")
    run = make_run("async_death", *ASYNC, *two, *transport)
    monkeypatch.setenv("KILL_ENGINE", "1 async/30/")
    code, output = run.finish("eval_steps=0", script=KILL_ENGINE)
    assert code == 0, output
    assert "actor_infer rank 1 died" in output
    check(run, 30)


@pytest.mark.slow
def test_answers_that_end_with_an_engine_are_sampled_anew_when_the_run_goes_on(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = ("actor_infer.device_mapping=[1,2]", "max_steps=12", "save_steps=12", "eval_steps=0")
    run = make_run("async_lost", *ASYNC, *two, RAY)
    monkeypatch.setenv("KILL_ENGINE", "1 step/4")
    code, output = run.finish(script=KILL_ENGINE)
    assert code == 1, output
    assert "rows are lost with the process that put them" in output
    assert "answers that were on their way are lost with the process that put them" in output
    code, output = run.finish("resume_from_checkpoint=true")
    assert code == 0, output
    check(run, 12)
