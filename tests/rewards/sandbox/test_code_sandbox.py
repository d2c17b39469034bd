# ruff: noqa: E501 (a program is one line of its table)
"""Programs that are right or wrong, and rows that cannot be used."""

import json
import shutil
from typing import Any

import pytest

from roll_core.rewards.base import RewardSample, Status
from roll_core.rewards.code_sandbox import CodeSandboxReward
from roll_core.testing.reward_contract import RewardContract
from tests.rewards.sandbox.conftest import Run

ADD = [{"assert_code": "def test_add():\n    assert add(2, 3) == 5\n"}]
ADDS = "def add(a, b):\n    return a + b"


class TestCodeSandboxReward(RewardContract):
    reward = "code_sandbox"
    correct = RewardSample("1", "add", f"```python\n{ADDS}\n```", fields={"case_type": "pytest", "test_cases": ADD})
    wrong = RewardSample("2", "add", "```python\nadd = max\n```", fields={"case_type": "pytest", "test_cases": ADD})


def test_a_single_block_between_prose_is_run_alone(reward: CodeSandboxReward) -> None:
    response = f"Here is my solution.\n\n```python\n{ADDS}\n```\n\nIt simply adds both numbers."
    assert reward.score(RewardSample("1", "", response, fields={"case_type": "pytest", "test_cases": ADD})).score == 1


def test_a_program_that_ends_at_once_has_passed_nothing(run: Run) -> None:
    for program in ("import sys\nsys.exit(0)", "import os\nos._exit(0)", "raise SystemExit(0)", "exit()"):
        score = run(program, ADD)
        assert (score.score, score.status) == (0, Status.OK)


