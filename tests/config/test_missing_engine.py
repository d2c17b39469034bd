"""An engine whose package is not here is told before anything starts, and only where the run would be."""

from collections.abc import Callable

import pytest

from roll_core.backend import Availability, Backend
from roll_core.config.runnable import check_run
from roll_core.config.schema import RLVRConfig
from roll_core.plugins import PluginRecord, Registry, load_plugins

RULE = (
    "actor_infer.strategy_args.strategy_name: there is no package 'engine' here\n"
    "    given: 'engine'\n    try:   pip install \"my-plugin[engine]\""
)


def absent() -> Availability:
    return Availability(False, "there is no package 'engine' here")


@pytest.mark.parametrize(("planned", "expected"), [(None, [RULE]), ("cpu", [])])
def test_a_missing_package_matters_where_a_run_would_start_and_not_in_a_plan(
    small: Callable[..., RLVRConfig], planned: str | None, expected: list[str]
) -> None:
    core = load_plugins({}, entry_points=[])
    # The class needs no package by itself, as vllm's does not: only its start does.
    backend = Backend("engine", "roll_core.inference.hf:HfInferStrategy", probe=absent, extra="engine")
    plugin = PluginRecord("my_plugin", "my-plugin", "1", "loaded", backends={"infer": (backend,)})
    registry = Registry((*core.records, plugin))
    config = small({"actor_infer.strategy_args": {"strategy_name": "engine"}, "platform": "cpu"})
    found = check_run(config, registry, {}, planned=planned).problems
    assert [str(one) for one in found if one.path.endswith("strategy_name")] == expected
