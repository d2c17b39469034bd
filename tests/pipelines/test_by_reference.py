"""A step whose rows never pass through the driver trains on the same batches as one whose rows do."""

import pickle
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from roll_core.cluster.calls import Call
from roll_core.cluster.infer_worker import InferWorker
from roll_core.cluster.reward_workers import RewardActor
from roll_core.cluster.train_worker import CACHE_BYTES, TrainWorker
from roll_core.config.schema import RLVRConfig
from roll_core.data import DataProto
from roll_core.data.answers import RowStore, rows_of
from roll_core.data.remote_batch import BatchReader
from roll_core.data.sampler import PromptSampler
from roll_core.data.vision import PromptImages, feature_columns
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.remote_rollout import AnswerShelf
from roll_core.pipelines.rlvr import RlvrPipeline
from roll_core.pipelines.shaping import Shaper
from roll_core.pipelines.shaping_worker import RemoteShaper
from roll_core.pipelines.step_report import StepSummary
from roll_core.pipelines.weighting import sent
from roll_core.rewards import RewardSample, Score
from roll_core.rollout.collector import Collector
from roll_core.rollout.reward_router import RewardRouter
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.trackers import Timers
from roll_core.transport import TransportStats
from roll_core.transport.local import LocalTransport
from tests.rollout.groups import Group, Waiter
from tests.rollout.samples import prompt

PROMPTS, SAMPLES = 4, 4
KL = {"adv_estimator": "grpo", "use_kl_loss": True, "enable_reference": True, "is_use_additional_prompts": False}
VALUES = {"adv_estimator": "gae", "add_token_level_kl": True, "entropy_loss_coef": 0.01}


class Everywhere(LocalTransport):
    """Its clients are in this process too, where pickles find it by its number."""

    reaches_workers = True
    known: dict[int, "Everywhere"] = {}

    def __reduce__(self) -> Any:
        self.known[id(self)] = self
        return _known, (id(self),)


def _known(number: int) -> Everywhere:
    return Everywhere.known[number]


class Counting(Group):
    """Counts the bytes that calls and their results would take on their way."""

    passed = 0

    def submit_to(self, rank: int, method: str, *arguments: Any) -> Call:
        call = super().submit_to(rank, method, *arguments)
        Counting.passed += len(pickle.dumps(arguments))
        result = call.ref
        if isinstance(result, Iterator):
            items = list(result)
            Counting.passed += sum(len(pickle.dumps(item)) for item in items)
            return Call(call.worker, method, iter(items))
        Counting.passed += len(pickle.dumps(result))
        return call

    def __getattr__(self, method: str) -> Any:
        return lambda rank, *arguments: getattr(self.workers[rank], method)(*arguments)


