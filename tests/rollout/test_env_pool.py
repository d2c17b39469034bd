"""Environments in processes of their own: whatever they do, they are counted, replaced, and stop nobody."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.environments import Act, Begin, Fault, Kind, Observed

SOURCE = """
    import os, time
    class Counting:
        at_work = 0
        def __init__(self, trouble="", gate=""):
            self.trouble, self.gate = trouble, gate
        def reset(self, seed):
            if self.trouble == "reset":
                raise RuntimeError("no lake today")
            self.seed, self.said = seed, []
            self.noise = os.getpid() if self.trouble == "unsteady" else 0
            return f"{seed}:{self.noise}", {"env_instruction": "count", "suffix": "!"}
        def step(self, action):
            while action == "wait" and not os.path.exists(self.gate):
                time.sleep(0.01)
            if self.trouble == "crowd":
                Counting.at_work += 1
                assert Counting.at_work == 1, "two at once"
                time.sleep(0.01)
                Counting.at_work -= 1
            if action == "raise":
                raise ValueError("bad move")
            if action == "hang":
                time.sleep(1000)
            if action == "exit":
                os._exit(3)
            if action == "nan":
                return "", float("nan"), False, False, {}
            if action == "long":
                return "x" * 1_000_000, 0.0, False, False, {}
            if action == "short":
                return "x", 0.0
            self.said.append(action)
            info = {"metrics": {"length": len(self.said)}, "metrics_agg_mode": {"length": "last"}, "use_tool": True}
            return f"{self.seed}:{self.noise}:" + ",".join(self.said), 0.5, action == "end", False, info
        def close(self):
            pass
