"""Prompts and samples made by hand."""

from collections.abc import Sequence

from roll_core.data.prompts import Prompt
from roll_core.data.rows import Row
from roll_core.inference import Completion
from roll_core.rewards import Score, Status
from roll_core.rollout.sample import Sample


def prompt(name: str, domain: str = "math_rule", difficulty: object = None) -> Prompt:
    row = Row(
        id=name,
        messages=({"role": "user", "content": name},),
        prompt=name,
        tag=domain,
        domain=domain,
        fields={} if difficulty is None else {"difficulty": difficulty},
    )
    return Prompt(row, (5, 6, 7)[: 1 + len(name) % 3], "native")


def sample(
    of: Prompt, group: int, tokens: Sequence[int], score: float, *, status: Status = Status.OK, reason: str = "stop"
) -> Sample:
    completion = Completion("r", tuple(tokens), tuple(-0.5 for _ in tokens), reason, 0)  # type: ignore[arg-type]
    return Sample(of, group, completion, "text", Score(score, status))
