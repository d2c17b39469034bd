"""Rollouts as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from roll_core.display.sample import escaped
from roll_core.show.records import Rollout

TEXT_CHARACTERS = 600
_SIDES = 12


def rollout_lines(rollout: Rollout) -> Iterator[str]:
    """Who said what, with rewards. Long text loses its middle; control characters are escaped."""
    facts = [f"{rollout.kind} step {rollout.step}", *([rollout.tag] if rollout.tag else []), rollout.id or "no id"]
    facts += [f"score {rollout.score:g}"] if rollout.score is not None else []
    facts += ["success" if rollout.is_success else "no success"] if rollout.is_success is not None else []
    facts += [rollout.end] if rollout.end else []
    yield escaped(", ".join(facts))
    for turn in rollout.turns:
        side = turn.role if turn.reward is None else f"{turn.role} {turn.reward:+g}"
        for number, line in enumerate(_shortened(turn.text).split("\n")):
            yield f"  {escaped(side) if number == 0 else '':<{_SIDES + 4}} | {escaped(line)}"
    advantages = [token.advantage for token in rollout.tokens if token.advantage is not None]
    if advantages:
        yield f"  advantages of {len(advantages)} tokens: {min(advantages):.3g} to {max(advantages):.3g}"


def _shortened(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS:
        return text or "(empty)"
    half = TEXT_CHARACTERS // 2
    return f"{text[:half]} ...({len(text) - 2 * half} characters)... {text[-half:]}"
