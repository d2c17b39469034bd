"""What a run of the suite says at its end: per contract, what passed, and why the rest was skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.testing.pytest_plugin import SUITE_ID


def summary_lines(stats: Mapping[str, Sequence[Any]]) -> list[str]:
    """A line per contract with its counts, and one under it per reason of a skip or of a known gap."""
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
        for report in stats.get(outcome, ()):
            path, *rest = report.nodeid.split("::")
            if path != SUITE_ID or not rest:
                continue
            counts.setdefault(rest[0], Counter())[outcome] += 1
            if outcome in ("skipped", "xfailed"):
                reasons.setdefault(rest[0], Counter())[f"{outcome}: {_reason(report)}"] += 1
    lines = []
    for contract, count in counts.items():
        lines.append(f"{contract}: {', '.join(f'{number} {outcome}' for outcome, number in count.items())}")
        lines += [f"    {number} {reason}" for reason, number in reasons.get(contract, Counter()).items()]
    return lines


def _reason(report: Any) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(getattr(report, "wasxfail", "")).removeprefix("reason: ")
