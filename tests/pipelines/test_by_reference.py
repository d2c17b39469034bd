"""A step whose rows never pass through the driver trains on the same batches as one whose rows do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from roll_core.cluster.infer_worker import InferWorker
from roll_core.data.answers import RowStore, rest_of, rows_of
from roll_core.data.remote_batch import BatchReader
from roll_core.data.vision import PromptImages, feature_columns
from roll_core.inference import GenerationRequest, SamplingParams
from roll_core.pipelines.step_report import StepSummary
from roll_core.pipelines.validation import Validation
from roll_core.pipelines.weighting import sent
from roll_core.transport import RowHandle, TransportStats
from tests.pipelines.bare_steps import (
    KL,
    PROMPTS,
    SAMPLES,
    VALUES,
    Counting,
    Engine,
    Everywhere,
    Measured,
    Step,
    Tokenizer,
    assert_trained_alike,
    bare,
)
from tests.rollout.samples import prompt


@pytest.mark.parametrize(
    "settings",
    [KL, VALUES, {**KL, "enable_old_logprobs_recompute": False}],
    ids=["group advantages and a KL loss", "values and token KL", "the engines' log-probabilities only"],
)
def test_every_rank_trains_on_the_same_rows_bit_for_bit(settings: dict[str, Any]) -> None:
    transport = Everywhere()
    plain, remote = Step(settings, None, 12), Step(settings, transport, 12)
    for step in (1, 2):
        (expected, batch), (found, summary) = plain(step), remote(step)
        assert found == expected
        assert isinstance(summary, StepSummary) and summary.num_rows == len(batch) == PROMPTS * SAMPLES
        assert summary.largest_advantage == float(batch["advantages"].abs().max())
        assert plain.parts.shaper.state_dict() == remote.parts.shaper.state_dict()
        assert transport.stats() == TransportStats(0, 0)
    assert_trained_alike(plain.models, remote.models)


def test_less_than_a_hundredth_of_a_step_passes_through_the_driver() -> None:
    transport = Measured()
    step = Step(KL, transport, 20_000)
    Counting.passed = 0
    step(1)
    assert Counting.passed < transport.most / 100, f"{Counting.passed} bytes of {transport.most}"


def test_rows_of_dropped_prompts_are_freed_before_the_step_trains() -> None:
    transport = Everywhere()
    step = Step({**KL, "rewards": {"math_rule": {"query_filter_config": {"type": "mean_filter", "filter_args": {
        "threshold_down": 0.3, "threshold_up": 0.9}}}}}, transport, 12)  # fmt: skip
    with step.delivery.step(1):
        samples, metrics = step.collector(1)
        assert metrics["scheduler/query_filter_count"] > 0
        assert transport.stats().rows == len(samples)
    assert transport.stats() == TransportStats(0, 0)


@pytest.mark.parametrize("needs_texts", [True, False])
def test_of_a_validation_texts_alone_are_read_and_nothing_is_left(needs_texts: bool) -> None:
    class Watched(Everywhere):
        read: set[str] = set()

        def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> Any:
            self.read.update(handle.fields if fields is None else fields)
            return super().get(handle, fields, copy=copy)

    found = []
    held_out: Any = [prompt("a"), prompt("b")]
    for transport in (None, Watched()):
        step = Step(KL, transport, 12)
        validation = Validation(
            step.scheduler, held_out, 2, SamplingParams(12), step.shelf, needs_texts=transport is None or needs_texts
        )
        found.append(validation(0))
    (expected, plain), (metrics, samples) = found
    assert metrics == expected and metrics["val/response_length/mean"] > 0
    assert [one.text for one in samples] == ([one.text for one in plain] if needs_texts else [""] * 4)
    assert transport is not None
    assert transport.read == {"response_text"} and transport.stats() == TransportStats(0, 0)


class Pixels:
    """Reads of an image file as many patches as it has bytes."""

    def features(self, encoded: Sequence[bytes]) -> dict[str, Any]:
        count = sum(map(len, encoded))
        return {"pixel_values": np.full((count, 3), 0.5, np.float32), "image_grid_thw": np.ones((len(encoded), 3), int)}


def test_engines_put_what_trainers_read_of_images() -> None:
    transport, vision = Everywhere(), Pixels()
    engine = bare(InferWorker, strategy=Engine(), _transport=transport, _tokenizer=Tokenizer(), _vision=vision)
    images = [PromptImages((b"abc", b"de"), (1,), 2), None]
    requests = [GenerationRequest(str(n), (1, 2), SamplingParams(5), n, images=one) for n, one in enumerate(images)]
    [finished] = engine.generate_rows(requests, 100.0, RowStore(b"", "step-1"), "nowhere", True)
    rows = rows_of(sorted(finished, key=lambda one: one.request_id))
    assert sent(rows.fields) == ["prompts", "responses", "image.pixel_values", "image.image_grid_thw"]
    read = BatchReader(transport).materialize(rows)
    for name, expected in feature_columns(vision, [vision.features((b"abc", b"de")), None]).items():  # type: ignore[arg-type]
        assert all(np.array_equal(one, other) for one, other in zip(read[name], expected, strict=True))


def test_of_interrupted_answers_no_images_are_put() -> None:
    transport, vision = Everywhere(), Pixels()
    strategy = Engine(interrupted=1.0)
    strategy.most_tokens = 2
    engine = bare(InferWorker, strategy=strategy, _transport=transport, _tokenizer=Tokenizer(), _vision=vision)
    request = GenerationRequest("a", (1, 2), SamplingParams(4), 7, images=PromptImages((b"abc",), (1,), 2))
    num_patches = []
    answer = None
    while answer is None or answer.finish_reason == "abort":
        [[answer]] = engine.generate_rows([rest_of(answer, request)], 100.0, RowStore(b"", ""), "nowhere", True)
        num_patches.append(len(BatchReader(transport).materialize(answer.row)["image.pixel_values"][0]))
    assert num_patches == [0] * (len(num_patches) - 1) + [3] and len(num_patches) > 1
    assert answer.finish_reason == "length" and answer.num_tokens == 4
