"""Prompts to engines, answers to reward workers, and every score back at its own sample."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from roll_core.cluster.worker import ProcessFacts
from roll_core.errors import RollError, WeightSyncError, WorkerDied
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rewards import RewardSample, Score, Status
from roll_core.rollout.reward_router import RewardRouter
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.rollout.weight_update import WeightUpdate
from roll_core.weights import WeightManifest
from tests.rollout.groups import Group, Waiter
from tests.rollout.samples import prompt


class Engines(Group):
    def generate(
        self, rank: int, requests: Sequence[GenerationRequest], interval_s: float
    ) -> Iterator[list[Completion]]:
        for request in reversed(requests):
            number = int(request.request_id.replace("/", "").removeprefix("train"))
            yield [Completion(request.request_id, (number,), (-0.5,), "stop", 0)]


class Rewards(Group):
    short_by = 0
    pid = 1

    def compute_rewards(self, rank: int, samples: Sequence[RewardSample]) -> tuple[list[Score], int]:
        scores = [Score(float(sample.response)) for sample in samples]
        return scores[self.short_by :], self.pid


class Tokenizer:
    def batch_decode(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        return [" ".join(map(str, sequence)) for sequence in sequences]


def scheduler(engines: Engines, rewards: Rewards, told: list[str]) -> RolloutScheduler:
    groups: Any = {"math_rule": rewards}
    waiter: Any = Waiter()
    return RolloutScheduler(engines, RewardRouter(groups, told.append), waiter, Tokenizer(), seed=1)  # type: ignore[arg-type]


def test_every_sample_has_its_own_answer_and_score_in_the_order_of_the_prompts() -> None:
    prompts = [prompt(f"p{number}") for number in range(3)]
    samples = scheduler(Engines("actor_infer", 2), Rewards("reward", 2), []).generate(
        prompts, 2, SamplingParams(4), "train/7", first_group=5
    )
    assert [(one.prompt.row.id, one.group) for one in samples] == [
        ("p0", 5), ("p0", 5), ("p1", 6), ("p1", 6), ("p2", 7), ("p2", 7)
    ]  # fmt: skip
    assert [one.text for one in samples] == ["750", "751", "760", "761", "770", "771"]
    assert all(one.score.score == float(one.text) for one in samples)


def test_whole_groups_are_dealt_to_the_engines_in_turn() -> None:
    engines = Engines("actor_infer", 2)
    scheduler(engines, Rewards("reward", 1), []).generate([prompt(n) for n in "abc"], 2, SamplingParams(4), "train/0")
    shares = {rank: [request.group for request in requests] for rank, _method, requests in engines.asked}
    assert shares == {0: ["train/0/0", "train/0/0", "train/0/2", "train/0/2"], 1: ["train/0/1", "train/0/1"]}


def test_answers_go_to_the_reward_worker_with_the_fewest() -> None:
    rewards = Rewards("reward", 2)
    router: Any = RewardRouter({"math_rule": rewards}, print)  # type: ignore[dict-item]
    calls = [router.submit("math_rule", {str(n): RewardSample(str(n), "", str(n))})[0] for n in range(4)]
    assert [rank for rank, _method, _samples in rewards.asked] == [0, 1, 0, 1]
    router.collect(calls[0], calls[0].ref)
    router.collect(calls[2], calls[2].ref)
    router.submit("math_rule", {"5": RewardSample("5", "", "5")})
    assert rewards.asked[-1][0] == 0


def test_a_reward_worker_that_was_started_again_is_told_and_counted() -> None:
    told: list[str] = []
    rewards = Rewards("reward", 1)
    whole = scheduler(Engines("actor_infer", 1), rewards, told)
    whole.generate([prompt("a")], 1, SamplingParams(4), "train/0")
    rewards.pid = 2
    whole.generate([prompt("a")], 1, SamplingParams(4), "train/1")
    assert whole.rewards.restarts == 1
    assert told == ["reward worker reward-0 died and was started again; its samples were scored anew"]


def test_costs_and_failures_are_added_up_by_domain_until_they_are_taken() -> None:
    router: Any = RewardRouter({"llm_judge": Rewards("reward", 1)}, print)  # type: ignore[dict-item]
    scores = [
        Score(1.0, costs={"tokens": 10.0}),
        Score(0.0, Status.ERROR, "gone", costs={"tokens": 5.0, "retries": 2.0}),
    ]
    for _ in range(2):
        [call] = router.submit("llm_judge", {"1": RewardSample("1", "", "0"), "2": RewardSample("2", "", "0")})
        router.collect(call, (scores, 1))
    assert router.take_metrics() == {
        "rewards/worker_restarts": 0.0,
        "rewards/llm_judge/ungraded_ratio": 0.5,
        "rewards/llm_judge/tokens": 30.0,
        "rewards/llm_judge/retries": 4.0,
    }
    assert router.take_metrics()["rewards/llm_judge/tokens"] == 0.0


def test_a_score_too_few_is_an_error_and_not_a_shift() -> None:
    rewards = Rewards("reward", 1)
    rewards.short_by = 1
    with pytest.raises(RollError, match="reward 'math_rule' returned 0 scores for 1 samples"):
        scheduler(Engines("actor_infer", 1), rewards, []).generate([prompt("a")], 1, SamplingParams(4), "train/0")


class DyingEngines(Engines):
    def generate(
        self, rank: int, requests: Sequence[GenerationRequest], interval_s: float
    ) -> Iterator[list[Completion]]:
        if rank == 1:
            raise WorkerDied("actor_infer rank 1 died")
        yield from super().generate(rank, requests, interval_s)


def test_samples_are_the_same_when_an_engine_dies() -> None:
    told: list[str] = []
    prompts = [prompt(f"p{number}") for number in range(3)]
    whole = scheduler(Engines("actor_infer", 2), Rewards("reward", 1), [])
    broken = scheduler(DyingEngines("actor_infer", 2), Rewards("reward", 1), told)
    expected, found = (one.generate(prompts, 2, SamplingParams(4), "train/7") for one in (whole, broken))
    assert found == expected
    assert len(told) == 1 and "its 2 unfinished answers are made by the other actor_infer engines" in told[0]


class Ends(Group):
    """A trainer and its engines in one: engine `wrong` confirms something else."""

    wrong = -1

    device_names: list[str] = []

    def start(self, rank: int) -> None:
        return None

    def facts(self, rank: int) -> ProcessFacts:
        devices = tuple(self.device_names[rank : rank + 1])
        return ProcessFacts(pid=1, node=f"{self.role} {rank}", address="here", port=1, devices=devices)

    def join_weight_group(self, rank: int, *arguments: Any) -> None:
        self.joined = arguments

    def describe_weights(self, rank: int, bucket_bytes: int) -> WeightManifest | None:
        return WeightManifest(0, ((("w", "float32", (2, 2)),),)) if rank == 0 else None

    def send_weights(self, rank: int, manifest: WeightManifest, bucket_bytes: int) -> None:
        return None

    def update_weights(self, rank: int, manifest: WeightManifest) -> str:
        return "stale" if rank == self.wrong else manifest.digest


def test_weights_are_sent_once_per_version() -> None:
    trainer, engines = Ends("actor_train", 2), Ends("actor_infer", 2)
    update = WeightUpdate(trainer, engines, Waiter(), 64)  # type: ignore[arg-type]
    assert [update.send(0), update.send(0), update.send(1)] == [True, False, True]
    assert [method for _rank, method, _first in engines.asked].count("update_weights") == 4
    assert [method for _rank, method, _first in trainer.asked].count("send_weights") == 4


def test_engines_that_died_are_started_again_and_a_new_group_is_formed() -> None:
    trainer, engines = Ends("actor_train", 1), Ends("actor_infer", 2)
    update = WeightUpdate(trainer, engines, Waiter(), 64)  # type: ignore[arg-type]
    update.send(0)
    engines.dead = {1}
    engines.asked.clear()
    assert update.send(1)
    methods = [(rank, method) for rank, method, _first in engines.asked]
    assert (1, "start") in methods and engines.restarts == 1 and not engines.lost
    assert {(0, "join_weight_group"), (1, "join_weight_group"), (1, "update_weights")} <= set(methods)


@pytest.mark.parametrize(
    ("engine_devices", "through_host"), [(["node/2", "node/3"], False), (["node/0", "node/1"], True)]
)
def test_weights_go_by_way_of_the_host_where_a_device_would_be_two_ranks(
    engine_devices: list[str], through_host: bool
) -> None:
    trainer, engines = Ends("actor_train", 2), Ends("actor_infer", 2)
    trainer.device_names, engines.device_names = ["node/0", "node/1"], engine_devices
    WeightUpdate(trainer, engines, Waiter(), 64).send(0)  # type: ignore[arg-type]
    assert trainer.joined[-1] is engines.joined[-1] is through_host


def test_an_engine_that_confirms_other_weights_is_named() -> None:
    engines = Ends("actor_infer", 2)
    engines.wrong = 1
    update = WeightUpdate(Ends("actor_train", 1), engines, Waiter(), 64)  # type: ignore[arg-type]
    with pytest.raises(WeightSyncError, match="actor_infer rank 1 did not take the weights of version 3"):
        update.send(3)
    assert update.version == -1
