"""Instruction following by rule: every instruction of a row is checked by its own function."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from roll_core.rewards.answer import answer_part
from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.instructions.guide import GUIDE
from roll_core.rewards.instructions.language import known_language, language_problems, most_likely
from roll_core.rewards.instructions.published import PUBLISHED, Checker
from roll_core.rewards.instructions.relations import Arguments, BadInstruction


@dataclass(frozen=True)
class Instruction:
    """One instruction, ready to be checked."""

    name: str
    checker: Checker
    arguments: Arguments

    def is_followed(self, text: str) -> bool:
        """Whether a text follows it. A blank text follows nothing, but its arguments are checked all the same."""
        is_followed = self.checker(text if text.strip() else "-", self.arguments)
        return bool(text.strip()) and is_followed


class IFEvalReward(Reward):
    """1.0 for a response that follows all instructions of its row, else 0.0.

    A row names them by `ground_truth`, a JSON object {"func_name": ..., and its arguments} or a list of such; or by
    the columns `instruction_id_list` and `kwargs`. The thinking part is left out; one that never ends is no answer.

    Status `could_not_grade` where a row has no instruction, or one that is unknown or lacks an argument.

    Args:
        reward_type: "strict" as it stands; "loose": a response also follows an instruction without its first line,
            its last line, both, or its asterisks, as published; "soft" is strict, and scores the share of instructions.
        share: the share of instructions that are followed is the score, instead of all or nothing.
    """

    # A response of a million characters, eight variants of it: seconds, where usual ones take a millisecond.
    deadline_s: ClassVar[float | None] = 30.0

    def __init__(self, reward_type: str = "strict", share: bool = False) -> None:
        if reward_type not in ("strict", "loose", "soft"):
            raise TypeError(f"reward_type must be strict, loose or soft, not {reward_type!r}")
        self.is_loose = reward_type == "loose"
        self.share = share or reward_type == "soft"

    def warm_up(self) -> None:
        """Load the model that tells languages, where it is installed; `self_test` says where it is not."""
        try:
            most_likely("Good morning to all of you.", ("en",))
        except ImportError:
            return

    @classmethod
    def self_test(cls) -> list[str]:
        """Sentences about languages that cannot be told here."""
        return language_problems()

    def row_problem(self, sample: RewardSample) -> str | None:
        """What is wrong with a row's instructions, found without a response."""
        try:
            for instruction in instructions_of(sample):
                if "language" in instruction.arguments.given:
                    known_language(instruction.arguments.given["language"])
                elif instruction.name not in _ASK_FOR_ENGLISH:
                    instruction.is_followed("")
        except BadInstruction as error:
            return str(error)
        return None

    def score(self, sample: RewardSample) -> Score:
        """Check every instruction; one that cannot be checked leaves the whole sample without a verdict."""
        text = _answer(sample.response)
        texts = list(dict.fromkeys(_variants(text))) if self.is_loose else [text]
        try:
            instructions = instructions_of(sample)
            missed = [one.name for one in instructions if not any([one.is_followed(variant) for variant in texts])]
        except BadInstruction as error:
            return Score(0.0, Status.COULD_NOT_GRADE, str(error))
        followed = 1.0 - len(missed) / len(instructions)
        reason = f"not followed: {', '.join(missed)}" if missed else ""
        return Score(followed if self.share else float(not missed), reason=reason)


_ASK_FOR_ENGLISH = ("change_case:english_capital", "change_case:english_lowercase")


def _answer(response: str) -> str:
    opened, closed = response.rfind("<think>"), response.rfind("</think>")
    return "" if opened > closed else answer_part(response)


def _variants(text: str) -> Iterator[str]:
    """The published variants of loose accuracy, the text itself first."""
    lines = text.split("\n")
    for variant in (text, "\n".join(lines[1:]), "\n".join(lines[:-1]), "\n".join(lines[1:-1])):
        yield variant
        yield variant.replace("*", "")


def instructions_of(sample: RewardSample) -> list[Instruction]:
    """The instructions of a row.

    Raises:
        BadInstruction: it has none, or they cannot be read.
    """
    ids = _parsed(sample.fields.get("instruction_id_list"), "instruction_id_list")
    if ids is not None:
        kwargs = _parsed(sample.fields.get("kwargs"), "kwargs")
        if not isinstance(ids, list) or not ids or not isinstance(kwargs, list) or len(ids) != len(kwargs):
            raise BadInstruction("instruction_id_list and kwargs must be lists of the same length, and not empty")
        return _each_once([_instruction(name, given, PUBLISHED, "instruction id") for name, given in zip(ids, kwargs)])
    truth = _parsed(sample.ground_truth, "ground_truth")
    if truth is None:
        raise BadInstruction("the row has no instruction: neither ground_truth nor instruction_id_list is filled")
    found = []
    for one in truth if isinstance(truth, list) and truth else [truth]:
        if not isinstance(one, dict) or "func_name" not in one:
            raise BadInstruction(f"ground_truth must be a JSON object with func_name, found {one!r:.100}")
        arguments = {key: value for key, value in one.items() if key != "func_name"}
        found.append(_instruction(one["func_name"], arguments, GUIDE, "function"))
    return found


def _each_once(instructions: list[Instruction]) -> list[Instruction]:
    """Published rows were found that repeat an id and leave its arguments behind: what was meant, nobody knows."""
    for position, one in enumerate(instructions):
        if any(
            one.name == other.name and one.arguments.given == other.arguments.given for other in instructions[:position]
        ):
            raise BadInstruction(f"instruction_id_list names {one.name} twice with the same arguments")
    return instructions


def _instruction(name: Any, given: Any, table: Any, kind: str) -> Instruction:
    if not isinstance(name, str) or name not in table:
        raise BadInstruction(f"no {kind} {name!r:.100}; there are: {', '.join(table)}")
    given = _parsed(given, f"the arguments of {name}")
    if given is not None and not isinstance(given, dict):
        raise BadInstruction(f"the arguments of {name} must be an object, found {given!r:.100}")
    return Instruction(name, table[name], Arguments(name, given or {}))


def _parsed(value: Any, where: str) -> Any:
    """A column's value; one that is text is JSON. None where there is nothing."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BadInstruction(f"{where} is not JSON: {error}") from None
