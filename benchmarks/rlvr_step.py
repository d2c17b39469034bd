"""A step of GRPO: our loop against TRL's GRPOTrainer, and both against what their models alone cost.

Same model (4 million parameters, made in place), prompts, rewards, group size, batch and answer lengths, one thread
each; all in one run and in turns. First both losses and gradients are compared on the same rollout. Processor seconds
are of the whole process tree, Ray and its workers included.

    python benchmarks/rlvr_step.py [--cases equal-32,equal-8,tail-32,quickstart] [--rounds 5]

Makes an environment for TRL where there is none. The first three cases are the default, and take about ten minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parent))

from machine import ROOT, busy_cores, load_average, write_record
from step.contestant import Contestant, Round
from step.environment import TRL_VERSION, trl_python
from step.work import CASES, Case, make_folder

LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
"""Relative: a norm adds up the rounding of four million numbers."""
OVERHEAD_TARGET = 1.10
WARM_UP_STEPS = 2

OURS, TRL, FLOOR, PLAIN = "ours", "TRL", "floor of ours", "floor of TRL"


def contestants(folder: Path, case: Case, trl: Path) -> dict[str, Contestant]:
    """The four loops of a case, started and warm."""
    here = sys.executable
    modules = {
        OURS: (here, "ours"),
        TRL: (str(trl), "trl_loop"),
        FLOOR: (here, "floor_ours"),
        PLAIN: (here, "floor_plain"),
    }
    found = {}
    for name, (python, module) in modules.items():
        command = [python, "-m", f"step.{module}", str(folder), case.name]
        tokens = None if case.varies else case.num_tokens
        found[name] = Contestant(name, command, folder / f"{case.name}-{module}.log", tokens)
        found[name].start()
    return found


def compare_losses(folder: Path, found: dict[str, Contestant]) -> str:
    """Ours and TRL's loss, and the norms of their gradients, on one rollout of our engine.

    Raises:
        SystemExit: they differ, or nothing was clipped, so that the comparison says nothing about clipping.
    """
    rollout = str(folder / "rollout.pt")
    ours = found[FLOOR].ask(request="rollout", file=rollout)
    theirs = found[TRL].ask(request="loss", file=rollout)
    loss = abs(ours["loss"] - theirs["loss"])
    gradient = abs(ours["grad_norm"] / theirs["grad_norm"] - 1)
    clipped = ours["actor/ppo_ratio_clipfrac"]
    text = (
        f"loss {ours['loss']:+.7f} and {theirs['loss']:+.7f} (apart {loss:.1e}), norm of the gradient "
        f"{ours['grad_norm']:.6f} and {theirs['grad_norm']:.6f} (apart {gradient:.1e} of it), "
        f"{clipped:.0%} of the ratios outside the clip range"
    )
    if loss > LOSS_TOLERANCE or gradient > GRADIENT_TOLERANCE or clipped == 0:
        raise SystemExit(f"ours and TRL's loss are not the same: {text}")
    return text


def take_turns(case: Case, found: dict[str, Contestant], rounds: int) -> None:
    """Rounds in the order A B C D, A B C D, and one more for memory."""
    for contestant in found.values():
        contestant.ask(steps=WARM_UP_STEPS)
    for _ in range(rounds):
        for contestant in found.values():
            contestant.rounds.append(contestant.run(case.steps_per_round))
    for contestant in found.values():
        contestant.measure_memory(WARM_UP_STEPS)


def spread(values: Sequence[float]) -> str:
    """Median, and the extremes in brackets."""
    return f"{median(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def ratios(above: Sequence[Round], below: Sequence[Round], what: str) -> list[float]:
    """One ratio per pair of neighbouring rounds, so that a busier moment weighs on both sides."""
    return [getattr(a, what) / getattr(b, what) for a, b in zip(above, below)]


def table(case: Case, found: dict[str, Contestant]) -> Iterator[str]:
    """One row per loop."""
    yield "| loop | CPU s per step | wall s per step | tokens per CPU s | peak memory |"
    yield "|---" * 5 + "|"
    for name, contestant in found.items():
        cpu, wall = [r.cpu for r in contestant.rounds], [r.wall for r in contestant.rounds]
        rate = median(r.told("tokens") / r.cpu for r in contestant.rounds)
        yield f"| {name} | {spread(cpu)} | {spread(wall)} | {rate:,.0f} | {contestant.peak_bytes / 2**20:,.0f} MiB |"


def verdicts(case: Case, found: dict[str, Contestant]) -> dict[str, tuple[list[float], float | None, bool]]:
    """Name of a ratio -> its values by round, what it should reach, and whether more is better."""
    rounds = {name: contestant.rounds for name, contestant in found.items()}
    return {
        "TRL / ours, CPU": (ratios(rounds[TRL], rounds[OURS], "cpu"), case.target, True),
        "TRL / ours, wall": (ratios(rounds[TRL], rounds[OURS], "wall"), case.target, True),
        "ours / its floor, CPU": (ratios(rounds[OURS], rounds[FLOOR], "cpu"), OVERHEAD_TARGET, False),
        "ours / its floor, wall": (ratios(rounds[OURS], rounds[FLOOR], "wall"), OVERHEAD_TARGET, False),
        "TRL / its floor, CPU": (ratios(rounds[TRL], rounds[PLAIN], "cpu"), None, False),
        "floor of TRL / floor of ours, CPU": (ratios(rounds[PLAIN], rounds[FLOOR], "cpu"), None, True),
    }


def verdict_lines(case: Case, found: dict[str, Contestant]) -> Iterator[str]:
    """Each ratio with its target."""
    for name, (values, target, more) in verdicts(case, found).items():
        wanted = "" if target is None else f", wanted {'>=' if more else '<='} {target:.2f}"
        reached = "" if target is None else (": yes" if (median(values) >= target) == more else ": no")
        yield f"- {name}: {spread(values)}{wanted}{reached}"


def breakdown(case: Case, found: dict[str, Contestant]) -> Iterator[str]:
    """Where the wall time of a step goes, as the loops themselves tell it."""

    def told(name: str, key: str) -> float:
        return mean(each.told(key) for each in found[name].rounds)

    parts = ("time/step_model_update", "time/step_generate", "time/adv", "time/step_train")
    ours = {part.removeprefix("time/").removeprefix("step_"): told(OURS, part) for part in parts}
    wall = mean(each.wall for each in found[OURS].rounds)
    ours["rest"] = wall - sum(ours.values())
    yield "- ours, wall: " + ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in ours.items())
    trained = told(OURS, "rows_trained")
    if trained < case.num_rows:
        left = case.num_rows - trained
        yield f"- ours left {left:.0f} rows out of training: their advantage is 0, so is their gradient"
    for name in (FLOOR, PLAIN):
        generate, train = 1000 * told(name, "generate"), 1000 * told(name, "train")
        yield f"- {name}, wall: generate {generate:.0f} ms, train {train:.0f} ms"


def run_case(folder: Path, case: Case, trl: Path, rounds: int) -> dict[str, object]:
    """Measure a case and print its tables; the figures for the record."""
    answers = f"{case.num_tokens} tokens, {case.padding:.1f} times as many when padded"
    if case.varies:
        answers = f"answers of at most {max(case.lengths)} tokens, as they come"
    print(
        f"\n## {case.name}: {case.num_rows} rows, {len(case.lengths)} prompts x {case.group_size}, {answers}\n",
        flush=True,
    )
    found = contestants(folder, case, trl)
    try:
        computed = {tuple(sorted(contestant.versions.items())) for contestant in found.values()}
        if len(computed) > 1:
            raise SystemExit(f"the environments differ in torch or transformers: {computed}")
        print(compare_losses(folder, found), "\n", flush=True)
        before = load_average()
        take_turns(case, found, rounds)
    finally:
        for contestant in found.values():
            contestant.stop()
    for lines in (table(case, found), [""], verdict_lines(case, found), [""], breakdown(case, found)):
        for line in lines:
            print(line, flush=True)
    return {
        "load_average": [before, load_average()],
        "rounds": {
            name: [{"cpu": each.cpu, "wall": each.wall, "steps": each.steps} for each in contestant.rounds]
            for name, contestant in found.items()
        },
        "peak_bytes": {name: contestant.peak_bytes for name, contestant in found.items()},
        "ratios": {name: values for name, (values, _target, _more) in verdicts(case, found).items()},
    }


def main() -> None:
    """Print the tables and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default="equal-32,equal-8,tail-32", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trl", default=TRL_VERSION, help="version of TRL")
    options = parser.parse_args()
    chosen = [CASES[name] for name in options.cases.split(",")]
    if any(case.varies for case in chosen):
        subprocess.run([sys.executable, "examples/quickstart/prepare.py"], cwd=ROOT, check=True)
    trl = trl_python(options.trl)
    print(
        f"medians over {options.rounds} rounds, extremes in brackets; 1 thread each; TRL {options.trl}; "
        f"{busy_cores():.1f} cores busy before the start"
    )
    results = {}
    with tempfile.TemporaryDirectory(prefix="rlvr-step-") as name:
        for case in chosen:
            folder = Path(name) / case.name
            folder.mkdir()
            make_folder(folder, case, ROOT / "output" / "quickstart")
            results[case.name] = run_case(folder, case, trl, options.rounds)
    record = write_record("rlvr_step", ("torch", "transformers", "ray", "roll-core"), {"trl": options.trl, **results})
    print(f"\nfigures: {record}")


if __name__ == "__main__":
    main()
