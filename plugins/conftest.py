"""Makes the plugins and what supports their tests importable from a checkout; nothing is registered by it."""

import sys
from pathlib import Path

for package in sorted(Path(__file__).parent.glob("roll_*")):
    for folder in (package, package / "tests" / "support"):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.append(str(folder))
