"""Steps of a pipeline of workers without processes, whose engines and models go by numbers of tokens."""

import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from roll_core.cluster.calls import Call
from roll_core.cluster.infer_worker import InferWorker
from roll_core.cluster.reward_workers import RewardActor
from roll_core.cluster.train_worker import CACHE_BYTES, TrainWorker
from roll_core.config.schema import RLVRConfig
from roll_core.data import DataProto
from roll_core.data.remote_batch import BatchReader
from roll_core.data.sampler import PromptSampler
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.rlvr import RlvrPipeline
from roll_core.pipelines.shaping import Shaper
from roll_core.pipelines.shaping_worker import RemoteShaper
from roll_core.rewards import RewardSample, Score
from roll_core.rollout.answer_shelf import AnswerShelf
from roll_core.rollout.async_collector import AsyncCollector
from roll_core.rollout.collector import Collector, QueryFilters
from roll_core.rollout.flow import RolloutFlow
from roll_core.rollout.reward_router import RewardRouter
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.trackers import Timers
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


class Measured(Everywhere):
    """Knows the most bytes that it held."""

    most = 0

    def put(self, *arguments: Any, **options: Any) -> Any:
        handle = super().put(*arguments, **options)
        self.most = max(self.most, self.stats().num_bytes)
        return handle


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
    """Answers of lengths and tokens that depend on the request alone; a share of them is interrupted."""

    def __init__(self, interrupted: float = 0.0) -> None:
        self.interrupted = interrupted
        self.most_tokens = 2**40

    def abort(self, request_ids: Sequence[str] | None) -> list[str]:
        return []

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        for request in reversed(requests):
            draw = torch.Generator().manual_seed((request.seed + sum(request.prompt_ids)) % 2**32)
            is_over = float(torch.rand((), generator=draw)) >= self.interrupted
            most = min(self.most_tokens, request.params.max_new_tokens)
            length = int(torch.randint(1, most + 1, (), generator=draw))
            tokens = tuple(torch.randint(0, 9, (length,), generator=draw).tolist())
            log_probs = tuple((-torch.rand(length, generator=draw)).tolist())
            yield Completion(request.request_id, tokens, log_probs, "stop" if is_over else "abort", 0)


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


def assert_trained_alike(plain: Mapping[str, Sequence[Model]], remote: Mapping[str, Sequence[Model]]) -> None:
    """The ranks of actor and critic have trained on the same batches, bit for bit, and the actor on some."""
    for role in ("actor_train", "critic"):
        for one, other in zip(plain[role], remote[role]):
            assert len(one.trained) == len(other.trained)
            assert len(one.trained) > 0 or role == "critic"
            for expected, found in zip(one.trained, other.trained):
                assert set(found.columns) == set(expected.columns) and found.meta_info == expected.meta_info
                for name in expected.columns:
                    assert found[name].dtype == expected[name].dtype and torch.equal(found[name], expected[name]), name


def bare(worker_class: Any, **members: Any) -> Any:
    """A worker without the process around it."""
    worker = worker_class.__new__(worker_class)
    vars(worker).update(members, _lock=threading.Lock())
    return worker


def group(role: str, *workers: Any) -> Any:
    made = Counting(role, len(workers))
    vars(made)["workers"] = workers
    return made


class Waiting(Waiter):
    """Everything is there already, for those who look as well as for those who wait."""

    def poll(self, calls: list[Call], seconds: float) -> list[Call]:
        return list(calls)


class PatientCollector(AsyncCollector):
    """Waits for all that is open, before and after, so that what a step takes never depends on time."""

    def __call__(self, step: int) -> tuple[list[Any], dict[str, float]]:
        collected = super().__call__(step)
        with self.flow.changed:
            self.flow.wait_for(lambda: self._is_ready(0, 0))
        return collected

    def _is_ready(self, oldest: int, dropped_before: int) -> bool:
        still_open = self.flow.open_rollouts()
        return len(still_open) == self.flow.room and all(one.is_done for one in still_open)


class Step:
    """One step of a pipeline of bare workers."""

    def __init__(
        self, settings: dict[str, Any], transport: Everywhere | None, length: int, interrupted: float = 0.0
    ) -> None:
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
        self.engine = Engine(interrupted)
        self.models = {"actor_train": [Model(0.0), Model(0.0)], "reference": [Model(0.5)], "critic": [Model(1.0)]}
        groups = {
            role: group(role, *[bare(TrainWorker, strategy=model, reader=reader) for model in models])
            for role, models in self.models.items()
        }
        engine = {"strategy": self.engine, "_transport": transport, "_tokenizer": Tokenizer(), "_vision": None}
        engines = group("actor_infer", *[bare(InferWorker, **engine) for _ in range(2)])
        rewards = group("reward", *[bare(RewardActor, worker=LastToken(), _reader=reader) for _ in range(2)])
        waiter: Any = Waiting()
        self.delivery = Delivery(transport)
        prompts: Any = [prompt(f"p{number}") for number in range(40)]
        scheduler = RolloutScheduler(engines, RewardRouter({"math_rule": rewards}, print), waiter, Tokenizer(), seed=3)
        sampler = PromptSampler([each.domain for each in prompts], PROMPTS, seed=1)
        shelf = None if transport is None else AnswerShelf(transport, self.delivery.at_end, "nowhere")
        params, ratio = SamplingParams(length), config.async_generation_ratio
        self.scheduler, self.shelf = scheduler, shelf
        self.collector: Collector | AsyncCollector
        if ratio == 0:
            self.collector = Collector(scheduler, prompts, sampler, config.rewards, SAMPLES, params, shelf)
        else:
            keeps = QueryFilters(config.rewards)
            self.flow = RolloutFlow(scheduler, prompts, sampler, keeps, SAMPLES, params, shelf)
            self.collector = PatientCollector(self.flow, PROMPTS, ratio, extra=2)
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
            with self.collector.paused():
                self.collector.weights_are(step - 1)
            batch, metrics = self.pipeline.rollout(step)
            batch = batch.with_meta_info(temperature=1.0)
            by_actor = self.pipeline.config.recomputes_old_log_probs
            shaped = self.pipeline.shape(self.pipeline.scoring(batch, 1.0, by_actor=by_actor), step)
            trained = self.pipeline.train(shaped, step)
            self.state = self.collector.state_dict()
        times = ("actor/backward_seconds", "critic/backward_seconds")
        return {k: v for k, v in (metrics | shaped.metrics | trained).items() if k not in times}, shaped.told