class Tokenizer:
    def batch_decode(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        return [" ".join(map(str, sequence)) for sequence in sequences]


class Engine:
    """Answers of lengths and tokens that depend on the request alone."""

    def __init__(self, length: int) -> None:
        self.length = length

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        for request in reversed(requests):
            draw = torch.Generator().manual_seed(request.seed % 2**32)
            length = int(torch.randint(1, self.length, (), generator=draw))
            tokens = tuple(torch.randint(0, 9, (length,), generator=draw).tolist())
            log_probs = tuple((-torch.rand(length, generator=draw)).tolist())
            yield Completion(request.request_id, tokens, log_probs, "stop", 0)


class LastToken:
    def compute_rewards(self, samples: Sequence[RewardSample]) -> list[Score]:
        return [Score(float(int(sample.response.split()[-1]) % 2)) for sample in samples]


class Model:
    """Scores tokens by their numbers, and remembers what it trained on."""

    def __init__(self, shift: float) -> None:
        self.shift = shift
        self.trained: list[DataProto] = []

    def log_probs(self, batch: DataProto, *, temperature: float, entropy: bool) -> DataProto:
        assert set(batch.columns) == {"prompts", "prompt_lengths", "responses", "response_lengths", "response_mask"}
        return DataProto({"log_probs": -(batch["responses"] + self.shift) / 10 * batch["response_mask"]})

    def values(self, batch: DataProto) -> DataProto:
        return DataProto({"values": batch["responses"] / 9.0})

    def train_step(self, batch: DataProto, loss: Any) -> dict[str, float]:
        self.trained.append(batch)
        return {"loss": float(batch["loss_weight"].sum()), "lr": 0.1, "grad_norm": 1.0}


def bare(worker_class: Any, **members: Any) -> Any:
    """A worker without the process around it."""
    worker = worker_class.__new__(worker_class)
    vars(worker).update(members, _lock=threading.Lock())
    return worker


def group(role: str, *workers: Any) -> Any:
    made = Counting(role, len(workers))
    vars(made)["workers"] = workers
    return made


class Step:
    """One step of a pipeline of bare workers."""

    def __init__(self, settings: dict[str, Any], transport: Everywhere | None, length: int) -> None:
        config = RLVRConfig.model_validate(
            {
                "rollout_batch_size": PROMPTS,
                "num_return_sequences_in_group": SAMPLES,
                "response_length": length,
                "ppo_epochs": 2,
                "rewards": {"math_rule": {}},
                "actor_train": {"training_args": {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 1}},
                "critic": {"training_args": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}},
                **settings,
            }
        )
        reader = None if transport is None else BatchReader(transport, CACHE_BYTES)
        self.models = {"actor_train": [Model(0.0), Model(0.0)], "reference": [Model(0.5)], "critic": [Model(1.0)]}
        groups = {
            role: group(role, *[bare(TrainWorker, strategy=model, reader=reader) for model in models])
            for role, models in self.models.items()
        }
        engine = {"strategy": Engine(length), "_transport": transport, "_tokenizer": Tokenizer(), "_vision": None}
        engines = group("actor_infer", *[bare(InferWorker, **engine) for _ in range(2)])
        rewards = group("reward", *[bare(RewardActor, worker=LastToken(), _reader=reader) for _ in range(2)])
        waiter: Any = Waiter()
        self.delivery = Delivery(transport)
        prompts: Any = [prompt(f"p{number}") for number in range(2 * PROMPTS)]
        scheduler = RolloutScheduler(engines, RewardRouter({"math_rule": rewards}, print), waiter, Tokenizer(), seed=3)
        sampler = PromptSampler([each.domain for each in prompts], PROMPTS, seed=1)
        shelf = None if transport is None else AnswerShelf(self.delivery, "nowhere")
        self.collector = Collector(scheduler, prompts, sampler, config.rewards, SAMPLES, SamplingParams(length), shelf)
        crew = SimpleNamespace(
            actor_train=groups["actor_train"],
            reference=groups["reference"] if config.needs_reference else None,
            critic=groups["critic"] if config.needs_critic else None,
            trainers=[],
            shaping=None if transport is None else group("shaping", RemoteShaper(config)),
        )
        parts: Any = SimpleNamespace(
            config=config,
            crew=crew,
            waiter=waiter,
            collector=self.collector,
            shaper=Shaper(config),
            reporter=SimpleNamespace(timers=Timers()),
            delivery=self.delivery,
            pad_token_id=0,
        )
        self.pipeline, self.parts = RlvrPipeline(parts), parts
        for update in (self.pipeline.policy_update, self.pipeline.value_update):
            if update is not None:
                update.waiter = waiter

    def __call__(self, step: int) -> tuple[dict[str, float], Any]:
        """Metrics, and what the reporter is told."""
        with self.delivery.step(step):
            batch, metrics = self.pipeline.rollout(step)
            batch = batch.with_meta_info(temperature=1.0)
            by_actor = self.pipeline.config.recomputes_old_log_probs
            shaped = self.pipeline.shape(self.pipeline.scoring(batch, 1.0, by_actor=by_actor), step)
            trained = self.pipeline.train(shaped, step)
        times = ("actor/backward_seconds", "critic/backward_seconds")
        return {k: v for k, v in (metrics | shaped.metrics | trained).items() if k not in times}, shaped.told


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
    for role in ("actor_train", "critic"):
        for one, other in zip(plain.models[role], remote.models[role]):
            assert len(one.trained) == len(other.trained)
            assert len(one.trained) > 0 or role == "critic"
            for expected, found in zip(one.trained, other.trained):
                assert set(found.columns) == set(expected.columns) and found.meta_info == expected.meta_info
                for name in expected.columns:
                    assert found[name].dtype == expected[name].dtype and torch.equal(found[name], expected[name]), name


def test_less_than_a_hundredth_of_a_step_passes_through_the_driver() -> None:
    class Measured(Everywhere):
        most = 0

        def put(self, *arguments: Any, **options: Any) -> Any:
            handle = super().put(*arguments, **options)
            self.most = max(self.most, self.stats().num_bytes)
            return handle

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


class Pixels:
    """Reads of an image file as many patches as it has bytes."""

    def features(self, encoded: Sequence[bytes]) -> dict[str, Any]:
        count = sum(map(len, encoded))
        return {"pixel_values": np.full((count, 3), 0.5, np.float32), "image_grid_thw": np.ones((len(encoded), 3), int)}


def test_engines_put_what_trainers_read_of_images() -> None:
    transport, vision = Everywhere(), Pixels()
    engine = bare(InferWorker, strategy=Engine(5), _transport=transport, _tokenizer=Tokenizer(), _vision=vision)
    images = [PromptImages((b"abc", b"de"), (1,), 2), None]
    requests = [GenerationRequest(str(n), (1, 2), SamplingParams(5), n, images=one) for n, one in enumerate(images)]
    [finished] = engine.generate_rows(requests, 100.0, RowStore(b"", "step-1"), "nowhere", True)
    rows = rows_of(sorted(finished, key=lambda one: one.request_id))
    assert sent(rows.fields) == ["prompts", "responses", "image.pixel_values", "image.image_grid_thw"]
    read = BatchReader(transport).materialize(rows)
    for name, expected in feature_columns(vision, [vision.features((b"abc", b"de")), None]).items():  # type: ignore[arg-type]
        assert all(np.array_equal(one, other) for one, other in zip(read[name], expected, strict=True))
