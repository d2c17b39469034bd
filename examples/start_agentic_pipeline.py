"""Run an agentic config: python examples/start_agentic_pipeline.py --config_path DIR --config_name NAME [key=value ...]

DIR is absolute, or relative to the working directory or to this folder.
"""

import argparse
import sys

from roll_core.config.locate import find_config
from roll_core.errors import RollError
from roll_core.pipelines.run import run_file


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="Run an agentic config.")
    parser.add_argument("--config_path", required=True, help="folder of the config")
    parser.add_argument("--config_name", required=True, help="its name, without .yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="dotted keys to change")
    given = parser.parse_args()
    try:
        run_file(find_config(given.config_path, given.config_name), given.overrides)
    except RollError as error:
        print(error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
