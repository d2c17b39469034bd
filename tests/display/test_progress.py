import pytest

from roll_core.display.plain import step_line
from roll_core.display.progress import Progress, duration


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_line_of_a_step_holds_what_a_user_watches() -> None:
    clock = Clock()
    progress = Progress(500, "exp", clock)
    clock.now += 30
    progress.update(
        1,
        {
            "train/loss": 0.0123,
            "reward/mean": 0.25,
            "val_correct/all/mean": 0.315,
            "response_length/mean": 812.4,
            "system/tps/tps": 15230.7,
            "time/step_total": 30.0,
            "time/step_generate": 18.0,
            "time/step_train": 9.0,
            "time/actor_train/train_step/total": 8.9,
        },
    )
    assert step_line(progress) == (
        "step 1/500  reward 0.250  accuracy 31.5%  length 812  tokens/s 15,231  loss 0.0123  "
        "time generate 60%, train 30%, other 10%  elapsed 30s  eta 4h09m"
    )


def test_the_accuracy_stays_between_validations_and_the_first_is_kept() -> None:
    progress = Progress(10, "exp")
    progress.update(0, {"val_correct/all/mean": 0.25})
    progress.update(1, {"reward/mean": 0.5})
    progress.update(2, {"val_correct/all/mean": 0.75, "reward/mean": 0.6})
    progress.update(3, {"reward/mean": 0.7})
    assert progress.shown == {"reward": "0.700", "accuracy": "75.0%"}
    assert (progress.first_accuracy, progress.last_accuracy) == (0.25, 0.75)


def test_time_left_follows_the_last_steps() -> None:
    clock = Clock()
    progress = Progress(100, "exp", clock)
    assert progress.eta_s is None
    for step in range(1, 51):
        clock.now += 1.0 if step <= 30 else 4.0
        progress.update(step, {})
    assert progress.eta_s == 50 * 4.0


def test_validation_before_the_first_step_does_not_count_as_a_step() -> None:
    clock = Clock()
    progress = Progress(10, "exp", clock)
    clock.now += 60
    progress.update(0, {})
    clock.now += 2
    progress.update(1, {})
    assert progress.eta_s == 9 * 2.0


def test_a_resumed_run_counts_only_its_own_steps() -> None:
    clock = Clock()
    progress = Progress(100, "exp", clock)
    clock.now += 5
    progress.update(51, {})
    assert progress.eta_s == 49 * 5.0


def test_the_last_step_has_no_time_left() -> None:
    progress = Progress(1, "exp")
    progress.update(1, {})
    assert "eta" not in step_line(progress)


def test_parts_that_overlap_still_sum_to_the_whole() -> None:
    progress = Progress(10, "exp")
    progress.update(1, {"time/step_total": 5.0, "time/step_generate": 6.0, "time/reward": 2.0})
    assert progress.time_shares == {"generate": 0.75, "reward": 0.25}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0, "0s"), (8.4, "8s"), (59.6, "1m00s"), (185, "3m05s"), (7800, "2h10m"), (370800, "4d07h")],
)
def test_durations_read_as_a_person_says_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_starting_up_does_not_count_as_part_of_the_first_step() -> None:
    clock = Clock()
    progress = Progress(10, "exp", clock)
    clock.now += 60
    progress.update(1, {"time/step_total": 2.0})
    assert progress.eta_s == 9 * 2.0
    clock.now += 3
    progress.update(2, {"time/step_total": 2.0})
    assert progress.eta_s == 8 * 2.5
