"""The worker processes of a reward domain: one that runs a reward, and one that runs a judge in an engine."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roll_core.cluster.process import load_target
from roll_core.cluster.spec import WorkerSpec
from roll_core.cluster.worker import Worker

if TYPE_CHECKING:
    from roll_core.data.answers import RowStore
    from roll_core.data.remote_batch import BatchReader, RowRemoteBatch
    from roll_core.inference import SamplingParams
    from roll_core.rewards import RewardSample, Score


class _Grader(Worker):
    """A worker of a reward domain, which may be asked for scores of responses that are elsewhere."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec)
        self._lock = threading.Lock()
        self._reader: BatchReader | None = None

    def compute_rewards(self, samples: Sequence[RewardSample]) -> tuple[list[Score], int]:
        """One score per sample, and this process's id, which changes when the worker was restarted."""
        raise NotImplementedError

    def compute_rewards_of_rows(
        self, samples: Sequence[RewardSample], rows: RowRemoteBatch, store: RowStore
    ) -> tuple[list[Score], int]:
        """As `compute_rewards`; the responses are read here, and nothing else of their rows."""
        from roll_core.data.answers import TEXT_COLUMN
        from roll_core.data.remote_batch import BatchReader

        with self._lock:
            reader = self._reader = self._reader or BatchReader(store.open())
        texts = reader.materialize(rows, [TEXT_COLUMN])[TEXT_COLUMN]
        return self.compute_rewards([replace(one, response=text) for one, text in zip(samples, texts)])


class RewardActor(_Grader):
    """One worker of a reward domain. It has no state worth keeping, so Ray may start it again."""

    def __init__(self, spec: WorkerSpec, reward: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """`options` are the reward's own, `settings` those of the `RewardWorker` around it."""
        super().__init__(spec)
        from roll_core.rewards.worker import RewardWorker

        self.worker = RewardWorker(reward, options, **settings)

    def self_test(self) -> list[str]:
        """Sentences about an install in which verdicts would be wrong."""
        return self.worker.self_test()

    def compute_rewards(self, samples: Sequence[RewardSample]) -> tuple[list[Score], int]:
        """One score per sample, and this process's id, which changes when the worker was restarted."""
        return self.worker.compute_rewards(list(samples)), os.getpid()

    def close(self) -> None:
        """End the grading processes."""
        self.worker.close()


class JudgeActor(_Grader):
    """A worker of a reward domain that is judged by an engine of this run, on devices of its own."""

    def __init__(
        self, spec: WorkerSpec, prompt: str, template: str, params: SamplingParams, settings: Mapping[str, Any]
    ) -> None:
        """`settings` are `name`, `deadline_s` and `count_as_zero`. The engine starts when it is first asked."""
        super().__init__(spec)
        from roll_core.rewards.judge_engine import EngineJudge
        from roll_core.rewards.judge_text import TokenizerText

        folder = spec.role.model_args.model_name_or_path
        assert folder is not None, "the config's problems name it"
        text = TokenizerText(folder, template)
        self.count_as_zero = bool(settings["count_as_zero"])
        self.judge = EngineJudge(
            lambda: load_target(spec.strategy_target)(spec.role, self.platform, spec.context),
            text,
            replace(params, stop_token_ids=text.stop_token_ids),
            prompt,
            settings["name"],
            **({} if settings["deadline_s"] is None else {"deadline_s": settings["deadline_s"]}),
        )

    def self_test(self) -> list[str]:
        """Sentences about a judge that does not answer, or takes wrong for right."""
        return self.judge.self_test()

    def compute_rewards(self, samples: Sequence[RewardSample]) -> tuple[list[Score], int]:
        """One score per sample, and this process's id, as of any reward worker."""
        from roll_core.rewards.worker import counted_as_zero

        scores = self.judge.compute_rewards(list(samples))
        return counted_as_zero(scores) if self.count_as_zero else scores, os.getpid()

    def close(self) -> None:
        """End the engine."""
        self.judge.close()
