"""What a reward is: a function from a response and its row to exactly one score.

A reward that raises, hangs or kills its process never ends a run: the worker turns each of these into a score
with a status of its own. "Could not grade" is counted apart from "wrong".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar


class Status(StrEnum):
    """How a score came about."""

    OK = "ok"
    COULD_NOT_GRADE = "could_not_grade"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True)
class RewardSample:
    """One response to be scored. `fields` holds the data row's other columns, as they stood in the file.

    `prompt` is what the model was given, with its template; `question` the row's own text, where it is known.
    """

    id: str
    prompt: str
    response: str
    ground_truth: str = ""
    tag: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    question: str = ""


@dataclass(frozen=True)
class Score:
    """A sample's score in [0, 1], where 1 is right, and the reward used in training (the score, unless given).

    Where the status is not OK the score is 0.0 and means nothing; `reason` says why, in a sentence. Such a sample is
    counted and left out of training, unless the config says `ungraded: zero` for its domain: then
    `is_counted_as_zero` is set, and it is trained on as a reward of 0.

    `costs` are numbers that are added up over a step and reported as `rewards/<domain>/<name>`, such as requests made.
    """

    score: float
    status: Status = Status.OK
    reason: str = ""
    reward: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict, hash=False)
    is_counted_as_zero: bool = False

    @property
    def is_graded(self) -> bool:
        """Whether training may use it."""
        return self.status is Status.OK or self.is_counted_as_zero


class Reward(ABC):
    """Scores samples one at a time, in a process of its own. Subclass it and name it in the config.

    It is made once per pool, in a process that then forks the scoring ones; what `__init__` and `warm_up` load is
    shared by them. `memory_limit_bytes` bounds the address space of each scoring process.
    """

    memory_limit_bytes: ClassVar[int | None] = None
    deadline_s: ClassVar[float | None] = None
    """Of a built-in reward: seconds that one score may take, where the config does not say; None for the pool's own."""
    num_processes: ClassVar[int] = 1
    """Of a built-in reward: samples that one worker scores at once, where the config does not say."""

    def warm_up(self) -> None:
        """Import and load what scoring needs, so that no sample's deadline pays for it."""

    def quick_score(self, sample: RewardSample) -> Score | None:
        """The score where it can be told at once, else None.

        Called for built-in rewards only, because it runs outside the child processes: what it costs must be bounded
        for every input. It must agree with `score`.
        """
        return None

    def row_problem(self, sample: RewardSample) -> str | None:
        """What is wrong with a data row, told before a run; the sample's response is empty.

        Called for built-in rewards only, once per row, on the driver: it must be quick and need no `warm_up`.
        """
        return None

    def self_test(self) -> list[str]:
        """Sentences about an install in which this reward would give wrong verdicts; run before a run starts."""
        return []

    @abstractmethod
    def score(self, sample: RewardSample) -> Score:
        """Score one sample. May raise; must not depend on other samples."""
