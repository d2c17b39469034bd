"""Code in an interpreter of its own, to see what it imports and changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

HEAVY = frozenset(
    {
        "jax",
        "numpy",
        "pandas",
        "pydantic",
        "ray",
        "safetensors",
        "sglang",
        "tensordict",
        "torch",
        "transformers",
        "vllm",
    }
)
"""Libraries that what is read before a run must not wait for."""


def in_fresh_interpreter(code: str, environ: Mapping[str, str] | None = None, timeout_s: float = 120.0) -> Any:
    """What the code leaves in `result`, which must be JSON.

    Raises:
        AssertionError: it ended with an error, whose last lines are shown, or not in time.
    """
    program = f"result = None\n{code}\nimport json, sys\nsys.stdout.write('\\n' + json.dumps(result))"
    inherited = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**inherited, **(environ or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise AssertionError(f"in a fresh interpreter this did not end within {timeout_s:g} s:\n{code}") from None
    if done.returncode:
        shown = "\n  ".join(done.stderr.strip().splitlines()[-4:])
        raise AssertionError(f"in a fresh interpreter this failed:\n  {shown}\n{code}")
    return json.loads(done.stdout.splitlines()[-1])


def tops(modules: Iterable[str]) -> set[str]:
    """The packages that modules belong to."""
    return {name.partition(".")[0] for name in modules}
