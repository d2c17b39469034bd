"""New processes of several-rank tests import `tests.training...`, so its parent folder must be on the path."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
