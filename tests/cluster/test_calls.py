import os
import signal
import time
from pathlib import Path

import pytest

from roll_core.cluster.calls import Waiter
from roll_core.errors import CheckpointError, RollError, WorkerDied
from tests.cluster.helpers import probes

pytestmark = pytest.mark.usefixtures("session")


def test_results_come_in_the_order_of_the_calls(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 3), Waiter(60)
    assert waiter.wait(group.scatter("add", [10, 20, 30])) == [10, 21, 32]
    assert waiter.wait(group.submit("environment", "FLAVOUR")) == ["mint"] * 3


def test_what_a_worker_prints_is_in_its_own_log(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 2), Waiter(60)
    waiter.wait(group.scatter("say", ["one", "two"]))
    assert "one" in (tmp_path / "actor_train-0.log").read_text()
    assert "two" in (tmp_path / "actor_train-1.log").read_text()


def test_a_worker_is_in_the_drivers_working_directory(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 1), Waiter(60)
    assert waiter.wait(group.submit("where")) == [str(tmp_path.resolve())]


def test_a_workers_own_error_names_it_and_shows_its_traceback(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 2), Waiter(60)
    with pytest.raises(RollError) as caught:
        waiter.wait([group.submit_to(0, "add", 1), group.submit_to(1, "fail")])
    message = str(caught.value)
    assert message.startswith("actor_train rank 1 failed\n  during: fail")
    assert "the moon is in the wrong place" in message and "in fail" in message


def test_a_message_written_for_the_user_comes_through_as_it_is(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 1), Waiter(60)
    with pytest.raises(CheckpointError, match=r"^that checkpoint is torn$"):
        waiter.wait(group.submit("refuse"))


def test_a_dead_rank_is_named_and_not_the_peer_that_noticed_first(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 2), Waiter(60)
    waiter.watch(group)
    waiter.wait(group.submit("add", 0))
    os.kill(waiter.wait([group.submit_to(1, "pid")])[0], signal.SIGKILL)
    with pytest.raises(WorkerDied, match="actor_train rank 1 died"):
        waiter.wait([group.submit_to(0, "notice_a_dead_peer", 0.2)])


def test_a_death_ends_a_wait_for_somebody_else(tmp_path: Path) -> None:
    trainers, engines, waiter = probes(tmp_path, 1), probes(tmp_path, 1, role="actor_infer"), Waiter(120)
    waiter.watch(trainers)
    waiter.watch(engines)
    pid = waiter.wait(engines.submit("pid"))[0]
    waiter.wait(trainers.submit("pid"))
    waiting = trainers.submit("hang")
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="actor_infer rank 0 died"):
        waiter.wait(waiting)
    assert time.monotonic() - started < 60


def test_no_answer_in_time_names_who_was_asked_for_what(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 2), Waiter(60)
    waiter.wait(group.submit("add", 0))
    with pytest.raises(RollError, match=r"no answer within 0\.5 s from: actor_train-1 \(hang\)"):
        waiter.wait([group.submit_to(0, "add", 1), group.submit_to(1, "hang")], timeout_s=0.5)


def test_a_stateless_worker_is_started_again_and_its_work_repeated(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 1, role="reward-math_rule", restartable=True), Waiter(60)
    pid = waiter.wait(group.submit("pid"))[0]
    os.kill(pid, signal.SIGKILL)
    assert waiter.wait(group.submit("add", 5)) == [5]
    assert waiter.wait(group.submit("pid"))[0] != pid


def test_a_stream_gives_every_item_and_then_ends(tmp_path: Path) -> None:
    group, waiter = probes(tmp_path, 1), Waiter(60)
    stream = group.submit_to(0, "count", 3)
    items = []
    while (item := waiter.take(waiter.ready([stream])[0])) is not None:
        items.append(item)
    assert items == [0, 1, 2]
