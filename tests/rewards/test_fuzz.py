"""Whatever a response holds, every built-in reward gives it exactly one score, and soon."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from roll_core.rewards import RewardSample, Status
from roll_core.rewards.builtin import BUILTIN_REWARDS
from roll_core.rewards.pool import RewardPool
from roll_core.rewards.worker import RewardWorker
from tests.rewards.chat_server import chat_server
from tests.rewards.test_ifeval import GUIDE_CASES, PUBLISHED_CASES

MEGABYTE = 1_000_000
PIECES = (
    *("[", "*", "<<", "{", "}", "\\boxed{", "\\text{", "\n", "\n\n", " ", "a", "a ", "A", "!", ".", ". ", "p. ", "1. "),
    *(
        "Dr. ",
        "\x00",
        "\ud800",
        "\u4eca",
        "```python\n",
        "<think>",
        "</think>",
        "answer is ",
        "YES\n",
        "******",
        "* * *",
    ),
    *(
        "P.S.",
        "P.",
        '"',
        "# ",
        "SECTION 1\n",
        "[a]",
        "*a* ",
        '{"a":',
        "'",
        "don't-",
        "$",
        "=",
        "\\frac",
        "%s",
        "&",
        "^",
    ),
)
ROWS: dict[str, dict[str, Any]] = {
    "code_sandbox": {
        "fields": {"case_type": "pytest", "test_cases": [{"assert_code": "def test_a():\n    assert f()"}]}
    },
    "crossthinkqa": {"ground_truth": "C"},
    "ifeval": {"ground_truth": json.dumps([{"func_name": name, **given} for name, given, *_ in GUIDE_CASES])},
    "llm_judge": {"ground_truth": "4"},
    "math_rule": {"ground_truth": r"\frac{\sqrt{2}}{2}"},
    "multiple_choice": {"ground_truth": "C"},
}


def odd_responses(seed: int) -> Iterator[str]:
    """Random bytes, read in three ways; random sequences of pieces that some reward looks for; deep nesting."""
    chance = random.Random(seed)
    for length in (0, 1, 10, 100, 1000, 20_000):
        raw = chance.randbytes(length)
        yield from (raw.decode("latin-1"), raw.decode("utf-8", "surrogateescape"), raw.decode("utf-16", "replace"))
        yield "".join(chance.choices(PIECES, k=length // 4))
        yield "\\boxed{" + "".join(chance.choices(PIECES, k=length // 4)) + "}"
    for piece in PIECES:
        yield piece * 300
        yield "\\boxed{" + piece * 30 + "}"
    yield "\\boxed{" * 5000 + "C" + "}" * 5000
    yield "[" * 50_000 + "]" * 50_000


def one_score_each(pool: RewardPool, name: str, responses: list[str], row: dict[str, Any]) -> None:
    scores = pool.score_many([RewardSample(str(n), "?", one, **row) for n, one in enumerate(responses)])
    assert len(scores) == len(responses)
    assert Status.OK in {score.status for score in scores}
    for response, score in zip(responses, scores):
        shown = ascii(response[:40])
        assert score.status in (Status.OK, Status.COULD_NOT_GRADE), (name, shown, score.reason)
        assert 0.0 <= score.score <= 1.0, (name, shown)


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    with chat_server(lambda prompt: "NO") as server:
        yield server.url


@pytest.fixture(params=sorted(BUILTIN_REWARDS))
def pool(request: pytest.FixtureRequest, judge_url: str) -> Iterator[tuple[str, RewardPool]]:
    """A pool with the deadline that the reward has in a run."""
    options = {
        "llm_judge": {"url": judge_url, "model": "judge"},
        "code_sandbox": {"wall_s": 2.0, "isolation": "limits"},
    }
    with ExitStack() as stack:
        worker = RewardWorker(request.param, options.get(request.param))
        stack.callback(worker.close)
        yield request.param, worker._pool


def test_odd_responses_get_one_score_each(pool: tuple[str, RewardPool]) -> None:
    name, made = pool
    responses = list(odd_responses(seed=20240521))
    if name == "code_sandbox":
        # A process is started for each of them.
        responses = responses[::8]
    one_score_each(made, name, responses, ROWS[name])


def test_responses_of_a_megabyte_get_one_score_each(pool: tuple[str, RewardPool]) -> None:
    name, made = pool
    chance = random.Random(7)

    pieces = PIECES[::4] if name in ("code_sandbox", "llm_judge") else PIECES
    for piece in pieces:
        row = ROWS[name]
        if name == "ifeval":
            number = chance.randrange(len(PUBLISHED_CASES))
            row = {
                "fields": {"instruction_id_list": [PUBLISHED_CASES[number][0]], "kwargs": [PUBLISHED_CASES[number][1]]}
            }
        one_score_each(made, name, [piece * (MEGABYTE // len(piece))], row)
