"""Episodes that a worker plays and puts are trained on as those that the driver plays, which need not see them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from roll_core.cluster import calls
from roll_core.cluster.train_worker import CACHE_BYTES, TrainWorker
from roll_core.config.schema import AgenticConfig
from roll_core.data.remote_batch import BatchReader
from roll_core.errors import WorkerDied
from roll_core.pipelines.agentic import AgenticPipeline
from roll_core.pipelines.agentic_shaping import EpisodeShaper
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.episode_worker import EpisodeWorker
from roll_core.pipelines.episodes import Episodes
from roll_core.pipelines.remote_episodes import RemoteEpisodes
from roll_core.pipelines.shaping_worker import RemoteShaper
from roll_core.pipelines.step_report import StepSummary, shown, shown_rows
from roll_core.rollout.env_episode import Episode
from roll_core.trackers import Timers
from roll_core.transport import TransportStats
from tests.pipelines.bare_steps import (
    Counting,
    Everywhere,
    Measured,
    Model,
    Waiting,
    assert_trained_alike,
    bare,
    group,
)
from tests.pipelines.test_agentic_shaping import DIALOGUE, episode

GRPO = {"adv_estimator": "grpo", "use_kl_loss": True, "enable_reference": True}
GIGPO = {"adv_estimator": "gigpo"}
VALUES = {"adv_estimator": "gae", "add_token_level_kl": True, "entropy_loss_coef": 0.01}


class Played:
    """Collects groups of two, of different lengths, that do not end alike."""

    def __init__(self, *, by_steps: bool, turns: int = 2) -> None:
        self.by_steps, self.turns = by_steps, turns
        self.drawn = self.pauses = 0
        self.is_closed = False

    def __call__(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        self.drawn += 3
        made = [
            episode(number, member, self._rewards(number + step, member), by_steps=self.by_steps, states="abc")
            for number in range(3)
            for member in range(2)
        ]
        return made, {"env/faults": float(step)}

    def _rewards(self, more: int, member: int) -> list[float]:
        return [0.0] * (self.turns + more) + [float(member)]

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pauses += 1
        yield
        self.pauses -= 1

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def as_json(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = state["drawn"]

    def close(self) -> None:
        self.is_closed = True


class AgenticStep:
    """A step of a pipeline of bare workers."""

    def __init__(self, settings: dict[str, Any], transport: Everywhere | None, collect: Any) -> None:
        training = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
        roles = {"actor_train": {"training_args": training}, "critic": {"training_args": training}}
        config = AgenticConfig.model_validate({"ppo_epochs": 2, "logging_steps": 1, **roles, **settings})
        reader = None if transport is None else BatchReader(transport, CACHE_BYTES)
        self.models = {"actor_train": [Model(0.0), Model(0.0)], "reference": [Model(0.5)], "critic": [Model(1.0)]}
        groups = {
            role: group(role, *[bare(TrainWorker, strategy=model, reader=reader) for model in models])
            for role, models in self.models.items()
        }
        waiter: Any = Waiting()
        self.transport, self.delivery = transport, Delivery(transport)
        episodes: Any = Episodes(config, DIALOGUE, 0, collect, None)
        shaping = None
        if transport is not None:
            words = SimpleNamespace(dialogue=DIALOGUE, pad_token_id=0)
            notices = deque(["hello"])
            worker = bare(
                EpisodeWorker,
                config=config,
                _episodes=episodes,
                _words=words,
                _transport=transport,
                _notices=notices,
                _pauses=[],
            )
            worker.begin = lambda: ((None, []), {})
            self.worker = worker
            self.notices: list[str] = []
            players, engines = group("episodes", worker), group("actor_infer")
            episodes = RemoteEpisodes(players, engines, waiter, self.delivery, self.notices.append)
            shaping = group("shaping", RemoteShaper(config))
        crew = SimpleNamespace(
            actor_train=groups["actor_train"],
            reference=groups["reference"] if config.needs_reference else None,
            critic=groups["critic"] if config.needs_critic else None,
            trainers=[],
            shaping=shaping,
        )
        self.parts: Any = SimpleNamespace(
            config=config,
            crew=crew,
            waiter=waiter,
            collector=episodes,
            shaper=EpisodeShaper(config),
            reporter=SimpleNamespace(timers=Timers()),
            delivery=self.delivery,
        )
        self.pipeline = AgenticPipeline(self.parts, episodes, validates=False)
        for update in (self.pipeline.policy_update, self.pipeline.value_update):
            if update is not None:
                update.waiter = waiter

    def __call__(self, step: int) -> tuple[dict[str, float], Any]:
        """Metrics, and what the reporter is told."""
        with self.delivery.step(step):
            batch, metrics = self.pipeline.rollout(step)
            batch = self.pipeline.scoring(batch.with_meta_info(temperature=1.0), 1.0, by_actor=True)
            shaped = self.pipeline.shape(batch, step)
            trained = self.pipeline.train(shaped, step)
        times = ("actor/backward_seconds", "critic/backward_seconds")
        return {k: v for k, v in (metrics | shaped.metrics | trained).items() if k not in times}, shaped.told


@pytest.mark.parametrize("by_steps", [False, True], ids=["a row per episode", "a row per turn"])
@pytest.mark.parametrize("settings", [GRPO, GIGPO, VALUES], ids=["grpo", "values of turns", "values and token KL"])
def test_every_rank_trains_on_the_same_rows_bit_for_bit(settings: dict[str, Any], by_steps: bool) -> None:
    transport = Everywhere()
    plain, remote = (AgenticStep(settings, one, Played(by_steps=by_steps)) for one in (None, transport))
    for step in (1, 2):
        (expected, batch), (found, summary) = plain(step), remote(step)
        assert found == expected and found["env/faults"] == step
        assert isinstance(summary, StepSummary) and summary.num_rows == len(batch)
        rows = shown_rows(plain.parts.config, len(batch), step)
        assert list(summary.samples) == [shown(batch, row).shortened() for row in rows] != []
        assert plain.parts.shaper.state_dict() == remote.parts.shaper.state_dict()
        assert transport.stats() == TransportStats(0, 0)
    assert remote.notices == ["hello"]
    assert_trained_alike(plain.models, remote.models)


def test_less_than_a_hundredth_of_a_steps_episodes_passes_through_the_driver() -> None:
    transport = Measured()
    step = AgenticStep({**GRPO, "logging_steps": 0}, transport, Played(by_steps=False, turns=3000))
    Counting.passed = 0
    step(1)
    assert 0 < Counting.passed < transport.most / 100, f"{Counting.passed} bytes of {transport.most}"


def test_ranks_without_rows_get_columns_of_the_same_types() -> None:
    one_by_one = {
        "actor_train": {"training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}}
    }
    step = AgenticStep({**GRPO, **one_by_one}, Everywhere(), Played(by_steps=False))
    step(1)
    some, none = ([batch for batch in model.trained] for model in step.models["actor_train"])
    assert [len(batch) for batch in some] == [1] * 12 and [len(batch) for batch in none] == [0] * 12
    for one, other in zip(some, none):
        assert {name: one[name].dtype for name in one.columns} == {name: other[name].dtype for name in other.columns}


def test_a_state_is_that_after_the_newest_step_whatever_becomes_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    step = AgenticStep(GRPO, Everywhere(), Played(by_steps=False))
    episodes = step.pipeline.episodes
    assert isinstance(episodes, RemoteEpisodes)
    monkeypatch.setattr(calls.Waiter, "wait", lambda self, made: [call.ref for call in made])
    step(1)
    after_one = episodes.state_dict()
    step.worker.play = lambda *_: (_ for _ in ()).throw(WorkerDied("gone"))
    with pytest.raises(WorkerDied):
        step(2)
    assert episodes.as_json(after_one) == episodes.as_json(episodes.state_dict()) == {"drawn": 3}
    assert episodes.as_json({"drawn": 9}) == {"drawn": 9}
    episodes.load_state_dict({"drawn": 6})
    assert episodes.as_json(episodes.state_dict()) == {"drawn": 6}


def test_pauses_may_be_nested() -> None:
    collector = Played(by_steps=False)
    step = AgenticStep(GRPO, Everywhere(), collector)
    with step.pipeline.episodes.paused():
        with step.pipeline.episodes.paused():
            assert collector.pauses == 2
        assert collector.pauses == 1
    assert collector.pauses == 0
