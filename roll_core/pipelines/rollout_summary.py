"""What came of a run that trains nothing: how many samples are right, of how many, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import asdict, dataclass, field
from typing import Any

from roll_core.algorithms.confidence import Share, share


@dataclass(frozen=True)
class Verdict:
    """Whether a sample is right; its group are the samples of the same prompt or start. `trouble` says why it could
    not be judged, and is empty where it was."""

    is_right: bool
    group: Hashable
    tag: str
    score: float
    trouble: str = ""


@dataclass
class Counting:
    """Counts samples. `noun` says what groups are."""

    noun: str
    verdicts: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count a sample."""
        self.verdicts.append(verdict)

    def lines(self) -> tuple[str, ...]:
        """The result for a terminal."""
        if not self.verdicts:
            return ("right: 0 of 0",)
        found = self._share()
        lines = [f"right: {_told(found)}"]
        if found.total > found.groups:
            each = f"{found.total / found.groups:g}"
            lines.append(f"{self.noun} with a right one among {each}: {found.groups_right} of {found.groups}")
        tags = self.tags()
        if len(tags) > 1:
            lines += [f"  {tag}: {_told(one)}" for tag, one in tags.items()]
        troubled = Counter(verdict.trouble for verdict in self.verdicts if verdict.trouble)
        lines += [f"{count} counted as not right: {trouble}" for trouble, count in troubled.most_common()]
        return tuple(lines)

    def as_data(self) -> dict[str, Any]:
        """The result as JSON data; `low` and `high` bound the share at 95%."""
        if not self.verdicts:
            return {"right": 0, "total": 0}
        scores = [verdict.score for verdict in self.verdicts]
        data = _as_data(self._share()) | {"mean_score": sum(scores) / len(scores)}
        data["troubles"] = dict(Counter(verdict.trouble for verdict in self.verdicts if verdict.trouble))
        return data | {"by_tag": {tag: _as_data(one) for tag, one in self.tags().items()}}

    def tags(self) -> dict[str, Share]:
        """The share of each tag."""
        return {tag: self._share(tag) for tag in sorted({verdict.tag for verdict in self.verdicts})}

    def _share(self, tag: str | None = None) -> Share:
        groups: dict[Hashable, list[bool]] = {}
        for verdict in self.verdicts:
            if tag is None or verdict.tag == tag:
                groups.setdefault(verdict.group, []).append(verdict.is_right)
        return share(list(groups.values()))


def _told(one: Share) -> str:
    return f"{one.right} of {one.total}, {one.value:.1%} (95% interval {one.low:.1%} to {one.high:.1%})"


def _as_data(one: Share) -> dict[str, Any]:
    return asdict(one) | {"share": one.value}
