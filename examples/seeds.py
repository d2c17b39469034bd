"""Run an example with several seeds, one after the other, and print a table of what its RESULT lines say.

    python examples/seeds.py agentic_frozen_lake [--seeds 0 1 2 3 4] [--folder output/seeds] [-- argument ...]

What is behind `--` goes to the example's run.py. Each run has a folder of its own under `--folder`. Ends with 1 where a
run fails, or where with `--wanted` a seed's share does not double and reach it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULT = re.compile(r"^RESULT before=(\d\.\d+) after=(\d\.\d+) seconds=(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Learnt:
    """What a run's last line says: a share before and after, and how long all of it took."""

    before: float
    after: float
    seconds: int


def main() -> None:
    """All runs, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("example", help="a folder of examples with a run.py")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--folder", type=Path, default=Path("output/seeds"))
    parser.add_argument(
        "--wanted", type=float, help="a share that each seed has to reach, and to begin at most half of"
    )
    ours, theirs = split(sys.argv[1:])
    given = parser.parse_args(ours)
    found = {
        seed: learnt(given.example, seed, theirs, given.folder / f"{Path(given.example).name}-{seed}")
        for seed in given.seeds
    }
    print_table(found)
    if given.wanted is not None and not all(has_learnt(one, given.wanted) for one in found.values()):
        sys.exit(1)


def split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before `--`, and what behind it."""
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def learnt(example: str, seed: int, arguments: Sequence[str], folder: Path) -> Learnt:
    """Run with one seed in a folder, where its output is kept in run.log."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "run.log"
    command = [sys.executable, str(HERE / example / "run.py"), "--seed", str(seed), *arguments]
    with log.open("w") as file:
        ended = subprocess.run(command, cwd=folder, text=True, stdout=file, stderr=subprocess.STDOUT)
    last = RESULT.findall(log.read_text())
    if ended.returncode != 0 or not last:
        sys.exit(f"seed {seed} ended with {ended.returncode}; {log} says why")
    before, after, seconds = last[-1]
    print(f"seed {seed}: {before} -> {after} in {seconds} s", flush=True)
    return Learnt(float(before), float(after), int(seconds))


def has_learnt(one: Learnt, wanted: float) -> bool:
    """Whether the share doubled and reached what is wanted."""
    return one.after >= wanted and one.after >= 2 * one.before


def print_table(found: dict[int, Learnt]) -> None:
    """A column per seed, in Markdown."""
    print("\n| | " + " | ".join(f"seed {seed}" for seed in found) + " |")
    print("|---" * (len(found) + 1) + "|")
    print("| success | " + " | ".join(f"{one.before:.2f} -> {one.after:.2f}" for one in found.values()) + " |")
    print("| seconds | " + " | ".join(str(one.seconds) for one in found.values()) + " |")


if __name__ == "__main__":
    main()
