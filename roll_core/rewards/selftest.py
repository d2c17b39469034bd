r"""Known pairs that a grader must get right before a run may trust it.

Versions of the LaTeX parser and its run time that install together without complaint differ in what they read: beside
antlr4-python3-runtime 4.9.3, latex2sympy2_extended 1.11.0 fails on every percent sign. Each pair here exercises a part
of the grader, and the pairs that need the parser do go through it.
"""

from __future__ import annotations

from importlib import metadata

from roll_core.rewards.mathematics.algebra import CannotCompare, UnreadableAnswer, UnreadableReference
from roll_core.rewards.mathematics.compare import verdict

# Reference, answer, whether the answer is right.
MATH_PAIRS: tuple[tuple[str, str, bool], ...] = (
    ("7", "7", True),
    ("7", "-7", False),
    ("0.25", r"25\%", True),
    (r"50\%", "0.5", True),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", True),
    (r"\frac{1}{2^{80}}", r"\frac{1}{2^{81}}", False),
    (r"\frac{\sqrt{2}}{2^{80}}", r"\frac{\sqrt{2}}{2^{81}}", False),
    ("x^2+2x+1", "(x+1)^2", True),
    ("x^2+2x+1", "(x-1)^2", False),
    (r"(-\infty,0)\cup(0,\infty)", r"(-\infty,\infty)", False),
    (r"(-\infty,0)\cup(0,\infty)", r"(0,\infty)\cup(-\infty,0)", True),
    ("[0,3)", "(0,3)", False),
    (r"\{1,2\}", r"\{2,1\}", True),
    ("2x+4y-3=0", r"y=-\frac12x+\frac34", True),
    (r"\frac{1}{2}", r"\sin 30^\circ", True),
    (r"\log_2 8", "3", True),
    (r"\binom{5}{2}+\sqrt{4}", "12", True),
    (r"|x|", r"\sqrt{x^2}", True),
)
_PACKAGES = ("latex2sympy2_extended", "antlr4-python3-runtime", "sympy", "math-verify")


def math_problems() -> list[str]:
    """A sentence for each pair that this install grades wrongly."""
    problems = []
    for reference, answer, is_right in MATH_PAIRS:
        found = _found(reference, answer)
        if found != (wanted := "right" if is_right else "wrong"):
            problems.append(
                f"math_rule grades answer {answer} against reference {reference} as {found}; it is {wanted}"
            )
    if problems:
        installed = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
        problems.append(f"installed: {installed}; try: pip install 'math-verify[antlr4_9_3]==0.9.0'")
    return problems


def _found(reference: str, answer: str) -> str:
    try:
        return "right" if verdict(reference, answer) else "wrong"
    except (UnreadableAnswer, UnreadableReference, CannotCompare) as error:
        return f"ungraded ({error})"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
