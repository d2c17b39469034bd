"""Programs by their tests: the program in a response runs in a jail, and all of its row's tests must pass."""

from __future__ import annotations

import json
import logging
from typing import Any, ClassVar, get_args

from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.sandbox.cases import BadCases, Pairs, Tests, read_cases
from roll_core.rewards.sandbox.extract import Block, find_program
from roll_core.rewards.sandbox.jail import Ended, Jail, JailBroken, Kind
from roll_core.rewards.sandbox.judge import NO_TEST, Outcome, run_tests, tests_problem
from roll_core.rewards.sandbox.languages import PYTHON, language_of
from roll_core.rewards.sandbox.limits import MIB, Limits
from roll_core.rewards.sandbox.output import same_output
from roll_core.rewards.sandbox.remote import Program
from roll_core.rewards.sandbox.trial import TooSlow, call_function, judge_program, judge_text, runner

log = logging.getLogger(__name__)


class CodeSandboxReward(Reward):
    """1.0 where every test passes, else 0.0. The row's columns: `test_cases`, `case_type`, `test_case_function`.

    Status `could_not_grade` where the row's tests cannot be used or the jail failed: never a zero for that.

    Args:
        wall_s: seconds for a program with all its tests, and at most for one of its inputs.
        memory_mib: memory of the program.
        isolation: "bubblewrap", "namespaces" or "limits"; by default the strongest that works on this machine.
    """

    deadline_s: ClassVar[float | None] = 60.0

    def __init__(self, wall_s: float = 8.0, memory_mib: int = 1024, isolation: Kind | None = None) -> None:
        if not all(isinstance(limit, int | float) and limit > 0 for limit in (wall_s, memory_mib)):
            raise TypeError(f"wall_s and memory_mib must be positive numbers, got {wall_s!r} and {memory_mib!r}")
        if isolation is not None and isolation not in get_args(Kind):
            raise TypeError(f"isolation must be one of {', '.join(get_args(Kind))}, got {isolation!r}")
        self.limits = Limits(wall_s=wall_s, cpu_s=int(wall_s) + 1, memory_bytes=memory_mib * MIB)
        self.isolation = isolation
        self._jail: Jail | None = None

    @property
    def jail(self) -> Jail:
        """Where programs run; found out on first use."""
        if self._jail is None:
            self._jail = Jail(self.isolation)
        return self._jail

    def warm_up(self) -> None:
        """Find out how programs can be isolated here, and say so where they cannot."""
        if self.jail.warning:
            log.warning(self.jail.warning)

    @classmethod
    def self_test(cls) -> list[str]:
        """A right and a wrong program; and the end of one that only claims to be right."""
        reward = cls()
        tests = {"case_type": "pytest", "test_cases": [{"assert_code": "def test_it():\n    assert add(2, 3) == 5\n"}]}
        known = {
            "def add(a, b):\n    return a + b\n": 1.0,
            "def add(a, b):\n    return a - b\n": 0.0,
            "import os\nos._exit(0)\n": 0.0,
        }
        problems = []
        for text, wanted in known.items():
            score = reward.score(RewardSample("self-test", "", f"```python\n{text}```", fields=tests))
            if score.status is not Status.OK or score.score != wanted:
                problems.append(
                    f"a program that must score {wanted} got {score.score} ({score.status}: {score.reason})"
                )
        return problems

    def row_problem(self, sample: RewardSample) -> str | None:
        """What is wrong with a row's tests, found without running them."""
        try:
            cases = read_cases(sample.fields)
        except BadCases as error:
            return str(error)
        return tests_problem(cases.codes) if isinstance(cases, Tests) and cases.kind != "text" else None

    def score(self, sample: RewardSample) -> Score:
        """Run the program against its tests."""
        try:
            return self._score(sample)
        except BadCases as error:
            return Score(0.0, Status.COULD_NOT_GRADE, str(error))
        except JailBroken as error:
            return Score(0.0, Status.COULD_NOT_GRADE, f"the sandbox failed: {error}")
        except TooSlow as error:
            return Score(0.0, reason=str(error))

    def _score(self, sample: RewardSample) -> Score:
        cases = read_cases(sample.fields)
        if isinstance(cases, Tests) and cases.kind == "text":
            return _verdict(judge_text(sample.response.rpartition("</think>")[2].strip(), cases.codes, self.limits))
        block = find_program(sample.response)
        if block is None:
            return Score(0.0, reason="the response holds no program")
        if isinstance(cases, Pairs) and not cases.function:
            return self._run_on_inputs(block, cases)
        if block.language not in PYTHON:
            return Score(0.0, reason=f"the tests call Python, and the program is in {block.language}")

        def judged(program: Program) -> Outcome:
            return _called(program, cases) if isinstance(cases, Pairs) else run_tests(program, cases.codes)

        return _verdict(judge_program(self.jail, block.text, self.limits, judged))

    def _run_on_inputs(self, block: Block, cases: Pairs) -> Score:
        language = language_of(block.language)
        if language is None and block.language not in PYTHON:
            return Score(0.0, reason=f"no program in '{block.language}' can be run")
        if language is not None and language.tool is None:
            reason = f"this machine has no tool for {language.name}"
            return Score(0.0, Status.COULD_NOT_GRADE, reason)
        with runner(self.jail, block.text, language, self.limits) as run:
            for number, (given, expected) in enumerate(cases.pairs, 1):
                reason = _fault(run(given), expected)
                if reason:
                    return Score(0.0, reason=f"input {number} of {len(cases.pairs)}: {reason}")
        return Score(1.0)


