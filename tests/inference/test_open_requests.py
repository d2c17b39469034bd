"""What every engine keeps of its requests: opened once, closed once, and none while the engine is being changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from roll_core.errors import BadRequest, EngineFailed, IllegalOrder
from roll_core.inference.base import GenerationRequest
from roll_core.inference.open_requests import OpenRequests
from roll_core.inference.running import GenerateCall
from tests.inference.models import request


@dataclass(eq=False)
class Entry:
    request: GenerationRequest
    call: GenerateCall


def fine() -> None:
    """Whoever asks may run."""


def opened(requests: OpenRequests[Entry], *names: str) -> list[Entry]:
    _, entries = requests.open([request((1,), name) for name in names], fine, Entry)
    return entries


def test_an_id_is_free_again_once_its_request_was_closed() -> None:
    requests: OpenRequests[Entry] = OpenRequests()
    first, _second = opened(requests, "a", "b")
    with pytest.raises(BadRequest, match="unique among running requests: a"):
        opened(requests, "c", "a")
    assert [one.request.request_id for one in requests.named(["b", "c", "a", "a"])] == ["b", "a"]
    assert requests.close(first)
    (again,) = opened(requests, "a")
    assert not requests.close(first)
    assert requests.named(["a"]) == [again]


def test_nothing_is_opened_while_the_engine_is_changed_and_the_change_is_refused_while_something_is() -> None:
    requests: OpenRequests[Entry] = OpenRequests()
    with ThreadPoolExecutor(1) as pool:
        with requests.paused("sleep"):
            waiting = pool.submit(opened, requests, "a")
            with pytest.raises(IllegalOrder, match="cannot wake while the engine is being changed by another call"):
                requests.paused("wake").__enter__()
            assert len(requests) == 0
        (one,) = waiting.result(60)
    with pytest.raises(IllegalOrder, match="cannot sleep while 1 request is running"):
        requests.paused("sleep").__enter__()
    requests.close(one)
    with requests.paused("sleep"):
        pass


def test_the_first_reason_for_an_engines_end_is_told_to_everyone() -> None:
    requests: OpenRequests[Entry] = OpenRequests()
    (one,) = opened(requests, "a")
    requests.end(EngineFailed("the device is lost"))
    requests.end(IllegalOrder("the engine has been stopped"))
    for _ in range(2):
        with pytest.raises(EngineFailed, match="the device is lost"):
            opened(requests, "b")
    assert requests.named(None) == [one]
