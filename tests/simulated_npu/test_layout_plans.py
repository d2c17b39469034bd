"""Published layouts for sixteen NPUs, planned: which worker has which device of which node."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from roll_core.config.compose import load_config_file
from roll_core.config.plan import Plan, Request
from roll_core.config.planning import make_plan
from roll_core.plugins import load_plugins

SAMPLE = Path(__file__).parents[2] / "examples" / "ascend_examples" / "qwen3_30b_rlvr_fsdp2.yaml"
EIGHT_AND_EIGHT = (
    "actor_train.device_mapping=list(range(0,8))",
    "actor_train.strategy_args.strategy_config.fsdp_size=8",
    "actor_infer.device_mapping=list(range(8,16))",
    "reference.device_mapping=list(range(8,16))",
    "reference.strategy_args.strategy_config.fsdp_size=8",
)
THREE_PARTS = (
    "actor_train.device_mapping=list(range(0,8))",
    "actor_train.strategy_args.strategy_config.fsdp_size=8",
    "actor_infer.device_mapping=list(range(8,12))",
    "reference.device_mapping=list(range(12,16))",
    "reference.strategy_args.strategy_config.fsdp_size=4",
)
# As published the sample has no KL term: its reference is never asked, and no worker is planned for it.
WITH_REFERENCE = "use_kl_loss=true"
ONE_NODE, TWO_NODES = Request("npu", nodes=1, devices_per_node=16), Request("npu", nodes=2, devices_per_node=8)


def plan_of(request: Request, *overrides: str) -> Plan:
    registry = load_plugins({}, [EntryPoint("roll_ascend", "roll_ascend.plugin", "roll_core")])
    config = load_config_file(SAMPLE, [f"num_gpus_per_node={request.devices_per_node}", *overrides], "rlvr")
    return make_plan(config, registry, "rlvr", [], request, {})


def places(plan: Plan, role: str) -> list[list[tuple[int, int]]]:
    """Node and local index of each worker's devices."""
    workers = next(one for one in plan.roles if one.name == role).workers
    return [[(place.node, place.local) for place in worker.devices] for worker in workers]


def singles(node: int, locals_: range) -> list[list[tuple[int, int]]]:
    return [[(node, local)] for local in locals_]


def pairs(node: int, locals_: range) -> list[list[tuple[int, int]]]:
    return [[(node, local), (node, local + 1)] for local in locals_[::2]]


def test_the_sample_has_all_roles_on_sixteen_devices_of_a_node() -> None:
    plan = plan_of(ONE_NODE, WITH_REFERENCE)
    assert places(plan, "actor_train") == places(plan, "reference") == singles(0, range(16))
    assert places(plan, "actor_infer") == pairs(0, range(16))


def test_the_sample_as_it_is_needs_no_reference() -> None:
    assert [role.name for role in plan_of(ONE_NODE).roles if role.name == "reference"] == []


def test_the_sample_on_two_nodes_counts_each_nodes_devices_from_zero() -> None:
    plan = plan_of(TWO_NODES)
    assert places(plan, "actor_train") == singles(0, range(8)) + singles(1, range(8))
    assert places(plan, "actor_infer") == pairs(0, range(8)) + pairs(1, range(8))


def test_trainers_and_engines_on_eight_devices_each_of_a_node() -> None:
    plan = plan_of(ONE_NODE, *EIGHT_AND_EIGHT, WITH_REFERENCE)
    assert places(plan, "actor_train") == singles(0, range(8))
    assert places(plan, "reference") == singles(0, range(8, 16))
    assert places(plan, "actor_infer") == pairs(0, range(8, 16))


def test_trainers_on_one_node_and_engines_on_the_other() -> None:
    plan = plan_of(TWO_NODES, *EIGHT_AND_EIGHT, WITH_REFERENCE)
    assert places(plan, "actor_train") == singles(0, range(8))
    assert places(plan, "reference") == singles(1, range(8))
    assert places(plan, "actor_infer") == pairs(1, range(8))


@pytest.mark.parametrize("request_", [ONE_NODE, TWO_NODES], ids=["1x16", "2x8"])
def test_eight_trainers_four_devices_of_engines_and_four_of_the_reference(request_: Request) -> None:
    plan = plan_of(request_, *THREE_PARTS, WITH_REFERENCE)
    node, first = (0, 8) if request_ is ONE_NODE else (1, 0)
    assert places(plan, "actor_train") == singles(0, range(8))
    assert places(plan, "actor_infer") == pairs(node, range(first, first + 4))
    assert places(plan, "reference") == singles(node, range(first + 4, first + 8))


@pytest.mark.parametrize("request_", [ONE_NODE, TWO_NODES], ids=["1x16", "2x8"])
def test_no_layout_asks_for_a_device_that_is_not_there(request_: Request) -> None:
    for overrides in ((), EIGHT_AND_EIGHT, THREE_PARTS):
        plan = plan_of(request_, *overrides, WITH_REFERENCE)
        assert [one for one in plan.problems if "device" in one.path or "node" in one.path] == []


def test_a_device_beyond_the_sixteenth_is_told() -> None:
    plan = plan_of(TWO_NODES, "actor_infer.device_mapping=list(range(8,18))")
    assert any("actor_infer.device_mapping" in problem.path for problem in plan.problems)
