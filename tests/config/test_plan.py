"""The plan of a run: where devices are, what variables are set, how batches are cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from roll_core.config.compose import load_config, read_config
from roll_core.config.environment import Variable
from roll_core.config.plan import DevicePlace, Plan, Request
from roll_core.config.planning import make_plan, place_device
from roll_core.config.schema import RLVRConfig
from roll_core.plugins import load_plugins

Small = Callable[..., RLVRConfig]
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("roll_core.names.device_files", lambda: [])


def plan_of(config: RLVRConfig, request: Request | None = None, environ: dict[str, str] | None = None) -> Plan:
    return make_plan(config, load_plugins({}, entry_points=[]), "rlvr", [], request, environ or {})


def test_what_the_user_wrote_about_nodes_is_kept(write: Write) -> None:
    """Reported for another framework, which changed num_nodes to 1 without a word."""
    path = write("num_nodes: 2\nnum_gpus_per_node: 1\nactor_train:\n  device_mapping: list(range(0,2))\n")
    reading = read_config(path)
    assert reading.problems == [] and isinstance(reading.config, RLVRConfig)
    plan = plan_of(reading.config, Request(platform="npu"))
    assert (plan.cluster.nodes, plan.cluster.nodes_source) == (2, "num_nodes")
    assert (plan.cluster.devices_per_node, plan.cluster.devices_source) == (1, "num_gpus_per_node")
    trainer = next(role for role in plan.roles if role.name == "actor_train")
    assert [worker.devices for worker in trainer.workers] == [(DevicePlace(0, 0, 0),), (DevicePlace(1, 1, 0),)]


def test_the_second_nodes_devices_count_from_zero() -> None:
    assert [place_device(device, 8) for device in (0, 7, 8, 15)] == [
        DevicePlace(0, 0, 0),
        DevicePlace(7, 0, 7),
        DevicePlace(8, 1, 0),
        DevicePlace(15, 1, 7),
    ]


def test_a_cluster_one_does_not_have_can_be_planned(small: Small) -> None:
    config = small({"actor_infer.device_mapping": "list(range(8, 16))"})
    plan = plan_of(config, Request("npu", nodes=2, devices_per_node=8))
    engines = next(role for role in plan.roles if role.name == "actor_infer")
    assert (plan.platform, plan.cluster.nodes, plan.cluster.devices_per_node) == ("npu", 2, 8)
    assert {(place.node, place.local) for worker in engines.workers for place in worker.devices} == {
        (1, local) for local in range(8)
    }
    assert [problem.path for problem in plan.problems] == ["platform"]
    assert "pip install roll-ascend" in str(plan.problems[0])


def test_a_number_from_the_command_line_over_one_in_the_file_is_said(small: Small) -> None:
    plan = plan_of(small({"num_nodes": 1}), Request("npu", nodes=4))
    assert "num_nodes: 1 in the config; planned with --nodes 4 because the command line says so" in plan.notices


def test_devices_beyond_the_planned_cluster_are_a_problem(small: Small) -> None:
    plan = plan_of(small({"actor_train.device_mapping": [0, 9]}), Request("cpu", nodes=1, devices_per_node=8))
    assert [str(problem) for problem in plan.problems] == [
        "actor_train.device_mapping: names device 9, but 1 nodes (--nodes) with 8 devices each (--devices-per-node) "
        "have 8\n    try:   more nodes, or smaller device numbers"
    ]


def test_nodes_are_counted_from_devices_where_nobody_says(small: Small) -> None:
    plan = plan_of(small({"num_gpus_per_node": 1}), Request("cpu"))
    assert (plan.cluster.nodes, plan.cluster.nodes_source) == (2, "counted from the devices that roles name")


def test_engines_that_span_devices_are_one_worker(small: Small) -> None:
    strategy = {"strategy_name": "vllm", "strategy_config": {"tensor_parallel_size": 2}}
    plan = plan_of(small({"actor_infer.strategy_args": strategy}), Request("cpu"))
    engines = next(role for role in plan.roles if role.name == "actor_infer")
    assert [[place.device for place in worker.devices] for worker in engines.workers] == [[0, 1]]


def test_each_variable_says_who_set_it(small: Small) -> None:
    config = small(
        {
            "system_envs": {"A": "all", "B": "all", "MY_TOKEN": "hf_123456"},
            "actor_train.system_envs": {"B": "mine", "OMP_NUM_THREADS": "4"},
        }
    )
    plan = plan_of(config, environ={"OMP_NUM_THREADS": "2"})
    trainer, engine = plan.roles[0].environment, plan.roles[1].environment
    assert (trainer["A"].value, trainer["A"].source) == ("all", "system_envs")
    assert (trainer["B"].value, trainer["B"].source) == ("mine", "role system_envs")
    assert (trainer["OMP_NUM_THREADS"].value, trainer["OMP_NUM_THREADS"].source) == ("4", "role system_envs")
    assert (engine["OMP_NUM_THREADS"].value, engine["OMP_NUM_THREADS"].source) == ("2", "process")
    assert engine["TOKENIZERS_PARALLELISM"].source == "platform"
    assert trainer["MY_TOKEN"].value == "(hidden)"


def test_variables_reach_rewards_too(small: Small) -> None:
    plan = plan_of(small({"system_envs": {"A": "all"}}))
    reward = next(role for role in plan.roles if role.name == "rewards.math_rule")
    assert reward.environment["A"].value == "all"
    assert reward.target == "roll_core.rewards.math_rule:MathRuleReward"


def test_batches_are_counted(small: Small) -> None:
    batch = plan_of(small({"ppo_epochs": 2})).batches["actor_train"]
    assert (batch.samples, batch.mini_batch, batch.mini_batches, batch.optimizer_steps) == (32, 16, 2, 4)


def test_the_founding_sample_takes_one_optimiser_step() -> None:
    plan = plan_of(load_config("ascend_examples", "qwen3_30b_rlvr_fsdp2"), Request("npu"))
    batch = plan.batches["actor_train"]
    assert (batch.samples, batch.mini_batch, batch.optimizer_steps) == (256, 256, 1)
    assert [len(role.workers) for role in plan.roles] == [16, 8, 8]
    assert (plan.cluster.nodes, plan.cluster.devices_per_node) == (1, 16)


def test_steps_per_epoch_are_counted_from_the_file(small: Small, tmp_path: Path) -> None:
    row = '{{"id": "{}", "prompt": "1 + 1", "ground_truth": "2", "tag": "math_rule"}}\n'
    (tmp_path / "train.jsonl").write_text("".join(row.format(number) for number in range(21)) + "\n")
    plan = plan_of(small())
    assert (plan.rows, plan.steps_per_epoch) == (21, 2)


def test_an_engines_own_variables_are_shown_with_the_platforms(small: Small) -> None:
    strategy = {"actor_infer.strategy_args": {"strategy_name": "vllm"}}
    plan = plan_of(small({**strategy, "actor_infer.system_envs": {"TORCHDYNAMO_DISABLE": "0"}}), Request("cpu"))
    trainer, engine = plan.roles[0].environment, plan.roles[1].environment
    assert engine["VLLM_CPU_OMP_THREADS_BIND"] == Variable("nobind", "platform")
    assert engine["TORCHDYNAMO_DISABLE"] == Variable("0", "role system_envs")
    assert "VLLM_CPU_OMP_THREADS_BIND" not in trainer
