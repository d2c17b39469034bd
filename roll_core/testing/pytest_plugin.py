"""Options of pytest for contracts, and the suite for plugins; nothing happens unless it is asked for.

pytest loads this in every project where roll-core is installed, so it imports nothing at its top but pytest.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    return SuiteModule.from_parent(parent, path=module_path, nodeid=SUITE_ID)


class SuiteModule(pytest.Module):
    """`roll_core.testing.suite`, whose classes depend on the plugin that is asked for."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """A class for the plugin, and one for each backend it offers."""
        from roll_core.plugins import load_plugins
        from roll_core.testing.plugin_contract import record_of

        plugin = self.config.getoption("--roll-plugin")
        if plugin is None:
            known = ", ".join(record.name for record in load_plugins().records)
            raise pytest.UsageError(f"{SUITE_ID} is run on a plugin: --roll-plugin NAME\n  installed: {known}")
        try:
            record_of(plugin)
        except LookupError as error:
            raise pytest.UsageError(str(error)) from None
        from roll_core.testing.collecting import contracts_of

        for title, contract in contracts_of(plugin):
            setattr(self.obj, title, contract)  # pytest asks the module for each class by name.
            yield pytest.Class.from_parent(self, name=title, obj=contract)


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
