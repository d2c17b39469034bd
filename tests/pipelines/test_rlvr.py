"""Decisions of the loop that a config makes: who is trained, when engines get weights, who scores."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from roll_core.config.schema import RLVRConfig
from roll_core.data import DataProto
from roll_core.pipelines import rlvr
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.scoring import Scoring
from roll_core.pipelines.shaping_worker import Shaped
from roll_core.trackers import Timers
from tests.rollout.groups import Group, Waiter


def pipeline(**keys: Any) -> rlvr.RlvrPipeline:
    config = RLVRConfig.model_validate({"adv_estimator": "grpo", **keys})
    sent: list[int] = []
    weights = SimpleNamespace(version=-1, sent=sent)

    def send(version: int) -> None:
        weights.version = version
        sent.append(version)

    weights.send = send
    turns = SimpleNamespace(begin_update=lambda: None, begin_generation=lambda: None)
    crew = SimpleNamespace(actor_train=None, reference=None, critic=None, trainers=[])
    reporter = SimpleNamespace(timers=Timers())
    collector = SimpleNamespace(paused=nullcontext, weights_are=lambda version: None)
    parts: Any = SimpleNamespace(
        config=config,
        crew=crew,
        waiter=None,
        weights=weights,
        turns=turns,
        reporter=reporter,
        collector=collector,
        delivery=Delivery(),
    )
    return rlvr.RlvrPipeline(parts)


@pytest.mark.parametrize(("frequency", "sent"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4])])
def test_engines_get_weights_every_so_many_steps(frequency: int, sent: list[int]) -> None:
    one = pipeline(actor_train={"model_update_frequency": frequency}, save_steps=0, eval_steps=0)
    for version in range(5):
        one.update_engines(version)
    assert one.parts.weights.sent == sent  # type: ignore[attr-defined]


def test_engines_get_weights_also_for_every_validation_and_every_checkpoint() -> None:
    one = pipeline(actor_train={"model_update_frequency": 100}, save_steps=3, eval_steps=4, max_steps=11)
    for version in range(12):
        one.update_engines(version)
    assert one.parts.weights.sent == [0, 3, 4, 6, 8, 9, 11]  # type: ignore[attr-defined]


def test_a_run_that_goes_on_in_between_sends_weights_first() -> None:
    one = pipeline(actor_train={"model_update_frequency": 2})
    one.update_engines(3)
    assert one.parts.weights.sent == [3]  # type: ignore[attr-defined]


def test_the_actor_waits_until_the_critic_has_warmed_up() -> None:
    one = pipeline(critic_warmup=2)
    one.value_update = lambda batch, step: {"critic/loss": 1.0}  # type: ignore[assignment]
    one.policy_update = lambda batch, step: {"train/loss": 2.0}  # type: ignore[assignment]
    shaped = Shaped({}, DataProto(), DataProto(), DataProto(), is_empty=False)
    assert [list(one.train(shaped, step)) for step in (2, 3)] == [["critic/loss"], ["critic/loss", "train/loss"]]


class Scorers(Group):
    def log_probs(self, rank: int, part: DataProto, temperature: float, entropy: bool) -> DataProto:
        return DataProto({"log_probs": torch.full((len(part), 1), float(self.role == "reference"))})

    def values(self, rank: int, part: DataProto) -> DataProto:
        return DataProto({"values": torch.full((len(part), 1), 7.0)})


def test_each_column_comes_from_the_role_that_makes_it() -> None:
    lengths = torch.tensor([1, 1, 1])
    columns = {"prompts": lengths[:, None], "responses": lengths[:, None], "response_mask": lengths[:, None] > 0}
    batch = DataProto({**columns, "prompt_lengths": lengths, "response_lengths": lengths})
    actor, reference, critic = (Scorers(role, 2) for role in ("actor_train", "reference", "critic"))
    scored = Scoring(actor, reference, critic, Waiter(), Delivery())(batch, 1.0, by_actor=True)  # type: ignore[arg-type]
    found = {name: float(scored[name].mean()) for name in ("old_log_probs", "ref_log_probs", "values")}
    assert found == {"old_log_probs": 0.0, "ref_log_probs": 1.0, "values": 7.0}
