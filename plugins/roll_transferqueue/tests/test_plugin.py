"""The plugin loads, and asking for its transport gives a clear error rather than another transport."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from roll_core.errors import PluginError
from roll_core.plugins import Registry, load_plugins
from roll_core.resolve import resolve_backend

POINT = EntryPoint("roll_transferqueue", "roll_transferqueue.plugin", "roll_core")


def test_it_loads_and_offers_nothing() -> None:
    record = load_plugins({}, [POINT]).records[1]
    assert (record.state, record.problem, record.backends) == ("loaded", "", {"transport": ()})


def test_asking_for_its_transport_says_that_this_version_has_none() -> None:
    core, loaded = load_plugins({}, [POINT]).records
    installed = Registry((core, replace(loaded, dist="roll-transferqueue", version="0.1.0")))
    with pytest.raises(PluginError) as error:
        resolve_backend(installed, "transport", "TransferQueue")
    assert str(error.value) == (
        "no transport named 'TransferQueue'\n"
        "  installed: ray (roll_core), local (roll_core)\n"
        "  roll-transferqueue 0.1.0 is installed and does not offer TransferQueue\n"
        "  try: pip install --upgrade roll-transferqueue"
    )
