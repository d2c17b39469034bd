"""What the scripts examples/start_*_pipeline.py do: find a config by folder and name, and run it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from roll_core.config.locate import find_config
from roll_core.errors import told_to_users
from roll_core.pipelines.run import run_file


def start(description: str, fixed: Sequence[str] = ()) -> None:
    """Run the config that the command line names; an error for the user ends the process with its exit code.

    Args:
        description: what `--help` says.
        fixed: overrides of the script itself, such as the pipeline; those of the command line come after them.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config_path", required=True, help="its folder, as a path or a folder of examples/")
    parser.add_argument("--config_name", required=True, help="its name, without .yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="dotted keys to change")
    given = parser.parse_args()
    with told_to_users():
        run_file(find_config(given.config_path, given.config_name), [*fixed, *given.overrides])
