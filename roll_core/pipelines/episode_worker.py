"""A process of its own that plays a run's episodes, and puts their rows where trainers read them."""

from __future__ import annotations

import logging
from collections import deque
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
from roll_core.pipelines.agentic_start import Words, make_episodes, read_words
from roll_core.pipelines.environments import environments_of
from roll_core.pipelines.episodes import Episodes
from roll_core.pipelines.launch import Site
from roll_core.pipelines.remote_rollout import RemoteRollout
from roll_core.pipelines.step_report import shown_rows
from roll_core.rollout.env_batch import bare_turns, facts_of, paddings_of, texts_of, tokens_of
from roll_core.rollout.env_episode import Episode
from roll_core.transport import Transport

Result = TypeVar("Result")
Told = tuple[Result, list[str]]
"""A result, and notices for the terminal."""
State = Mapping[str, Any]
"""What a checkpoint must hold, as JSON data. Methods that change it return it behind what they tell, so that the driver
can keep a reference to it without reading it."""

log = logging.getLogger(__name__)


class EpisodeWorker(Worker):
    """Plays with the engines of the run as the driver would, which is told what a step's rows are, not what is in them.

    One thread takes all calls, as environments end with the thread that started them.
    """

    def __init__(self, spec: WorkerSpec, site: Site, engines: WorkerGroup) -> None:
        super().__init__(spec)
        assert isinstance(site.config, AgenticConfig), "only agentic runs play episodes"
        self.config, self.site, self.engines = site.config, site, engines
        self.engines.watch_all()
        self._words: Words | None = None
        self._episodes: Episodes | None = None
        self._transport: Transport | None = None
        self._pauses: list[ExitStack] = []
        self._notices: deque[str] = deque()

    @property
    def episodes(self) -> Episodes:
        """What was begun."""
        assert self._episodes is not None, "episodes are played after `begin`"
        return self._episodes

    def begin(self) -> tuple[Told[None], State]:
        """Read the tokenizer, and make the environments."""
        waiter = Waiter(self.config.rpc_timeout)
        waiter.watch(self.engines)
        waiter.unwatch_peers(self.engines)
        make_environments = partial(environments_of, self.config, self.site, self.platform)
        words = self._words = read_words(self.config)
        self._episodes = make_episodes(self.config, self.engines, waiter, words, self._notify, make_environments)
        return self._told(None), self._state()

    def play(self, step: int, store: RowStore) -> tuple[Told[tuple[RemoteRollout, dict[str, float]]], State]:
        """A step's episodes, whose rows are in the store, and metrics of them."""
        episodes, metrics = self.episodes.play(step)
        return self._told((self._put(episodes, step, store), metrics)), self._state()

    def _put(self, episodes: Sequence[Episode], step: int, store: RowStore) -> RemoteRollout:
        assert self._words is not None, "episodes are played after `begin`"
        facts = facts_of(episodes, self.config.row_length)
        texts = texts_of(episodes, self._words.dialogue)
        small = facts.select(["prompt_lengths", "response_lengths"])
        meta = {**facts.meta_info, PADDINGS: paddings_of(facts, self._words.pad_token_id)}
        batch = DataProto(small.batch, {**tokens_of(episodes), **texts, "turns": bare_turns(episodes)}, meta)
        self._transport = self._transport or store.open()
        rows = put_batch(self._transport, batch, partition=store.partition)
        shown = {row: texts["prompt_text"][row] for row in shown_rows(self.config, len(facts), step)}
        return RemoteRollout(rows, facts, shown)

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

    def load_state_dict(self, state: State) -> tuple[Told[None], State]:
        """Go on from a checkpoint."""
        self.episodes.load_state_dict(state)
        return self._told(None), self._state()

    def close(self) -> None:
        """End all environments."""
        if self._episodes is not None:
            self._episodes.close()

    def _state(self) -> State:
        return self.episodes.as_json(self.episodes.state_dict())

    def _notify(self, notice: str) -> None:
        log.info("%s", notice)  # The driver hears of it when the call that is being answered ends.
        self._notices.append(notice)

    def _told(self, result: Result) -> Told[Result]:
        return result, [self._notices.popleft() for _ in range(len(self._notices))]
