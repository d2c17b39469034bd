"""How often the model is right on held-out problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from roll_core.data.answers import rows_of
from roll_core.data.prompts import PromptDataset
from roll_core.inference import SamplingParams
from roll_core.rewards import Status
from roll_core.rollout.answer_shelf import AnswerShelf
from roll_core.rollout.routing import AnswerStore
from roll_core.rollout.sample import Sample
from roll_core.rollout.scheduler import RolloutScheduler


class Validation:
    """Answers every held-out prompt with the engines' current weights.

    With a `shelf`, what is large of the answers stays there; of that, only their texts are read, and only where
    somebody `needs_texts`.
    """

    def __init__(
        self,
        scheduler: RolloutScheduler,
        dataset: PromptDataset,
        num_samples: int,
        params: SamplingParams,
        shelf: AnswerShelf | None = None,
        *,
        needs_texts: bool = True,
    ) -> None:
        self.scheduler, self.dataset = scheduler, dataset
        self.num_samples, self.params = num_samples, params
        self.shelf, self.needs_texts = shelf, needs_texts

    def __call__(self, step: int) -> tuple[dict[str, float], list[Sample]]:
        """What `validation_metrics` makes of the answers, and the answers."""
        name = f"val/{step}"
        if self.shelf is None:
            samples = self._answers(name)
        else:
            with self.shelf.lent(f"val-{step}") as store:
                samples = self._answers(name, store)
                if self.needs_texts:
                    texts = self.shelf.texts(rows_of(sample.completion for sample in samples))
                    samples = [replace(sample, text=text) for sample, text in zip(samples, texts)]
        return validation_metrics(samples), samples

    def _answers(self, label: str, store: AnswerStore | None = None) -> list[Sample]:
        return self.scheduler.generate(list(self.dataset), self.num_samples, self.params, label, store=store)


def validation_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Shares of answers with score 1 over all samples and by tag, of answers without a verdict (which count as not
    right), and the mean length in tokens."""
    by_tag: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        by_tag[sample.prompt.row.tag].append(sample.score.score == 1)
    right = [is_right for tag in by_tag.values() for is_right in tag]
    lengths = [sample.completion.num_tokens for sample in samples]
    metrics = {
        "val_correct/all/mean": sum(right) / len(right),
        "val/ungraded_ratio": sum(sample.score.status is not Status.OK for sample in samples) / len(samples),
        "val/response_length/mean": sum(lengths) / len(lengths),
    }
    return metrics | {f"val_correct/{tag}/mean": sum(values) / len(values) for tag, values in by_tag.items()}