STACK = """
class Empty(ValueError):
    pass

class Stack:
    def __init__(self, *items):
        self.items = list(items)
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        if not self.items:
            raise Empty("nothing is left")
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        return iter(self.items)
    def __eq__(self, other):
        return isinstance(other, Stack) and self.items == other.items
    def __add__(self, other):
        return Stack(*self.items, *other.items)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.items.clear()
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert Stack(1).push(2).pop() == 2",
        "assert len(Stack(1, 2)) == 2 and list(Stack(1, 2)) == [1, 2]",
        "with pytest.raises(Empty, match='nothing'):\n        Stack().pop()",
        "with pytest.raises(ValueError):\n        Stack().pop()",
        "assert Stack(1) == Stack(1) and Stack(1) != Stack(2)",
        "assert (Stack(1) + Stack(2)).items == [1, 2]",
        "s = Stack(1)\n    with s:\n        pass\n    assert not s.items",
        "assert isinstance(Stack(), Stack) and not isinstance(3, Stack)",
        "s = Stack()\n    s.items = [7]\n    assert s.pop() == 7",
    ],
)
def test_objects_of_the_program_behave_as_in_one_process(run: Run, test: str) -> None:
    score = run(
        STACK, [{"assert_code": f"import pytest\nfrom solution import Stack, Empty\ndef test_it():\n    {test}\n"}]
    )
    assert score.score == 1, score.reason


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def f(x):\n    x.sort()", "x = [3, 1, 2]\n    f(x)\n    assert x == [1, 2, 3]"),
        ("def f(g, x):\n    return g(g(x))", "assert f(lambda x: x * 2, 3) == 12"),
        ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
        (
            "def f():\n    return {1: (2, 3.5)}, {4}, b'5', None, 10**30",
            "assert f() == ({1: (2, 3.5)}, {4}, b'5', None, 10**30)",
        ),
        ("f = lambda x: x / 3", "assert f(1) == pytest.approx(0.333333333)"),
        ("def f(x: List[int]) -> int:\n    return sum(x)", "assert f([1, 2]) == 3"),
        ("from collections import Counter\nf = Counter", "assert f('aab')['a'] == 2 and f('aab') == {'a': 2, 'b': 1}"),
        ("def f(x):\n    raise KeyError(x)", "with pytest.raises(KeyError):\n        f(1)"),
        ("def f():\n    return float('nan')", "assert math.isnan(f())"),
        ("def f(x):\n    print('noise')\n    return x", "assert f('\\ud800') == '\\ud800'"),
    ],
)
def test_values_come_back_as_they_are(run: Run, program: str, test: str) -> None:
    score = run(program, [{"assert_code": f"import pytest\ndef test_it():\n    {test}\n"}])
    assert score.score == 1, score.reason


def test_every_test_must_pass(run: Run) -> None:
    tests = "import pytest\n@pytest.mark.parametrize('a, b, c', [(1, 1, 2), (1, 2, 4)])\ndef test_it(a, b, c):\n    assert add(a, b) == c\n"
    assert run(ADDS, [{"assert_code": tests}]).score == 0
    assert run(ADDS, [{"assert_code": tests.replace("4", "3")}]).score == 1


def test_test_classes_of_both_kinds_are_run(run: Run) -> None:
    unit = "import unittest\nfrom solution import add\nclass Adds(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(add(1, 1), {})\n"
    plain = "class TestAdd:\n    def setup_method(self):\n        self.one = 1\n    def test_it(self):\n        assert add(self.one, 1) == {}\n"
    for code in (unit, plain):
        assert [run(ADDS, [{"assert_code": code.format(value)}]).score for value in (2, 3)] == [1, 0]


@pytest.mark.parametrize("kind", ["assert", "pytest"])
def test_cases_may_be_a_list_or_json_text(run: Run, kind: str) -> None:
    tests = [{"assert_code": "assert add(2, 3) == 5"}, {"assert_code": "assert add(0, 0) == 0"}]
    assert run(ADDS, tests, kind).score == run(ADDS, json.dumps(tests), kind).score == 1


def test_check_based_cases_call_check_with_the_function(run: Run) -> None:
    check = "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(-1, 1) == 0\n"
    assert run(ADDS, [{"assert_code": check}], "check_based", "add").score == 1
    assert run("add = max", [{"assert_code": check}], "check_based", "add").score == 0


def test_text_cases_look_at_the_answer(reward: CodeSandboxReward) -> None:
    fields = {"case_type": "text", "test_cases": [{"assert_code": "assert {response}.startswith('Dear')"}]}
    quotes = "Dear '''all\"\"\", \\ and {braces}"
    scores = [reward.score(RewardSample("1", "", text, fields=fields)).score for text in (quotes, "Hello")]
    assert scores == [1, 0]


@pytest.mark.parametrize(
    ("program", "pairs", "score"),
    [
        ("print(sum(map(int, input().split())))", [("1 2", "3"), ("4 5\n", "9\n\n")], 1),
        ("print(sum(map(int, input().split())))", [("1 2", "3"), ("4 5", "8")], 0),
        ("print(1 / 3)", [("", "0.333333")], 1),
        ("print(10**5000 % 7, 10**5000 > 0)", [("", "2 True")], 1),
        ("print(len(str(10**5000)))", [("", "5001")], 1),
        ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", [("a b\n", "a b")], 1),
        ("print([0.1 + 0.2, (1, 2.0)])", [("", "[0.3, (1, 2.0)]")], 1),
        ("print([0.1 + 0.3, 1])", [("", "[0.3, 1]")], 0),
        ("print([3], '1.2.3')", [("", "[3.0] 1.2.3")], 1),
        ("print('1.2.30')", [("", "1.2.3")], 0),
        ("print(100000001)", [("", "100000000")], 0),
        ("print('yes')", [("", "YES")], 0),
        ("print('1\\n2')", [("", "1 2")], 0),
        ("if __name__ == '__main__':\n    print(7)", [("", "7")], 1),
        ("print(7)\nraise SystemExit(3)", [("", "7")], 0),
        ("if input():\n    print(7)\n    exit()\nquit(0)", [("a", "7"), ("\n", "")], 1),
        ("print(7)\nexit(1)", [("", "7")], 0),
    ],
)
def test_programs_that_read_and_write(run: Run, program: str, pairs: list[tuple[str, str]], score: int) -> None:
    cases = [{"stdin": given, "expected_stdout": wanted} for given, wanted in pairs]
    found = run(program, cases, "io")
    assert (found.score, found.status) == (score, Status.OK), found.reason


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_compiled_language_is_run_where_its_tool_is_present(run: Run) -> None:
    program = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
    assert run(program, [{"stdin": "2 3", "expected_stdout": "5"}], "io", language="cpp").score == 1
    score = run("int main() { return oops; }", [{"stdin": "", "expected_stdout": ""}], "io", language="cpp")
    assert score.score == 0 and "ended with 1" in score.reason


def test_functions_and_solution_classes_are_called_with_json(run: Run) -> None:
    cases = [{"input": "[2, 7, 11]\n9", "output": "[0, 1]"}]
    body = "two_sum(self, numbers, target):\n        return (0, 1)"
    assert run(f"class Solution:\n    def {body}", cases, "function", "two_sum").score == 1
    assert run("def two_sum(numbers, target):\n    return [1, 0]", cases, "function", "two_sum").score == 0
    assert "no function 'two_sum'" in run("x = 1", cases, "function", "two_sum").reason


@pytest.mark.parametrize(
    ("cases", "kind", "reason"),
    [
        ([], "pytest", "test_cases holds no case"),
        ("[]", "pytest", "test_cases holds no case"),
        ("[{", "pytest", "test_cases is no JSON"),
        (None, "pytest", "test_cases holds no case"),
        (ADD, "pyest", "case_type is 'pyest'; known are pytest, assert"),
        ([{"stdin": "1"}], "io", "a case has no stdin with expected_stdout; it has: stdin"),
        ([{"asserts": "x"}], "assert", "a case has no assert_code; it has: asserts"),
        ([{"assert_code": "def test_it(:"}], "pytest", "the tests are no Python"),
        ([{"assert_code": "def test_it(browser):\n    pass"}], "pytest", "wants a fixture 'browser'"),
        ([{"assert_code": "from solution import add\nfirst = 1"}], "pytest", "the tests hold no test"),
        ([{"assert_code": "def check_add():\n    assert add(2, 3) == 5\n"}], "pytest", "the tests hold no test"),
        (ADD, "check_based", "needs the function's name"),
    ],
)
def test_a_row_that_cannot_be_used_is_no_zero(run: Run, cases: Any, kind: str, reason: str) -> None:
    score = run(ADDS, cases, kind)
    assert score.status is Status.COULD_NOT_GRADE and reason in score.reason
    if "fixture" not in reason:
        problem = CodeSandboxReward().row_problem(
            RewardSample("1", "", "", fields={"case_type": kind, "test_cases": cases})
        )
        assert problem is not None and reason in problem


@pytest.mark.parametrize(
    ("cases", "kind"),
    [
        (ADD, "pytest"),
        (json.dumps(ADD), "pytest"),
        ([{"assert_code": "assert add(1, 1) == 2"}], "assert"),
        ([{"assert_code": "class TestAdd:\n    def test_it(self):\n        assert add(1, 1) == 2\n"}], "pytest"),
        ([{"assert_code": "assert {response}.startswith('Dear')"}], "text"),
        ([{"stdin": "1 2", "expected_stdout": "3"}], "io"),
    ],
)
def test_a_usable_row_has_no_problem(cases: Any, kind: str) -> None:
    fields = {"case_type": kind, "test_cases": cases}
    assert CodeSandboxReward().row_problem(RewardSample("1", "", "", fields=fields)) is None


def test_a_jail_that_breaks_is_no_zero() -> None:
    reward = CodeSandboxReward()
    reward.warm_up()
    reward.jail._root = reward.jail._root / "gone"
    reward.jail.kind = "namespaces"
    score = reward.score(RewardSample("1", "", f"```\n{ADDS}\n```", fields={"case_type": "pytest", "test_cases": ADD}))
    assert score.status is Status.COULD_NOT_GRADE and score.reason.startswith("the sandbox failed")
