"""The environment variables that change what a run does, as this process has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roll_core.findings import Finding, Level
from roll_core.trackers.redact import HIDDEN, is_secret_key

PREFIXES = ("ROLL_", "RAY_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "OMP_", "GLOO_", "MASTER_")
NAMES = ("RANK", "WORLD_SIZE", "DASHBOARD_PORT", "PYTHONPATH", "LD_PRELOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD")
_ADDRESS = "RAY_ADDRESS"


def setting_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Each variable that is set; secrets are named and not shown."""
    shown = {name: value for name, value in environ.items() if name.startswith(PREFIXES) or name in NAMES}
    if not shown:
        yield Finding(Level.OK, "environment", "no variable that changes a run is set")
    for name, value in sorted(shown.items()):
        plain = HIDDEN if is_secret_key(name) and value else value or "(empty)"
        if name == _ADDRESS and value:
            found = f"{plain}: every run joins this cluster, and starts none of its own"
            yield Finding(Level.WARNING, name, found, f"unset {_ADDRESS}, unless this is meant")
        else:
            yield Finding(Level.OK, name, plain)
