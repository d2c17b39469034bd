"""Problems as a hasty student solves them: what the tiny model copies before it learns by itself.

The student has a calculator and knows how to call it, but mostly says some number at once, which is wrong. Now and then
a call does not fit the tool's schema: the student reads what is wrong with it, and calls again or gives up.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agentic_warm_start import Demonstration

from roll_core.envs.arithmetic import evaluate
from roll_core.envs.calculator import Calculator

CARE = 0.2
"""How often the tool is called as it should be."""
MALFORMED = 0.2
"""How often the first call does not fit the schema."""
SECOND_TRY = 0.5
"""How often such a call is followed by a right one; else by some number."""
FIRST_SEED = 10**9
"""Seeds of demonstrations; those of a run's episodes are drawn elsewhere."""


def make_calculator() -> Calculator:
    """The environment that cpu.yaml describes."""
    return Calculator(num_operations=1, max_number=99, operators="+-", max_steps=4, env_instruction="")


def call(expression: str, tool: str = "calculator", argument: str = "expression") -> str:
    """A call of a tool, as the environment reads it."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': {argument: expression}})}</tool_call>"


def answer(number: object) -> str:
    """A result, as the environment reads it."""
    return f"<answer>{number}</answer>"


def malformed(expression: str, choice: random.Random) -> str:
    """A call of a tool that there is not, or without the argument that it needs."""
    return choice.choice([call(expression, tool="solver"), call(expression, argument="text")])


def guess(problem: str, choice: random.Random) -> str:
    """Some number that is not the result."""
    return answer(evaluate(problem) + choice.choice([-1, 1]) * choice.randint(1, 30))


def demonstrate(calculator: Calculator, seed: int, choice: random.Random) -> Demonstration:
    """One episode."""
    observation, _ = calculator.reset(seed)
    observations, actions, roles = [observation], [], ["user"]
    mood = choice.random()
    plan = [call(calculator.problem)] if mood < CARE else []
    if CARE <= mood < CARE + MALFORMED:
        plan = [malformed(calculator.problem, choice)]
        plan += [call(calculator.problem)] if choice.random() < SECOND_TRY else []
    for action in plan:
        actions.append(action)
        observation, *_ = calculator.step(action)
        observations.append(observation)
        roles.append("tool")
    has_result = bool(plan) and plan[-1] == call(calculator.problem)
    actions.append(answer(observation) if has_result else guess(calculator.problem, choice))
    _, reward, *_ = calculator.step(actions[-1])
    return Demonstration(tuple(observations), tuple(actions), tuple(roles), reward > 0)


def demonstrations(seed: int) -> Iterator[Demonstration]:
    """Episodes without end, the same for the same seed."""
    calculator, choice = make_calculator(), random.Random(seed)
    while True:
        yield demonstrate(calculator, choice.randrange(FIRST_SEED, 2 * FIRST_SEED), choice)
