"""Environments in processes of their own: whatever they do, they are counted, replaced, and stop nobody."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.env_process import Act, Begin, Fault, Kind, Observed

SOURCE = """
    import os, time
    class Counting:
        def __init__(self, trouble=""):
            self.trouble = trouble
        def reset(self, seed):
            if self.trouble == "reset":
                raise RuntimeError("no lake today")
            self.seed, self.said = seed, []
            self.noise = os.getpid() if self.trouble == "unsteady" else 0
            return f"{seed}:{self.noise}", {"env_instruction": "count", "suffix": "!"}
        def step(self, action):
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


def test_a_process_that_is_killed_between_orders_is_replaced(pool: EnvPool) -> None:
    begin(pool, 0, 1)
    [child] = pool._children.values()
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    first, second = pool.run([Act(0, "a"), Act(1, "b")])
    assert isinstance(first, Fault)
    assert first.kind == "crash"
    assert isinstance(second, Observed)
    assert second.text == "101:0:b"
    assert pool.restarts == 1


def test_closing_leaves_no_process(pool: EnvPool) -> None:
    begin(pool, 0)
    [child] = pool._children.values()
    pool.close()
    assert child.process.returncode is not None
