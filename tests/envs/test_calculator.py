"""The calculator: problems, calls of the tool, and answers."""

from __future__ import annotations

import json

import pytest

from roll_core.envs import make_environment
from roll_core.envs.arithmetic import evaluate, shown
from roll_core.envs.calculator import Calculator


def call(expression: object = "2 + 3", name: str = "calculator") -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'expression': expression}})}</tool_call>"


def calculator(**options: object) -> Calculator:
    made = make_environment("calculator", options)
    assert isinstance(made, Calculator)
    made.reset(0)
    return made


def test_the_problem_is_asked_and_the_instruction_holds_the_tool_with_its_schema() -> None:
    observation, info = Calculator().reset(4)
    assert observation.startswith("What is ") and observation.endswith("?")
    assert json.dumps(info["tools"][0]) in info["env_instruction"]
    assert info["tools"][0]["function"]["parameters"]["required"] == ["expression"]


@pytest.mark.parametrize("num_operations", [1, 2, 4])
def test_problems_have_the_operations_and_numbers_that_were_asked_for(num_operations: int) -> None:
    one = Calculator(num_operations=num_operations, max_number=9, operators="-*")
    for seed in range(100):
        one.reset(seed)
        assert sum(character in "-*" for character in one.problem) == num_operations
        assert all(0 < int(digit) <= 9 for digit in one.problem if digit.isdigit())
        assert evaluate(one.problem).denominator == 1


def test_a_call_is_answered_with_its_result_as_a_tool() -> None:
    observation, reward, terminated, truncated, info = calculator().step(call("12.5 * 2 - 1"))
    assert (observation, reward, terminated, truncated) == ("24", 0.0, False, False)
    assert info["use_tool"] and info["metrics"]["tool_calls"] == 1.0


def test_several_calls_are_answered_line_by_line() -> None:
    observation, *_, info = calculator().step(f"{call('1 + 1')} and {call('1 / 0')} and {call('6 / 4')}")
    assert observation == "2\nerror: division by zero\n1.5"
    assert info["metrics"]["tool_calls"] == 3.0


def test_the_right_answer_ends_the_episode_with_one() -> None:
    one = calculator()
    one.step(call(one.problem))
    _, reward, terminated, _, info = one.step(f"<answer> {shown(evaluate(one.problem))} </answer>")
    assert (reward, terminated, info["metrics"]["success"], info["use_tool"]) == (1.0, True, 1.0, False)


@pytest.mark.parametrize("given", ["-999999", "many", "1/0", "nan", "inf", "1e5", "9" * 5000])
def test_a_wrong_answer_ends_the_episode_with_nothing(given: str) -> None:
    _, reward, terminated, _, info = calculator(format_penalty=-1.0).step(f"<answer>{given}</answer>")
    assert (reward, terminated, info["metrics"]["success"]) == (0.0, True, 0.0)


def test_an_answer_beside_a_call_is_not_looked_at() -> None:
    one = calculator()
    observation, _, terminated, _, _ = one.step(f"{call()} <answer>{shown(evaluate(one.problem))}</answer>")
    assert (observation, terminated) == ("5", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<tool_call>calculator(2 + 3)</tool_call>", "the call is not JSON: Expecting value at character 0"),
        ("<tool_call>{}</tool_call>", 'the call has no "name"'),
        ("<tool_call>[1]</tool_call>", 'the call has no "name"'),
        (call(name="search"), "there is no tool 'search'; there is: calculator"),
        (call(expression=5), '"expression" of calculator is integer, not string'),
        ('<tool_call>{"name": "calculator"}</tool_call>', 'calculator needs "expression"; it was given: nothing'),
        ("<tool_call>{", "the call has no end; write <tool_call>...</tool_call>"),
        (call() * 9, "9 calls in one answer; at most 8 are taken"),
    ],
)
def test_a_malformed_call_is_answered_with_what_is_wrong_and_the_episode_goes_on(text: str, said: str) -> None:
    observation, reward, terminated, truncated, info = calculator(format_penalty=-0.2).step(text)
    assert observation.startswith(f"error: {said}")
    assert (reward, terminated, truncated) == (-0.2, False, False)
    assert info["use_tool"] and info["metrics"]["action_is_valid"] == 0.0


def test_text_without_call_or_answer_is_told_so_by_the_user() -> None:
    observation, reward, terminated, _, info = calculator(format_penalty=-0.2).step("It is five.")
    assert observation == "error: no <tool_call> and no <answer> was found; write one of them"
    assert (reward, terminated, info["use_tool"]) == (-0.2, False, False)


def test_the_first_call_that_works_is_rewarded_once_where_that_is_asked_for() -> None:
    one = calculator(call_reward=0.25)
    assert [one.step(text)[1] for text in (call("1 / 0"), call(), call())] == [0.0, 0.25, 0.0]


def test_an_episode_is_truncated_after_max_steps() -> None:
    one = calculator(max_steps=2)
    assert [one.step(call())[3] for _ in range(2)] == [False, True]


def test_options_that_cannot_be_are_told() -> None:
    with pytest.raises(ValueError, match=r"operators are of \+ - \*, not '\+/'"):
        Calculator(operators="+/")
    with pytest.raises(ValueError, match="a problem has an operation and numbers from 1, not 0 and 99"):
        Calculator(num_operations=0)
