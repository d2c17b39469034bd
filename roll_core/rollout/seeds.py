"""Seeds of requests: they depend on what is sampled, never on when or where."""

from __future__ import annotations

import hashlib


def name_seed(run_seed: int, name: str) -> int:
    """The seed of a request by its name, in 63 bits."""
    return int.from_bytes(hashlib.blake2b(f"{run_seed}/{name}".encode(), digest_size=8).digest(), "big") >> 1


def seed_of(run_seed: int, purpose: str, step: int, row_id: str, group: int, index: int) -> int:
    """The seed of a prompt's sample: of the `index`-th response to the `group`-th prompt of a step."""
    return name_seed(run_seed, f"{purpose}/{step}/{row_id}/{group}/{index}")
