"""The plan's drawing: a grid per node, and the memory of roles and devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from roll_core.cli.plan_drawing import device_map, memory_lines
from roll_core.config.compose import load_config
from roll_core.config.plan import Plan, Request
from roll_core.config.planning import make_plan
from roll_core.config.rlvr import RLVRConfig

if TYPE_CHECKING:
    from tests.conftest import PluginSite

PRETEND = """
    PREAMBLE
    from roll_core.platforms import Ability, Platform

    @hookimpl
    def roll_platforms():
        return [Backend("pretend", "MODULE:Pretend", "a pretend device", probe=lambda: Availability(True, "always"))]

    class Pretend(Platform):
        name = device_type = "pretend"
        ray_resource = "PRETEND"
        collective_backend = "gloo"

        def device_count(self):
            return 4

        def abilities(self):
            return frozenset({Ability.SLEEP, Ability.BF16})
"""
FOUNDING = "ascend_examples/qwen3_30b_rlvr_fsdp2"


def plan_of(site: PluginSite, *overrides: str, request: Request | None = None) -> Plan:
    site.install(PRETEND)
    config = load_config("ascend_examples", "qwen3_30b_rlvr_fsdp2", list(overrides))
    assert isinstance(config, RLVRConfig)
    return make_plan(config, site.load(), "rlvr", [], request, {"ROLL_PLATFORM": "pretend"})


def test_the_founding_sample_on_two_nodes_of_eight(site: PluginSite) -> None:
    plan = plan_of(site, request=Request("pretend", 2, 8))
    assert list(device_map(plan)) == [
        "node 0        0 1 2 3 4 5 6 7   devices",
        "actor_train   0 1 2 3 4 5 6 7   ranks",
        "actor_infer   0 0 1 1 2 2 3 3   ranks",
        "node 1         0  1  2  3  4  5  6  7   devices",
        "actor_train    8  9 10 11 12 13 14 15   ranks",
        "actor_infer    4  4  5  5  6  6  7  7   ranks",
    ]


def test_a_split_layout_shows_who_is_where(site: PluginSite) -> None:
    plan = plan_of(
        site,
        "actor_train.device_mapping=list(range(0,4))",
        "actor_infer.device_mapping=list(range(4,8))",
        "actor_infer.strategy_args.strategy_config.tensor_parallel_size=1",
        request=Request("pretend", 1, 8),
    )
    assert list(device_map(plan)) == [
        "node 0        0 1 2 3 4 5 6 7   devices",
        "actor_train   0 1 2 3 . . . .   ranks",
        "actor_infer   . . . . 0 1 2 3   ranks",
    ]


def test_many_nodes_are_not_all_drawn(site: PluginSite) -> None:
    lines = list(device_map(plan_of(site, request=Request("pretend", 8, 2))))
    assert lines[-1] == "and nodes 4 to 7; --json lists them"
    assert sum(line.startswith("node ") for line in lines) == 4


def test_memory_is_told_per_role_and_per_device(site: PluginSite) -> None:
    memory = plan_of(site, request=Request("pretend", 1, 16, 64 * 2**30)).memory
    assert memory is not None
    [group] = memory.devices
    assert (group.devices, group.roles) == (tuple(range(16)), ("actor_train", "actor_infer"))
    # 30.5e9 parameters, 16 bytes each, in the node's main memory.
    assert memory.host_bytes == (16 * (30_532_122_624 * 8 // 16 + 30_532_122_624 * 8 // 16),)
    lines = list(memory_lines(memory))
    assert any(line.startswith("actor_train  ") and "30.5e9" in line for line in lines)
    assert any("of 64.0 GiB: fits" in line for line in lines)
    assert memory.warnings() == []


def test_too_little_memory_is_a_note_that_says_what_needs_less(site: PluginSite) -> None:
    plan = plan_of(site, request=Request("pretend", 1, 16, 24 * 2**30))
    [warning] = [notice for notice in plan.notices if notice.startswith("memory:")]
    assert warning.startswith("memory: running out of it is likely on devices 0-15: about ")
    assert "offload_policy: true" in warning


def test_a_model_nobody_knows_is_said_to_be_unknown(site: PluginSite) -> None:
    plan = plan_of(site, "pretrain=acme/thing", request=Request("pretend", 1, 16))
    assert plan.memory is not None
    lines = "\n".join(memory_lines(plan.memory))
    assert "unknown" in lines
    assert "the size of 'acme/thing' is not known" in lines


def test_a_platform_of_a_third_party_counts_its_devices_here(site: PluginSite) -> None:
    plan = plan_of(site, "num_gpus_per_node=null")
    assert plan.cluster.devices_per_node == 4
    assert plan.cluster.devices_source == "platform pretend counts them here"


def roll_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"ROLL_PLUGINS": "", "ROLL_PLATFORM": "cpu"}
    code = (
        "import sys; from roll_core.cli import build_app\n"
        "sys.argv = ['roll', 'check', *sys.argv[1:]]\n"
        "try: build_app()(prog_name='roll')\n"
        "finally: print({'torch', 'ray', 'transformers', 'numpy'} & set(sys.modules), file=sys.stderr)\n"
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], env=environ, capture_output=True, text=True)


def test_a_plan_for_another_cluster_needs_no_heavy_library() -> None:
    done = roll_check(FOUNDING, "--platform", "cpu", "--nodes", "2", "--devices-per-node", "8", "--json")
    assert done.stderr.strip() == "set()"
    memory = json.loads(done.stdout)["memory"]
    assert [role["parameters"] for role in memory["roles"]] == [30_532_122_624] * 2
    assert len(memory["host_bytes"]) == 2


@pytest.mark.parametrize("size", ["much", "0GiB"])
def test_a_memory_that_is_no_size_exits_2(size: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "roll_core", "check", FOUNDING, "--device-memory", size], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "--device-memory: is no size of memory" in done.stderr
