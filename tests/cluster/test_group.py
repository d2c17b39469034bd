"""Workers of one role, as a process sees them that did not start them."""

from pathlib import Path
from typing import Any

from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.spec import WorkerSpec
from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext


class Remote:
    """Notes with which options it was called, and returns what it is."""

    def __init__(self, actor: str) -> None:
        self.actor = actor

    def options(self, **_: Any) -> "Remote":
        return self

    def remote(self, *_: Any) -> str:
        return self.actor


class Handle:
    def __init__(self, actor: str) -> None:
        self.watch = Remote(actor)


def make_group(*actors: str) -> WorkerGroup:
    specs = [
        WorkerSpec(WorkerContext("actor_infer", rank, len(actors)), WorkerConfig(), "", "", {}, Path(), Path())
        for rank in range(len(actors))
    ]
    return WorkerGroup("actor_infer", specs, [Handle(actor) for actor in actors])


def test_a_link_follows_workers_that_were_started_again() -> None:
    group = make_group("a", "b")
    link = group.link()
    link.watch_all()
    assert [watch.ref for watch in link.watches] == ["a", "b"]
    link.lost.add(1)
    group.handles[1] = Handle("c")
    assert link.handles[1] is not group.handles[1]
    link.follow(group.handles)
    assert not link.lost
    assert [watch.ref for watch in link.watches] == ["a", "c"]


def test_a_link_goes_on_with_a_worker_that_only_seemed_lost() -> None:
    group = make_group("a", "b")
    link = group.link()
    link.watch_all()
    link.lost.add(0)
    link.follow(group.handles)
    assert not link.lost
    assert [watch.ref for watch in link.watches] == ["a", "b"]
