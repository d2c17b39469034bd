"""`roll run` with its phases timed, up to the end of the first optimiser step. `startup.py` runs it.

    python benchmarks/startup_trace.py STARTED RECORD.json CONFIG [key=value ...]

STARTED is the time at which the process was asked for. Functions are wrapped as soon as their module has been imported,
so that nothing is imported earlier than in a run of its own.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

PHASES = {
    ("roll_core.config.compose", "read_config"): "read the config",
    ("roll_core.pipelines.decide", "decide"): "check it, choose platform and strategies",
    ("roll_core.pipelines.inputs", "read_rows"): "read the data files",
    ("roll_core.trackers", "open_trackers"): "open trackers",
    ("ray", "init"): "start Ray",
    ("roll_core.cluster.nodes", "cluster_nodes"): "look at the nodes",
    ("roll_core.pipelines.launch", "launch"): "ask for workers",
    ("roll_core.pipelines.inputs", "prepare_inputs"): "read the tokenizer and tokenise",
    ("roll_core.pipelines.launch", "set_up"): "wait for workers and their models",
    ("roll_core.rollout.weight_update", "WeightUpdate.send"): "first weights to the engine",
    ("roll_core.pipelines.validation", "Validation.__call__"): "validate before the first step",
    ("roll_core.rollout.collector", "Collector.__call__"): "first generation, with rewards",
    ("roll_core.pipelines.shaping", "Shaper.__call__"): "advantages",
    ("roll_core.pipelines.update", "PolicyUpdate.__call__"): "first optimiser step",
}
LAST = "first optimiser step"


class Trace:
    """Start and end of each phase, in seconds since the process was asked for, and whether the main thread ran it."""

    def __init__(self, started: float, record: Path) -> None:
        self.started, self.record = started, record
        self.spans: list[tuple[str, float, float, bool]] = []

    def now(self) -> float:
        """Seconds since the process was asked for."""
        return time.time() - self.started

    def wrapped(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """The function, timed; the last phase ends the run."""

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = self.now()
            try:
                return function(*arguments, **options)
            finally:
                is_main = threading.current_thread() is threading.main_thread()
                self.spans.append((phase, begin, self.now(), is_main))
                if phase == LAST:
                    self.finish()

        return timed

    def finish(self) -> None:
        """Write what was seen, and end the run as Ctrl-C would."""
        end = self.now()
        missing = set(PHASES.values()) - {phase for phase, *_when in self.spans}
        if missing:
            raise AssertionError(f"the run went past what is timed here: {', '.join(sorted(missing))}")
        from machine import tree, tree_cpu_seconds

        cpu = {}
        for process in tree(os.getpid()):
            times = process.cpu_times()
            name = " ".join(process.cmdline()) or process.name()
            cpu[f"{process.pid} {name}"] = times.user + times.system
        result = {"wall": end, "cpu": tree_cpu_seconds(os.getpid()), "spans": self.spans, "processes": cpu}
        self.record.write_text(json.dumps(result))
        raise SystemExit(0)

    def patch(self, module: ModuleType) -> None:
        """Wrap what a module has of the phases."""
        for (name, path), phase in PHASES.items():
            if name == module.__name__:
                *outer, last = path.split(".")
                owner = functools.reduce(getattr, outer, module)
                setattr(owner, last, self.wrapped(getattr(owner, last), phase))


class PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of the phases as Python does, and has them patched when they have been executed."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.names = trace, {name for name, _path in PHASES}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own specification, with a loader that patches afterwards."""
        if fullname not in self.names:
            return None
        self.names.remove(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute, trace = spec.loader.exec_module, self.trace

            def exec_and_patch(module: ModuleType) -> None:
                execute(module)
                trace.patch(module)

            spec.loader.exec_module = exec_and_patch  # type: ignore[method-assign]
        return spec


def main() -> None:
    """Run until the first optimiser step has been taken."""
    trace = Trace(float(sys.argv[1]), Path(sys.argv[2]))
    sys.meta_path.insert(0, PatchingFinder(trace))
    sys.argv = ["roll", "run", *sys.argv[3:]]
    from roll_core.cli import main as roll

    roll()


if __name__ == "__main__":
    main()
