"""Rows of episodes reach trainers by reference too, and only those that can teach anything are put."""

import pickle
from typing import Any

import pytest
import torch

from roll_core.cluster.train_worker import CACHE_BYTES, TrainWorker
from roll_core.config.schema import AgenticConfig
from roll_core.data.remote_batch import BatchReader, RowRemoteBatch
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.update import PolicyUpdate
from roll_core.rollout.env_batch import to_batch
from roll_core.transport import TransportStats
from tests.pipelines.bare_steps import Everywhere, Model, bare, group
from tests.pipelines.test_agentic_shaping import DIALOGUE, episode, shaped
from tests.rollout.groups import Waiter

KEYS = {
    "adv_estimator": "grpo",
    "ppo_epochs": 2,
    "actor_train": {"training_args": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}},
}


def trained(transport: Everywhere | None, by_steps: bool) -> tuple[Any, list[Any]]:
    """The trainer's model, and what the trainer was sent."""
    episodes = [episode(number, 0, [0.0, 0.0], by_steps=by_steps) for number in range(1, 3)]
    episodes += [episode(0, member, [0.0, float(member)], by_steps=by_steps) for member in range(2)]
    batch = shaped(episodes, **KEYS).with_meta_info(temperature=1.0)
    model, waiter = Model(0.0), Waiter()
    reader = None if transport is None else BatchReader(transport, CACHE_BYTES)
    trainer = group("actor_train", bare(TrainWorker, strategy=model, reader=reader))
    delivery = Delivery(transport)
    update = PolicyUpdate(AgenticConfig.model_validate(KEYS), trainer, waiter, delivery)  # type: ignore[arg-type]
    with delivery.step(1):
        update(batch, 1)
    return model, [sent for _rank, _method, sent in trainer.asked]


@pytest.mark.parametrize("by_steps", [False, True], ids=["a row per episode", "a row per turn"])
def test_a_trainer_reads_the_same_rows_of_episodes_by_reference(by_steps: bool) -> None:
    transport = Everywhere()
    (plain, _), (model, sent) = trained(None, by_steps), trained(transport, by_steps)
    assert all(isinstance(one, RowRemoteBatch) for one in sent)
    assert len(model.trained) == len(plain.trained) > 1
    for expected, found in zip(plain.trained, model.trained):
        assert found.columns == expected.columns
        assert all(torch.equal(found[name], expected[name]) for name in expected.columns)
    assert transport.stats() == TransportStats(0, 0)


def test_rows_that_cannot_teach_are_not_sent() -> None:
    # Episodes whose group has one score only have no advantage.
    _, sent = trained(Everywhere(), by_steps=False)
    assert [len(one) for one in sent] == [2, 2]


def test_long_episodes_are_some_bytes_a_row_for_the_driver_to_send() -> None:
    transport = Everywhere()
    episodes = [episode(0, member, [0.0] * 200 + [float(member)]) for member in range(4)]
    batch, delivery = to_batch(episodes, DIALOGUE, 0, 1000), Delivery(transport)
    tokens = batch.select(["prompts", "responses", "response_mask", "infer_log_probs"])
    with delivery.step(1):
        [part] = delivery.shares(delivery.whole(tokens), [torch.arange(4).numpy()])
        assert isinstance(part, RowRemoteBatch)
        assert len(pickle.dumps(part)) < transport.stats().num_bytes / 20
