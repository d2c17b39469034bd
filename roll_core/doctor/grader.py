"""Whether rewards give right verdicts on this installation."""

from __future__ import annotations

from collections.abc import Iterator

from roll_core.findings import Finding, Level


def grader_findings() -> Iterator[Finding]:
    """The self-test of the grader of mathematics, which a run does too before it starts."""
    try:
        from roll_core.rewards.selftest import MATH_PAIRS, math_problems

        problems = math_problems()
    except ImportError as error:
        remedy = "pip install 'math-verify[antlr4_9_3]==0.9.0'"
        yield Finding(Level.ERROR, "math_rule", f"cannot be imported: {error}", remedy)
        return
    if not problems:
        yield Finding(Level.OK, "math_rule", f"{len(MATH_PAIRS)} known pairs graded rightly")
        return
    *wrong, advice = problems
    yield Finding(Level.ERROR, "math_rule", "; ".join(wrong), advice)
