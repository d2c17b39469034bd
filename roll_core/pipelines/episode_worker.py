"""A process of its own that plays a run's episodes, and puts their rows where trainers read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.spec import WorkerSpec
from roll_core.cluster.worker import Worker
from roll_core.config.schema import AgenticConfig
from roll_core.data import DataProto
from roll_core.data.answers import RowStore
from roll_core.data.padding import PADDINGS
from roll_core.data.remote_batch import put_batch
from roll_core.pipelines.agentic_start import make_episodes, read_words
from roll_core.pipelines.environments import environments_of
from roll_core.pipelines.episodes import Episodes
from roll_core.pipelines.launch import Setting
from roll_core.pipelines.remote_rollout import RemoteRollout
from roll_core.pipelines.step_report import shown_rows
from roll_core.rollout.env_batch import facts_of, paddings_of, texts_of, tokens_of
from roll_core.transport import Transport

Result = TypeVar("Result")
Told = tuple[Result, list[str]]
"""A result, and notices for the terminal."""


class EpisodeWorker(Worker):
    """Plays with the engines of the run as the driver would, which is told what a step's rows are, not what is in them.

    One thread takes all calls, as environments end with the thread that started them.
    """

    def __init__(self, spec: WorkerSpec, setting: Setting, engines: WorkerGroup) -> None:
        super().__init__(spec)
        assert isinstance(setting.config, AgenticConfig), "only agentic runs play episodes"
        self.config, self.setting, self.engines = setting.config, setting, engines
        self.engines.watch_all()
        self._episodes: Episodes | None = None
        self._transport: Transport | None = None
        self._pauses: list[ExitStack] = []
        self._notices: list[str] = []

    @property
    def episodes(self) -> Episodes:
        """What was begun."""
        assert self._episodes is not None, "episodes are played after `begin`"
        return self._episodes

    def begin(self) -> Told[None]:
        """Read the tokenizer, and make the environments."""
        waiter = Waiter(self.config.rpc_timeout)
        if len(self.engines) == 1:
            waiter.watch(self.engines)
        make_environments = partial(environments_of, self.config, self.setting)
        self._words = read_words(self.config)
        self._episodes = make_episodes(
            self.config, self.engines, waiter, self._words, self._notices.append, make_environments
        )
        return self._told(None)

    def play(self, step: int, store: RowStore) -> Told[tuple[RemoteRollout, dict[str, float]]]:
        """A step's episodes, whose rows are in the store, and metrics of them."""
        episodes, metrics = self.episodes.play(step)
        facts = facts_of(episodes, self.config.row_length)
        texts = texts_of(episodes, self._words.dialogue)
        small = facts.select(["prompt_lengths", "response_lengths"])
        meta = {**facts.meta_info, PADDINGS: paddings_of(facts, self._words.pad_token_id)}
        batch = DataProto(small.batch, {**tokens_of(episodes), **texts}, meta)
        self._transport = self._transport or store.open()
        rows = put_batch(self._transport, batch, partition=store.partition)
        shown = {row: texts["prompt_text"][row] for row in shown_rows(self.config, len(facts), step)}
        return self._told((RemoteRollout(rows, facts, shown), metrics))

    def validate(self, step: int) -> Told[tuple[dict[str, float], int]]:
        """As `Episodes.validate`."""
        return self._told(self.episodes.validate(step))

    def pause(self) -> Told[None]:
        """Let engines be free until `go_on`; may be nested."""
        pause = ExitStack()
        pause.enter_context(self.episodes.paused())
        self._pauses.append(pause)
        return self._told(None)

    def go_on(self) -> Told[None]:
        """The end of the newest pause."""
        self._pauses.pop().close()
        return self._told(None)

    def weights_are(self, version: int, engines: Sequence[Any]) -> Told[None]:
        """Engines, these actors, have new weights."""
        self.engines.follow(engines)
        self.episodes.weights_are(version)
        return self._told(None)

    def state(self) -> tuple[None, Mapping[str, Any]]:
        """What a checkpoint must hold, as JSON data, behind nothing: so one can wait for it without reading it."""
        return None, self.episodes.as_json(self.episodes.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> Told[None]:
        """Go on from a checkpoint."""
        self.episodes.load_state_dict(state)
        return self._told(None)

    def close(self) -> None:
        """End all environments."""
        if self._episodes is not None:
            self._episodes.close()

    def _told(self, result: Result) -> Told[Result]:
        notices, self._notices[:] = list(self._notices), []
        return result, notices
