"""Options of pytest for contracts, and the suite for plugins; nothing happens unless it is asked for.

pytest loads this in every project where roll-core is installed, so it imports nothing at its top but pytest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

SUITE = Path(__file__).with_name("suite.py")
SUITE_ID = "roll_core.testing.suite"


def pytest_addoption(parser: pytest.Parser) -> None:
    """--roll-plugin and --roll-require-device."""
    group = parser.getgroup("roll", "contracts of roll-core")
    group.addoption("--roll-plugin", metavar="NAME", help="the plugin that roll_core.testing.suite is run on")
    group.addoption(
        "--roll-require-device", action="store_true", help="a device or a library that is missing is a failure, no skip"
    )


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The suite is made from what the plugin offers; every other module is pytest's own affair."""
    if module_path != SUITE:
        return None
    from roll_core.testing.collecting import SuiteModule

    return SuiteModule.from_parent(parent, path=module_path, nodeid=SUITE_ID)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was run of each contract, and what was skipped and why."""
    plugin = config.getoption("--roll-plugin")
    if plugin is None:
        return
    from roll_core.testing.summary import summary_lines

    lines = summary_lines(terminalreporter.stats)
    if lines:
        terminalreporter.section(f"contracts of {plugin}")
        terminalreporter.write_line("\n".join(lines))