"""


@pytest.fixture
def environments(tmp_path: Path) -> str:
    file = tmp_path / "counting.py"
    file.write_text(textwrap.dedent(SOURCE))
    return f"{file}:Counting"


@pytest.fixture
def pool(environments: str) -> Iterator[EnvPool]:
    kinds = {name: Kind(environments, {"trouble": name}) for name in ("fine", "reset", "unsteady")}
    kinds["absent"] = Kind("no_such_environment")
    with EnvPool(kinds, num_processes=1, deadline_s=1.0) as pool:
        yield pool


def begin(pool: EnvPool, *slots: int, tag: str = "fine") -> None:
    assert all(isinstance(one, Observed) for one in pool.run([Begin(slot, tag, 100 + slot) for slot in slots]))


def test_answers_come_in_the_order_of_the_orders(environments: str) -> None:
    with EnvPool({"fine": Kind(environments)}, num_processes=2) as pool:
        begun = pool.run([Begin(slot, "fine", slot) for slot in range(5)])
        assert begun[3] == Observed("3:0", instruction="count", suffix="!")
        acted = pool.run([Act(slot, f"a{slot}") for slot in (4, 0, 3)])
    assert [one.text for one in acted if isinstance(one, Observed)] == ["4:0:a4", "0:0:a0", "3:0:a3"]
    assert acted[0] == Observed("4:0:a4", 0.5, is_tool=True, metrics={"length": 1.0}, aggregation={"length": "last"})


@pytest.mark.parametrize(
    ("action", "kind", "reason"),
    [
        ("raise", "step", "ValueError: bad move"),
        ("nan", "not_finite", "the reward is nan"),
        ("long", "too_long", "a text of 1000000 characters; at most 200000 are taken"),
        ("short", "bad_return", "it must return (observation, reward, terminated, truncated, info)"),
        ("exit", "crash", "the environment's process ended with code 3"),
        ("hang", "hang", "the environment gave no answer within 1 s"),
    ],
)
def test_trouble_in_one_environment_is_told_and_its_neighbours_go_on(
    pool: EnvPool, action: str, kind: str, reason: str
) -> None:
    begin(pool, 0, 1, 2)
    pool.run([Act(slot, "first") for slot in (0, 1, 2)])
    before, fault, after = pool.run([Act(0, "second"), Act(1, action), Act(2, "second")])
    assert isinstance(fault, Fault)
    assert fault.kind == kind
    assert reason in fault.reason
    assert [one.text for one in (before, after) if isinstance(one, Observed)] == [
        "100:0:first,second",
        "102:0:first,second",
    ]
    [last] = pool.run([Act(0, "third")])
    assert isinstance(last, Observed)
    assert last.text == "100:0:first,second,third"
    begin(pool, 1)


def test_a_reset_that_raises_and_an_environment_that_is_not_there_are_told(pool: EnvPool) -> None:
    raised, absent = pool.run([Begin(0, "reset", 1), Begin(1, "absent", 1)])
    assert isinstance(raised, Fault)
    assert isinstance(absent, Fault)
    assert (raised.kind, absent.kind) == ("reset", "make")
    assert "no lake today" in raised.reason
    assert "no environment named 'no_such_environment'" in absent.reason


def test_an_environment_that_does_not_come_back_the_same_has_a_fault(pool: EnvPool) -> None:
    begin(pool, 0, tag="unsteady")
    begin(pool, 1)
    pool.run([Act(1, "exit")])
    [fault] = pool.run([Act(0, "on")])
    assert isinstance(fault, Fault)
    assert fault.kind == "not_reproducible"


def test_a_process_that_is_killed_between_orders_is_replaced_and_its_environments_go_on(pool: EnvPool) -> None:
    begin(pool, 0, 1)
    [child] = pool._children.values()
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    first, second = pool.run([Act(0, "a"), Act(1, "b")])
    assert isinstance(first, Observed)
    assert isinstance(second, Observed)
    assert (first.text, second.text) == ("100:0:a", "101:0:b")
    assert pool.restarts == 1


def test_of_several_at_work_only_the_one_that_ends_the_process_is_blamed(pool: EnvPool) -> None:
    begin(pool, *range(8))
    pool.run([Act(slot, "first") for slot in range(8)])
    answers = pool.run([Act(slot, "exit" if slot == 5 else "second") for slot in range(8)])
    assert [slot for slot, answer in enumerate(answers) if isinstance(answer, Fault)] == [5]
    assert isinstance(answers[7], Observed)
    assert answers[7].text == "107:0:first,second"
    assert pool.restarts == 1


def test_a_process_that_is_ended_from_outside_is_counted_and_nobody_blamed(environments: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with EnvPool({"A": Kind(environments, {"gate": str(gate)})}, num_processes=1) as pool:
        pool.run([Begin(slot, "A", slot) for slot in range(4)])
        pool.submit([Act(slot, "wait") for slot in range(4)])
        [child] = pool._children.values()
        os.kill(child.process.pid, signal.SIGKILL)
        gate.touch()
        answers: dict[int, Observed | Fault] = {}
        while len(answers) < 4:
            answers |= pool.poll(60.0)
        assert all(isinstance(answer, Observed) for answer in answers.values()), answers
        assert pool.restarts == 1


def test_a_slow_environment_delays_no_other(environments: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    kinds = {"fine": Kind(environments), "slow": Kind(environments, {"gate": str(gate)})}
    with EnvPool(kinds, num_processes=1, deadline_s=60.0) as pool:
        pool.run([Begin(0, "slow", 0), Begin(1, "fine", 1), Begin(2, "fine", 2)])
        pool.submit([Act(0, "wait")])
        for turn in range(3):
            answers = pool.run([Act(1, f"a{turn}"), Act(2, f"b{turn}")])
            assert all(isinstance(answer, Observed) for answer in answers)
        assert pool.poll(0.0) == []
        gate.touch()
        [(slot, answer)] = [*pool.poll(60.0)]
        assert slot == 0
        assert isinstance(answer, Observed)
        assert answer.text == "0:0:wait"


@pytest.mark.parametrize("is_limited", [True, False])
def test_environments_of_a_tag_take_turns_where_it_is_asked_or_their_number_is_bounded(
    environments: str, is_limited: bool
) -> None:
    kinds = {"A": Kind(environments, {"trouble": "crowd"}, takes_turns=not is_limited)}
    with EnvPool(kinds, num_processes=1, limits={"A": 1} if is_limited else {}) as pool:
        pool.run([Begin(slot, "A", slot) for slot in range(6)])
        for _ in range(3):
            answers = pool.run([Act(slot, "on") for slot in range(6)])
            assert all(isinstance(answer, Observed) for answer in answers), answers


def test_environments_are_brought_back_from_what_a_checkpoint_says_of_them(pool: EnvPool) -> None:
    resumed = Begin(0, "fine", 7, ("a", "b"), "7:0:a,b")
    other = Begin(1, "fine", 7, ("a", "b"), "7:0:a,c")
    first, second = pool.run([resumed, other])
    assert isinstance(first, Observed)
    assert first.text == "7:0:a,b"
    assert isinstance(second, Fault)
    assert second.kind == "not_reproducible"
    [before] = pool.run([Act(0, "c")])
    assert isinstance(before, Observed)
    assert before.text == "7:0:a,b,c"
    [child] = pool._children.values()
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    [again] = pool.run([Act(0, "d")])
    assert isinstance(again, Observed)
    assert again.text == "7:0:a,b,c,d"


def test_closing_leaves_no_process(pool: EnvPool) -> None:
    begin(pool, 0)
    [child] = pool._children.values()
    pool.close()
    assert child.process.returncode is not None
