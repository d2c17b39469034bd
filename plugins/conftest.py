"""Makes the plugins importable from a checkout where they are not installed; nothing is registered by it."""

import sys
from pathlib import Path

for package in sorted(Path(__file__).parent.glob("roll_*")):
    if str(package) not in sys.path:
        sys.path.append(str(package))
