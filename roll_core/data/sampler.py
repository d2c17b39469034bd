"""Which prompt comes next: shuffled anew each epoch, mixed by domain, and repeatable after a restart."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import CheckpointError, DataError


class PromptSampler:
    """Draws indices of prompts, a batch at a time or a few of one domain.

    Every epoch visits each prompt of a domain once, in an order that depends on seed, domain and epoch alone; domains
    have epochs of their own. One draw never holds a prompt twice, also where it crosses into the next epoch.

    Args:
        domains: the domain of each prompt.
        batch_size: prompts per batch, `rollout_batch_size`.
        seed: decides every order.
        interleave_probs: domain -> share of a batch. Shares are `int(prob * batch_size)` prompts; the last domain
            with a share takes the remainder. None: in proportion to the domains' sizes.
        fingerprint: of the prompts; a state that was saved with another one is refused.

    Raises:
        DataError: a domain without prompts or with fewer than its share of a batch, prompts of a domain that
            `interleave_probs` leaves out, shares that are negative or do not add up to 1.
    """

    def __init__(
        self,
        domains: Sequence[str],
        batch_size: int,
        seed: int,
        interleave_probs: Mapping[str, float] | None = None,
        fingerprint: str = "",
    ) -> None:
        sizes = {domain: 0 for domain in domains}
        for domain in domains:
            sizes[domain] += 1
        self.shares = _shares(sizes, batch_size, interleave_probs)
        self._origin = {"seed": seed, "prompts": len(domains), "fingerprint": fingerprint, "domains": list(sizes)}
        members: dict[str, list[int]] = {domain: [] for domain in sizes}
        for index, domain in enumerate(domains):
            members[domain].append(index)
        self._streams = {name: _Stream(f"{seed} {name}", indices) for name, indices in members.items()}

    @property
    def epochs(self) -> dict[str, float]:
        """Domain -> passes over its prompts so far; 1.5 is half-way through the second."""
        return {name: stream.drawn / len(stream.members) for name, stream in self._streams.items()}

    def next_batch(self) -> list[int]:
        """Indices of the prompts of the next batch, domain after domain."""
        return [index for domain, share in self.shares.items() for index in self.draw(domain, share)]

    def draw(self, domain: str, count: int, avoid: Collection[int] = ()) -> list[int]:
        """The next prompts of a domain, to fill up a batch.

        Args:
            avoid: prompts drawn for this batch before. Where the draw crosses into the next epoch they come last in
                it, so that one is given again only when all others were.

        Raises:
            DataError: an unknown domain, or more prompts than the domain has.
        """
        if domain not in self._streams:
            raise DataError(f"no prompts of domain '{domain}'; the data has: {', '.join(self._streams)}")
        return self._streams[domain].take(count, avoid)

    def state_dict(self) -> dict[str, Any]:
        """The position in each domain, as JSON values; what `load_state_dict` takes."""
        streams = {
            name: {"epoch": s.epoch, "position": s.position, "late": s.late} for name, s in self._streams.items()
        }
        return {"origin": self._origin, "streams": streams}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the state was taken.

        Raises:
            CheckpointError: seed or prompts are not those the state was taken with.
        """
        if state["origin"] != self._origin:
            changed = [
                f"  {name}: {state['origin'].get(name)} in the checkpoint, {value} now\n"
                for name, value in self._origin.items()
                if state["origin"].get(name) != value
            ]
            raise CheckpointError(
                "the training prompts are not those of the checkpoint, so the run cannot continue where it stopped\n"
                + "".join(changed)
                + "  try: restore the data files, template, prompt_length and seed; or start a new run from its model"
            )
        for name, saved in state["streams"].items():
            self._streams[name].restore(saved["epoch"], saved["position"], saved["late"])


@dataclass
class _Stream:
    """The prompts of one domain: an order per epoch, and how much of it was drawn.

    `late` are the prompts that this epoch's order puts last, as the draw that opened it already held them; with
    `key` and `epoch` they determine the order, so that a saved state stays small.
    """

    key: str
    members: list[int]
    epoch: int = 0
    position: int = 0
    late: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = self._shuffled()

    @property
    def drawn(self) -> int:
        return self.epoch * len(self.members) + self.position

    def take(self, count: int, avoid: Collection[int]) -> list[int]:
        if count > len(self.members):
            raise DataError(
                f"{count} different prompts asked of a domain that has {len(self.members)}\n"
                "  try: a smaller rollout_batch_size, or more rows"
            )
        taken = self._order[self.position : self.position + count]
        self.position += len(taken)
        if len(taken) < count:
            missing = count - len(taken)
            held = set(avoid).intersection(self.members).difference(taken)
            self.restore(self.epoch + 1, 0, sorted(held) + sorted(taken))
            taken = taken + self._order[:missing]
            self.position = missing
        return taken

    def restore(self, epoch: int, position: int, late: Sequence[int]) -> None:
        self.epoch, self.position, self.late = epoch, position, list(late)
        self._order = self._shuffled()

    def _shuffled(self) -> list[int]:
        """Text seeds are hashed, so that epoch 1 of seed 0 is not epoch 0 of seed 1, and no process differs."""
        order = list(self.members)
        random.Random(f"{self.key} {self.epoch}").shuffle(order)
        late = set(self.late)
        return [index for index in order if index not in late] + self.late


def _shares(sizes: Mapping[str, int], batch_size: int, probs: Mapping[str, float] | None) -> dict[str, int]:
    """Domain -> prompts per batch, adding up to the batch size."""
    if probs is None:
        total = sum(sizes.values())
        probs = {domain: size / total for domain, size in sizes.items()}
    _check_probs(sizes, probs)
    # 0.29 * 100 is 28.999999999999996 in binary; the tiny addition gives it the 29 it means.
    shares = {domain: int(prob * batch_size + 1e-9) for domain, prob in probs.items()}
    last = [domain for domain, prob in probs.items() if prob > 0][-1]
    shares[last] += batch_size - sum(shares.values())
    for domain, share in shares.items():
        have = sizes.get(domain, 0)
        if share > have:
            raise DataError(
                f"domain '{domain}' has {have} prompts, fewer than its {share} of a batch of {batch_size}\n"
                "  try: a smaller rollout_batch_size, more rows, or a longer prompt_length if rows were dropped"
            )
        if share == 0 and probs[domain] > 0:
            raise DataError(
                f"domain '{domain}' would never be drawn: {probs[domain]:.3g} of a batch of {batch_size} is no prompt\n"
                "  try: a larger domain_interleave_probs for it, or 0 to leave it out"
            )
    return {domain: share for domain, share in shares.items() if share}


def _check_probs(sizes: Mapping[str, int], probs: Mapping[str, float]) -> None:
    shown = ", ".join(f"{domain}: {prob:g}" for domain, prob in probs.items())
    if any(prob < 0 for prob in probs.values()) or abs(sum(probs.values()) - 1) > 1e-6:
        raise DataError(f"domain_interleave_probs must be shares that add up to 1, given {shown}")
    missing = [domain for domain, prob in probs.items() if prob > 0 and not sizes.get(domain)]
    if missing:
        raise DataError(
            f"domain_interleave_probs asks for {', '.join(missing)}, of which there is no prompt\n"
            f"  the data has: {', '.join(f'{domain} ({size})' for domain, size in sizes.items()) or 'no prompt'}"
        )
    left_out = [domain for domain in sizes if domain not in probs]
    if left_out:
        raise DataError(
            f"domain_interleave_probs leaves out {', '.join(left_out)}, so those prompts would never be drawn\n"
            f"  try: add them, with 0 to leave them out on purpose; given {shown}"
        )
