"""What is saved when a run is cut short; the workers are replaced by a role that only remembers what it was asked."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from roll_core.checkpoint import CheckpointFolder, load_pipeline_state
from roll_core.cluster.calls import Call, Waiter
from roll_core.config.schema import RLVRConfig
from roll_core.data.sampler import PromptSampler
from roll_core.errors import RollError, WorkerDied
from roll_core.inference import SamplingParams
from roll_core.pipelines.interrupts import Interrupts
from roll_core.pipelines.launch import Crew
from roll_core.pipelines.recovery import Recovery
from roll_core.pipelines.shaping import Shaper
from roll_core.rollout.collector import Collector


class Trainer:
    role = "actor_train"

    def __len__(self) -> int:
        return 1

    def submit(self, method: str, path: Path) -> list[Call]:
        (path / "weights").write_text(method)
        return []


@pytest.fixture
def recovery(tmp_path: Path) -> Recovery:
    config = RLVRConfig.model_validate({"adv_estimator": "grpo", "save_steps": 0, "max_steps": 9})
    trainer: Any = Trainer()
    crew = Crew(actor_train=trainer, actor_infer=trainer)
    sampler = PromptSampler(["math_rule"] * 8, 2, seed=1)
    folder = CheckpointFolder(tmp_path)
    rollout = Collector(None, [], sampler, {}, 2, SamplingParams(4))  # type: ignore[arg-type]
    return Recovery(config, folder, crew, Waiter(5), rollout, Shaper(config), Interrupts())


def test_a_failure_between_steps_saves_the_finished_ones(recovery: Recovery, tmp_path: Path) -> None:
    recovery.begin_training()
    recovery.trained(1)
    recovery.finish()
    with pytest.raises(RollError) as caught, recovery.rescue():
        raise RollError("the engine is gone")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]
    assert caught.value.__notes__ == [
        "  1 steps are saved; to go on: the same command with resume_from_checkpoint=true"
    ]


def test_weights_are_not_saved_with_the_state_of_the_step_before(
    recovery: Recovery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovery.begin_training()
    recovery.trained(1)
    recovery.finish()
    recovery.begin_training()
    monkeypatch.setattr(recovery.rollout, "state_dict", lambda: (_ for _ in ()).throw(RollError("gone")))
    with pytest.raises(RollError) as caught, recovery.rescue():
        recovery.trained(2)
    assert not (tmp_path / "checkpoint-2").exists()
    assert "no step was saved yet" in caught.value.__notes__[0]


def test_weights_that_were_already_trained_are_not_saved_as_those_of_the_step_before(
    recovery: Recovery, tmp_path: Path
) -> None:
    recovery.begin_training()
    recovery.trained(1)
    recovery.finish()
    with pytest.raises(RollError, match="half trained"), recovery.rescue():
        recovery.begin_training()
        raise RollError("half trained")
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_is_trained_is_saved_though_its_validation_failed(recovery: Recovery, tmp_path: Path) -> None:
    recovery.begin_training()
    recovery.trained(2)
    with pytest.raises(RollError, match="validation"), recovery.rescue():
        raise RollError("an engine died in the validation after step 2")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_engines_end_before_the_trainers_are_asked_to_save(recovery: Recovery, tmp_path: Path) -> None:
    """They may be waiting for an engine that waits for the one that died."""
    saved_when_killed: list[bool] = []

    class Engines(Trainer):
        def kill(self) -> None:
            saved_when_killed.append((tmp_path / "checkpoint-1").exists())

    recovery.crew.actor_infer = Engines()  # type: ignore[assignment]
    recovery.trained(1)
    with pytest.raises(WorkerDied), recovery.rescue():
        raise WorkerDied("actor_infer rank 0 died")
    assert saved_when_killed == [False]
    assert (tmp_path / "checkpoint-1").exists()


def test_what_engines_hold_of_rollouts_is_read_before_they_end(recovery: Recovery, tmp_path: Path) -> None:
    class Engines(Trainer):
        is_alive = True

        def kill(self) -> None:
            self.is_alive = False

    class Rollouts(Collector):
        def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
            return state if "answers" in state else {**state, "answers": engines.is_alive}

    engines: Any = Engines()
    recovery.crew.actor_infer = engines
    vars(recovery)["rollout"] = Rollouts(None, [], recovery.rollout.sampler, {}, 2, SamplingParams(4))  # type: ignore
    recovery.trained(1)
    with pytest.raises(WorkerDied), recovery.rescue():
        raise WorkerDied("actor_infer rank 0 died")
    assert not engines.is_alive
    assert load_pipeline_state(tmp_path / "checkpoint-1").sampler["answers"] is True


def test_an_earlier_runs_higher_checkpoint_is_not_what_the_advice_leads_to(recovery: Recovery, tmp_path: Path) -> None:
    recovery.trained(7)
    recovery.finish()
    recovery.save(recovery.waiter)
    recovery.begin_training()
    recovery.trained(2)
    recovery.finish()
    with pytest.raises(RollError) as caught, recovery.rescue():
        recovery.saved_step = 0
        raise RollError("the engine is gone")
    assert caught.value.__notes__[0].endswith(f"resume_from_checkpoint={tmp_path / 'checkpoint-2'}")


def test_every_kind_of_end_says_how_to_go_on(recovery: Recovery) -> None:
    for error in (KeyboardInterrupt(), OSError("disk"), RollError("worker")):
        with pytest.raises(type(error)) as caught, recovery.rescue():
            raise error
        assert caught.value.__notes__ == ["  no step was saved yet: the run starts over"]


def test_an_interrupt_in_training_stops_the_run_when_the_step_is_saved(recovery: Recovery, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), recovery.interrupts.listening(), recovery.rescue():
        recovery.begin_training()
        os.kill(os.getpid(), signal.SIGINT)
        recovery.trained(1)
        recovery.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]
