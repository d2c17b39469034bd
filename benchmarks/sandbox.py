"""How many programs a second the code sandbox judges, with as many processes as there are cores.

Three kinds of rows: test functions that call the program, an input with its output, and a wrong program; each program
is started in a jail of its own. Beside them, starting a plain Python and nothing else, which is the floor.

    python benchmarks/sandbox.py [--programs 300]

Takes less than a minute.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from machine import load_average, write_record

from roll_core.rewards import RewardSample
from roll_core.rewards.code_sandbox import CodeSandboxReward
from roll_core.rewards.pool import RewardPool

WANTED = 15.0
CALLS = [{"assert_code": "def test_it():\n    assert add(2, 3) == 5\n    assert add('a', 'b') == 'ab'\n"}]
ADDS = "```python\ndef add(a, b):\n    return a + b\n```"
ROWS = {
    "tests that call it": (ADDS, {"case_type": "pytest", "test_cases": CALLS}, 1.0),
    "input and output": (
        "```python\nprint(sum(map(int, input().split())))\n```",
        {"case_type": "io", "test_cases": [{"stdin": "2 3\n", "expected_stdout": "5\n"}]},
        1.0,
    ),
    "a wrong one": ("```python\nadd = max\n```", {"case_type": "pytest", "test_cases": CALLS}, 0.0),
}


def main() -> None:
    """Print a table and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=int, default=300)
    number = parser.parse_args().programs
    cores, load = len(os.sched_getaffinity(0)), load_average()
    print(f"{cores} cores, load {load:.1f} before the start, isolation by {CodeSandboxReward().jail.kind}\n")
    print("| programs | a second | wanted | reached |\n|---|---|---|---|")
    results: dict[str, float] = {}
    with RewardPool("code_sandbox", cores, 60.0) as pool:
        for name, (response, fields, score) in ROWS.items():
            samples = [RewardSample(str(index), "", response, fields=fields) for index in range(number)]
            pool.score_many(samples[:cores])
            before = time.perf_counter()
            scores = pool.score_many(samples)
            results[name] = number / (time.perf_counter() - before)
            wrong = [one for one in scores if one.score != score]
            assert not wrong, wrong[0]
            print(f"| {name} | {results[name]:.0f} | >= {WANTED:g} | {'yes' if results[name] >= WANTED else 'no'} |")
    results["a plain Python"] = plain_starts(number, cores)
    print(f"| a plain Python, the floor | {results['a plain Python']:.0f} | | |")
    print(f"\nfigures: {write_record('sandbox', ['roll-core'], results)}")


def plain_starts(number: int, cores: int) -> float:
    """Interpreters a second that are started and end."""

    def start(_: int) -> None:
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)

    before = time.perf_counter()
    with ThreadPoolExecutor(cores) as threads:
        list(threads.map(start, range(number)))
    return number / (time.perf_counter() - before)


if __name__ == "__main__":
    main()
