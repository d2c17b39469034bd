"""A step's training samples: prompts drawn, answered and scored, and drawn again where a filter dropped some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from roll_core.config.schema import RewardConfig
from roll_core.data.answers import rows_of
from roll_core.data.prompts import PromptDataset
from roll_core.data.sampler import PromptSampler
from roll_core.errors import CheckpointError, RollError
from roll_core.inference import SamplingParams
from roll_core.rewards import Status
from roll_core.rollout.answer_shelf import AnswerShelf
from roll_core.rollout.filters import GroupFilter, group_filter
from roll_core.rollout.sample import Sample
from roll_core.rollout.scheduler import RolloutScheduler

DRAW_LIMIT = 10
"""A step draws at most this many times its batch before it gives up: with data far too hard or too easy, every
prompt is dropped and drawing on would never end."""


SURE_SAMPLES = 16
"""So many answers without a single score, and none with one, show that the reward is broken: no more are drawn."""


class QueryFilters:
    """Each domain's `query_filter_config`. A prompt of which no response could be scored is never kept."""

    def __init__(self, rewards: Mapping[str, RewardConfig]) -> None:
        self.filters: dict[str, tuple[GroupFilter, Mapping[str, object]]] = {
            domain: (group_filter(reward.query_filter_config.type), reward.query_filter_config.filter_args)
            for domain, reward in rewards.items()
        }

    def __call__(self, group: Sequence[Sample]) -> bool:
        """Whether the responses to one prompt are trained on."""
        keep, arguments = self.filters[group[0].prompt.domain]
        scores = [sample.score.score for sample in group if sample.score.is_graded]
        return bool(scores) and keep(scores, arguments) if len(group) > 1 else True


class Collector:
    """Collects whole groups of samples until the batch is full. With a `shelf`, what is large of them stays there."""

    def __init__(
        self,
        scheduler: RolloutScheduler,
        dataset: PromptDataset,
        sampler: PromptSampler,
        rewards: Mapping[str, RewardConfig],
        num_samples: int,
        params: SamplingParams,
        shelf: AnswerShelf | None = None,
    ) -> None:
        self.scheduler, self.dataset, self.sampler = scheduler, dataset, sampler
        self.num_samples, self.params, self.shelf = num_samples, params, shelf
        self.keeps = QueryFilters(rewards)

    def __call__(self, step: int) -> tuple[list[Sample], dict[str, float]]:
        """Samples of a full batch, groups together, and how many prompts were drawn and dropped.

        Raises:
            RollError: nearly everything was dropped; says what the scores, or the failures to score, looked like.
        """
        wanted = self.sampler.next_batch()
        batch_size, drawn, in_use = len(wanted), 0, set(wanted)
        store = self.shelf.of_step(step) if self.shelf is not None else None
        kept: list[Sample] = []
        dropped: list[list[Sample]] = []
        while wanted:
            prompts = [self.dataset[index] for index in wanted]
            samples = self.scheduler.generate(
                prompts, self.num_samples, self.params, f"train/{step}", first_group=drawn, store=store
            )
            drawn += len(wanted)
            missing: Counter[str] = Counter()
            for start in range(0, len(samples), self.num_samples):
                group = samples[start : start + self.num_samples]
                if self.keeps(group):
                    kept += group
                else:
                    dropped.append(group)
                    missing[group[0].prompt.domain] += 1
            if self.shelf is not None and missing:
                self._free(dropped[-missing.total() :])
            is_hopeless = len(dropped) == drawn and drawn * self.num_samples >= SURE_SAMPLES and _are_ungraded(dropped)
            if missing and (is_hopeless or drawn + missing.total() > DRAW_LIMIT * batch_size):
                raise RollError(gave_up(dropped, drawn, batch_size))
            wanted = [index for domain, count in missing.items() for index in self.sampler.draw(domain, count, in_use)]
            in_use.update(wanted)
        counts = {
            "scheduler/collect_query_count": drawn,
            "scheduler/query_filter_count": len(dropped),
        }
        metrics = {name: float(count) for name, count in counts.items()}
        return kept, metrics | self.scheduler.rewards.take_metrics()

    def _free(self, groups: Sequence[Sequence[Sample]]) -> None:
        assert self.shelf is not None
        self.shelf.free(rows_of([sample.completion for group in groups for sample in group]))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing runs between calls, so there is nothing to do for it."""
        yield

    def weights_are(self, version: int) -> None:
        """Engines have new weights: of no interest to samples that are all generated after them."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold: where in the data the run is."""
        return self.sampler.state_dict()

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state, which is JSON data as it is."""
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            CheckpointError: it was made by a run that generates while it trains; or with other prompts.
        """
        if "open" in state:
            raise CheckpointError(
                f"the checkpoint holds {len(state['open'])} prompts that were on their way when it was made"
                "\n  try: async_generation_ratio as in the run that made it"
            )
        self.sampler.load_state_dict(state)

    def close(self) -> None:
        """Nothing is left running."""


def gave_up(dropped: Sequence[Sequence[Sample]], drawn: int, batch_size: int) -> str:
    """Why a step cannot be filled: what the scores of the dropped prompts, or the failures to score, looked like."""
    graded = [[one.score.score for one in group if one.score.is_graded] for group in dropped]
    means = [sum(scores) / len(scores) for scores in graded if scores]
    right, wrong, ungraded = sum(mean == 1 for mean in means), sum(mean == 0 for mean in means), graded.count([])
    head = f"{len(dropped)} of {drawn} prompts were dropped, and the step needs {batch_size}"
    if ungraded > len(means):
        return f"{head}\n  no answer could be scored: {ungraded}\n{_reasons(dropped)}"
    return (
        f"{head}\n  all answers wrong: {wrong}, all right: {right}, mixed: {len(means) - wrong - right}"
        f", none could be scored: {ungraded}"
        "\n  try: easier prompts where answers are all wrong, harder ones where they are all right, more answers"
        " per prompt (num_return_sequences_in_group), or a wider query_filter_config"
    )


def _are_ungraded(groups: Sequence[Sequence[Sample]]) -> bool:
    return not any(sample.score.is_graded for group in groups for sample in group)


def _reasons(dropped: Sequence[Sequence[Sample]], shown: int = 3) -> str:
    scores = (sample.score for group in dropped for sample in group)
    counts = Counter(f"{one.status.value}: {one.reason}" for one in scores if one.status is not Status.OK)
    lines = [f"  {count} x {reason}" for reason, count in counts.most_common(shown)]
    return "\n".join([*lines, "  try: `roll score --reward NAME FILE.jsonl` with this reward, on a few responses"])
