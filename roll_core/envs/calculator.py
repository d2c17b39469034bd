"""Arithmetic with a calculator: a problem, a tool that is called by JSON, and an answer that is checked.

The model may call the tool as often as there are steps. What is wrong with a call is said in the observation, so that
it can be written again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from roll_core.envs.arithmetic import ExpressionError, evaluate, read_number, shown
from roll_core.envs.base import ActionParser, Environment, StepResult
from roll_core.envs.tool_calls import CALL_PATTERN, CallError, read_calls, tool_text

CALCULATOR: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Calculates an expression of numbers, + - * / and brackets, exactly.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "such as (12 + 3) * 4"}},
            "required": ["expression"],
            "additionalProperties": False,
        },
    },
}
INSTRUCTION = (
    "Solve the problem. You have a tool:\n"
    "{tool}\n"
    'Call it with <tool_call>{{"name": "calculator", "arguments": {{"expression": "2 + 3"}}}}</tool_call>.\n'
    "When you know the result, answer with <answer>5</answer>.\n"
)
MAX_CALLS = 8
"""In one answer."""


class Calculator(Environment):
    """Reward 1 for the right result; a wrong one ends the episode with 0. Text without call or answer is a step.

    Where an answer has calls, they are carried out, and a result that it gives as well is not looked at: it was
    written before there was one.

    Args:
        num_operations: operations in a problem.
        max_number: the greatest number in a problem.
        operators: those that problems are made of, of + - *.
        max_steps: answers after which the episode is truncated.
        format_penalty: added to the reward of a step with a malformed call, or with neither call nor answer.
        call_reward: added to the first call that gives a result, to lead a model to the tool.
        call_pattern: its one group is a call.
        answer_pattern: its one group is the result.
        env_instruction: text before the first observation; by default the task and the tool with its schema.
    """

    def __init__(
        self,
        *,
        num_operations: int = 2,
        max_number: int = 99,
        operators: str = "+-*",
        max_steps: int = 6,
        format_penalty: float = 0.0,
        call_reward: float = 0.0,
        call_pattern: str = CALL_PATTERN,
        answer_pattern: str = r"<answer>(.*?)</answer>",
        special_token_list: Sequence[str] = ("<|im_start|>", "<|im_end|>"),
        env_instruction: str | None = None,
    ) -> None:
        if num_operations < 1 or max_number < 1:
            raise ValueError(f"a problem has an operation and numbers from 1, not {num_operations} and {max_number}")
        if not operators or set(operators) - set("+-*"):
            raise ValueError(f"operators are of + - *, not '{operators}'")
        self.num_operations, self.max_number, self.operators = num_operations, max_number, operators
        self.max_steps, self.format_penalty, self.call_reward = max_steps, format_penalty, call_reward
        self.call_pattern = call_pattern
        self.parser = ActionParser(answer_pattern, {}, tuple(special_token_list))
        rules = INSTRUCTION.format(tool=tool_text(CALCULATOR))
        self.instruction = env_instruction if env_instruction is not None else rules
        self.random = random.Random(0)
        self.problem, self.num_steps, self.has_called = "", 0, False

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Another problem; the same for the same seed, in any process."""
        self.random = random.Random(seed)
        self.problem = self._draw()
        self.num_steps, self.has_called = 0, False
        return f"What is {self.problem}?", {"env_instruction": self.instruction, "tools": [CALCULATOR]}

    def step(self, action: str) -> StepResult:
        """Carry out the calls, or check the result."""
        self.num_steps += 1
        try:
            calls = read_calls(action, [CALCULATOR], self.call_pattern, MAX_CALLS)
        except CallError as error:
            return self._said(f"error: {error}", is_tool=True, num_calls=1, is_valid=False)
        if calls:
            return self._call([str(call.arguments["expression"]) for call in calls])
        given = self.parser(action).content
        if not given:
            missing = "no <tool_call> and no <answer> was found; write one of them"
            return self._said(f"error: {missing}", is_tool=False, num_calls=0, is_valid=False)
        is_right = read_number(given) == evaluate(self.problem)
        observation = "That is right." if is_right else f"{given[:80]} is not the result."
        return self._said(observation, is_tool=False, num_calls=0, reward=float(is_right), is_over=True)

    def sample_random_action(self) -> str:
        """A call that works, an answer by chance, or nothing of use."""
        number = self.random.randint(0, self.max_number)
        call = f'<tool_call>{{"name": "calculator", "arguments": {{"expression": "{number} + 1"}}}}</tool_call>'
        return self.random.choice([call, f"<answer>{number}</answer>", "I do not know."])

    def _call(self, expressions: Sequence[str]) -> StepResult:
        results, has_result = [], False
        for expression in expressions:
            try:
                results.append(shown(evaluate(expression)))
                has_result = True
            except ExpressionError as error:
                results.append(f"error: {error}")
        reward = self.call_reward if has_result and not self.has_called else 0.0
        self.has_called = self.has_called or has_result
        return self._said("\n".join(results), is_tool=True, num_calls=len(expressions), reward=reward)

    def _said(
        self,
        observation: str,
        *,
        is_tool: bool,
        num_calls: int,
        is_valid: bool = True,
        reward: float = 0.0,
        is_over: bool = False,
    ) -> StepResult:
        penalty = 0.0 if is_valid else self.format_penalty
        # What is quoted of an answer may hold lone surrogates, which are in no text.
        observation = observation.encode("utf-8", "replace").decode()
        info = {
            "use_tool": is_tool,
            "metrics": {
                "action_is_valid": float(is_valid),
                "tool_calls": float(num_calls),
                "success": float(is_over and reward > 0),
                "format_penalty": penalty,
            },
            "metrics_agg_mode": {"success": "last", "tool_calls": "sum"},
            "action_desc": observation,
        }
        is_late = not is_over and self.num_steps >= self.max_steps
        return observation, reward + penalty, is_over, is_late, info

    def _draw(self) -> str:
        text = str(self.random.randint(1, self.max_number))
        for _ in range(self.num_operations):
            sign, number = self.random.choice(self.operators), self.random.randint(1, self.max_number)
            text = f"({text})" if sign == "*" and not text.isdigit() else text
            text = f"{text} {sign} {number}" if self.random.random() < 0.5 else f"{number} {sign} {_inner(text)}"
        return text


def _inner(text: str) -> str:
    """An expression that can stand to the right of any operation."""
    return text if text.isdigit() or (text.startswith("(") and text.endswith(")")) else f"({text})"