def _verdict(outcome: Outcome) -> Score:
    if outcome.broken:
        return Score(0.0, Status.COULD_NOT_GRADE, outcome.broken)
    if outcome.failure:
        return Score(0.0, reason=outcome.failure)
    if outcome.total == 0:
        return Score(0.0, Status.COULD_NOT_GRADE, NO_TEST)
    return Score(1.0)


def _fault(ended: Ended, expected: str) -> str:
    if ended.why:
        return ended.why
    if ended.code != 0:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:] or [""]
        return f"ended with {ended.code}: {last[0][:200]}"
    found = ended.stdout.decode(errors="replace")
    return "" if same_output(found, expected) else f"wrote {found[:80]!r}, not {expected[:80]!r}"


def _called(program: Program, cases: Pairs) -> Outcome:
    for number, (given, expected) in enumerate(cases.pairs):
        try:
            arguments, wanted = _arguments(given), _parsed(expected)
        except ValueError as error:
            return Outcome(number, len(cases.pairs), broken=f"a case's arguments are no JSON: {error}")
        try:
            found = call_function(program, cases.function, arguments)
        except BaseException as error:
            return Outcome(number, len(cases.pairs), f"{type(error).__name__}: {error}"[:300])
        if not _same(found, wanted):
            return Outcome(number, len(cases.pairs), f"returned {found!r:.80}, not {wanted!r:.80}")
    return Outcome(len(cases.pairs), len(cases.pairs))


def _arguments(text: str) -> list[Any]:
    """Arguments as a JSON list, or one JSON value a line."""
    try:
        value = json.loads(text)
        return value if isinstance(value, list) and "\n" not in text.strip() else [value]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _same(found: Any, wanted: Any) -> bool:
    """Equal, where tuples count as the lists that JSON knows, and fractions may differ in their last digits."""
    if isinstance(found, tuple | list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        texts = {str(key): value for key, value in found.items()}
        return texts.keys() == wanted.keys() and all(_same(texts[key], wanted[key]) for key in wanted)
    if type(found) in (int, float) and type(wanted) in (int, float) and float in (type(found), type(wanted)):
        return same_output(repr(float(found)), repr(float(wanted)))
    return type(found) is type(wanted) and bool(found == wanted)
