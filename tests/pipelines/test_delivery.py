"""Rows reach trainers by reference: each reads its own, the driver sends next to nothing, a step frees all of it."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from roll_core.config.schema import RLVRConfig
from roll_core.data import DataProto
from roll_core.data.remote_batch import BatchReader, RowRemoteBatch
from roll_core.errors import ConfigError
from roll_core.pipelines.delivery import Delivery, choose_transport, opened
from roll_core.plugins import load_plugins
from roll_core.transport import DataLost, RowsGone, TransportStats
from roll_core.transport.local import LocalTransport
from roll_core.transport.ray_store import RayTransport
from tests.rollout.groups import Group, Waiter


class SharedTransport(LocalTransport):
    """Clients of it are in this process too."""

    reaches_workers = True


def batch(rows: int, tokens: int = 1000) -> DataProto:
    prompts = torch.arange(rows * tokens).reshape(rows, tokens)
    return DataProto({"prompts": prompts, "prompt_lengths": torch.arange(rows)}, meta_info={"temperature": 1.0})


SHARES = [np.array([0, 3]), np.array([1]), np.array([], dtype=np.int64)]


@pytest.mark.parametrize("transport", [None, LocalTransport(), SharedTransport()], ids=["none", "local", "shared"])
def test_each_rank_gets_its_rows_with_the_columns_of_the_step_and_of_the_mini_batch(
    transport: LocalTransport | None,
) -> None:
    delivery, whole = Delivery(transport), batch(6)
    rows = np.array([5, 1, 4, 2])
    mini = whole.index(rows).with_columns(loss_weight=torch.tensor([0.1, 0.2, 0.3, 0.4]))
    mini.meta_info["max_response_length"] = 7
    with delivery.step(1):
        delivered = delivery.part(delivery.whole(whole), rows, mini)
        parts = [here(transport, part) for part in delivery.shares(delivered, SHARES)]
        for part, share in zip(parts, SHARES):
            expected = mini.index(share)
            assert part.columns == expected.columns and part.meta_info == expected.meta_info
            for name in part.columns:
                assert part[name].dtype == expected[name].dtype and torch.equal(part[name], expected[name])
    assert transport is None or transport.stats() == TransportStats(0, 0)


def test_the_driver_sends_less_than_a_hundredth_of_the_payload() -> None:
    transport, whole = SharedTransport(), batch(64, tokens=4096)
    delivery = Delivery(transport)
    with delivery.step(1):
        parts = delivery.shares(delivery.whole(whole), [np.arange(0, 32), np.arange(32, 64)])
        sent = sum(len(pickle.dumps(part)) for part in parts)
        assert sent < transport.stats().num_bytes / 100


def test_columns_of_a_step_are_put_once_and_again_only_if_they_are_others() -> None:
    transport, whole = SharedTransport(), batch(4)
    delivery = Delivery(transport)
    with delivery.step(1):
        first, again = delivery.whole(whole), delivery.whole(DataProto(whole.batch))
        other = delivery.whole(whole.reorder([3, 2, 1, 0]))
        assert isinstance(first, RowRemoteBatch) and again is first and other is not first
        assert transport.stats().rows == 8


def test_a_step_that_fails_frees_what_it_put() -> None:
    transport = SharedTransport()
    delivery = Delivery(transport)
    with pytest.raises(RuntimeError, match="a worker died"), delivery.step(1):
        reference = delivery.whole(batch(4))
        raise RuntimeError("a worker died")
    assert delivery.metrics() == {"system/transport_rows": 0.0, "system/transport_bytes": 0.0}
    with pytest.raises(RowsGone):
        here(transport, reference)
    assert Delivery().metrics() == {}


class Trainers(Group):
    def attach(self, rank: int, transport: Any) -> None:
        pass


def test_every_trainer_becomes_a_client_and_the_transport_is_closed_at_the_end() -> None:
    closed = []

    class Noted(SharedTransport):
        def close(self) -> None:
            closed.append(self)

    choice: Any = type("Choice", (), {"start": lambda self: Noted()})()
    actor, critic, waiter = Trainers("actor_train", 2), Trainers("critic", 1), Waiter()
    with pytest.raises(RuntimeError), opened(choice, [actor, critic], waiter) as delivery:  # type: ignore[list-item, arg-type]
        assert [len(group.asked) for group in (actor, critic)] == [2, 1]
        assert actor.asked[0] == (0, "attach", delivery.transport)
        raise RuntimeError("a worker died")
    assert len(closed) == 1


def test_a_transport_that_cannot_be_closed_does_not_hide_why_a_run_failed() -> None:
    class Stuck(SharedTransport):
        def close(self) -> None:
            raise DataLost("its processes have died")

    choice: Any = type("Choice", (), {"start": lambda self: Stuck()})()
    waiter: Any = Waiter()
    with pytest.raises(RuntimeError, match="a worker died") as failed, opened(choice, [], waiter):
        raise RuntimeError("a worker died")
    assert failed.value.__notes__ == ["the transport could not be closed: its processes have died"]
    with pytest.raises(DataLost), opened(choice, [], waiter):
        pass


def test_the_config_chooses_and_a_key_of_no_transport_is_named() -> None:
    def choose(backend: dict[str, Any] | None) -> Any:
        config = RLVRConfig.model_validate({"adv_estimator": "grpo", "transfer_backend": backend})
        return choose_transport(config, load_plugins({}, []), "cpu")

    assert choose(None) is None and choose({}) is None
    chosen = choose({"backend_name": "ray", "backend_config": {"split_mb": 4}})
    assert (chosen.transport_class, chosen.settings.split_mb, chosen.num_cpus) == (RayTransport, 4, 0)
    with pytest.raises(ConfigError, match=r"transfer_backend\.backend_config\.ring: Extra inputs are not permitted"):
        choose({"backend_name": "ray", "backend_config": {"ring": 4}})


def here(transport: LocalTransport | None, part: Any) -> DataProto:
    if isinstance(part, DataProto):
        return part
    assert transport is not None
    return BatchReader(transport).materialize(part)
