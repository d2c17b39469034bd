from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.trackers import RunInfo, RunTrackers, Timers, Tracker, open_trackers, read_metrics, redact
from roll_core.trackers.base import Metrics
from roll_core.trackers.plain import plain_metrics


class Recording(Tracker):
    def __init__(self, failing: range = range(0), fails_to_close: bool = False) -> None:
        self.failing, self.fails_to_close = failing, fails_to_close
        self.calls: list[int] = []
        self.closed = False

    def log(self, step: int, metrics: Metrics) -> None:
        self.calls.append(step)
        if step in self.failing:
            raise ConnectionError("no network")

    def close(self) -> None:
        if self.fails_to_close:
            raise ConnectionError("no network")
        self.closed = True


def test_a_failing_tracker_is_mentioned_once_and_stops_nothing() -> None:
    warnings: list[str] = []
    good, bad = Recording(), Recording(failing=range(1, 3))
    trackers = RunTrackers({"bad": bad, "good": good}, warnings.append)
    for step in range(5):
        trackers.log(step, {"x": 1})
    trackers.close()
    assert good.calls == bad.calls == [0, 1, 2, 3, 4]
    assert warnings == [
        "tracker bad could not record step 1; training goes on: ConnectionError: no network",
        "tracker bad did not record 2 steps",
    ]


def test_a_tracker_that_keeps_failing_is_left_alone() -> None:
    warnings: list[str] = []
    bad = Recording(failing=range(100))
    trackers = RunTrackers({"bad": bad}, warnings.append)
    for step in range(20):
        trackers.log(step, {"x": 1})
    trackers.close()
    assert bad.calls == [0, 1, 2, 3, 4]
    assert warnings[1:] == [
        "tracker bad failed 5 times in a row and is left alone from here on",
        "tracker bad did not record 20 steps",
    ]


def test_a_tracker_that_cannot_be_closed_leaves_the_others(tmp_path: Path) -> None:
    warnings: list[str] = []
    good = Recording()
    RunTrackers({"bad": Recording(fails_to_close=True), "good": good}, warnings.append).close()
    assert warnings == ["tracker bad could not be closed: ConnectionError: no network"]
    assert good.closed


def test_a_number_that_is_not_finite_is_warned_about_once_per_name(tmp_path: Path) -> None:
    warnings: list[str] = []
    trackers = open_trackers(["tensorboard"], {}, RunInfo("exp", tmp_path, tmp_path, warn=warnings.append))
    trackers.log(0, {"a": float("nan"), "b": 1.0})
    trackers.log(1, {"a": float("inf"), "b": torch.tensor(float("-inf"))})
    trackers.close()
    assert warnings == ["metric a is nan at step 0", "metric b is -inf at step 1"]
    assert read_metrics(tmp_path / "metrics.jsonl") == [
        {"step": 0, "a": "nan", "b": 1.0},
        {"step": 1, "a": "inf", "b": "-inf"},
    ]


def test_values_become_plain_numbers_and_tags_go() -> None:
    plain = plain_metrics(
        {
            "loss@mean": np.float32(0.5),
            "count@sum": np.int64(3),
            "lr": torch.tensor(1e-6, dtype=torch.float64),
            "flag": True,
            "length@max": 7,
            "length@min": 2,
            "note": "text",
        }
    )
    assert plain == {
        "loss": 0.5,
        "count": 3,
        "lr": 1e-6,
        "flag": 1,
        "length/max": 7,
        "length/min": 2,
        "note": "text",
    }
    assert {type(value) for value in plain.values()} == {float, int, str}


@pytest.mark.parametrize("value", [None, [1.0], torch.zeros(2)])
def test_a_metric_that_is_no_number_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match="metric 'reward/mean' is a "):
        plain_metrics({"reward/mean": value})


def test_timers_add_up_and_start_anew() -> None:
    ticks = iter([0.0, 1.0, 5.0, 7.0, 10.0, 10.5])
    timers = Timers(clock=lambda: next(ticks))
    with timers("time/step_generate"):
        pass
    with timers("time/step_train"):
        pass
    with pytest.raises(KeyError), timers("time/step_train"):
        raise KeyError
    assert timers.take() == {"time/step_generate": 1.0, "time/step_train": 2.5}
    assert timers.take() == {}


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "judge_api_key",
        "WANDB_API_KEY",
        "HF_TOKEN",
        "token",
        "password",
        "secret",
        "login_kwargs",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_secrets_are_hidden(key: str) -> None:
    assert redact({"a": [{key: "xyz"}]}) == {"a": [{key: "(hidden)"}]}
    assert redact({key: None}) == {key: None}


@pytest.mark.parametrize(
    "key",
    ["eos_token", "pad_token", "max_new_tokens", "tokenizer", "max_tokens_per_microbatch_in_train", "key", "monkey"],
)
def test_other_keys_are_shown(key: str) -> None:
    assert redact({key: "xyz"}) == {key: "xyz"}


def test_logins_in_addresses_are_hidden() -> None:
    assert redact({"url": "https://me:pw@host:80/x"}) == {"url": "https://(hidden)@host:80/x"}
