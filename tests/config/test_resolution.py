"""From names to classes, and the reasons why a config cannot run on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roll_core.backend import Availability, Backend
from roll_core.checkpoint.manifest import write_manifest
from roll_core.config.compose import load_config
from roll_core.config.plan import Request
from roll_core.config.planning import make_plan
from roll_core.config.rules import problems_of
from roll_core.config.runnable import check_run, require_runnable
from roll_core.config.schema import RLVRConfig
from roll_core.errors import ConfigError
from roll_core.plugins import PluginRecord, Registry, load_plugins
from roll_core.rewards.builtin import BUILTIN_REWARDS

Small = Callable[..., RLVRConfig]
PUBLISHED = "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker"
ROW = '{"id": "1", "prompt": "What is 1 + 1?", "ground_truth": "2", "tag": "math_rule"}\n'


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without accelerators, plugins or variables, with a model folder and a data file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("roll_core.names.device_files", lambda: [])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "train.jsonl").write_text(ROW)
    return tmp_path


@pytest.fixture
def core() -> Registry:
    return load_plugins({}, entry_points=[])


def said(config: RLVRConfig, registry: Registry, environ: dict[str, str] | None = None, **options: Any) -> list[str]:
    return [str(problem) for problem in check_run(config, registry, environ or {}, **options).problems]


def test_the_small_config_can_run_here(small: Small, core: Registry) -> None:
    check = require_runnable(small(), core, {})
    assert check.platform is not None and check.platform.name == "cpu"
    assert {path: found.backend.name for path, found in check.resolution.strategies.items()} == {
        "actor_train": "fsdp2_train",
        "actor_infer": "hf_infer",
    }


def test_everything_wrong_is_raised_at_once(small: Small, core: Registry) -> None:
    config = small({"pretrain": "nowhere", "rollout_batch_size": 6, "actor_train.data_args.file_name": ["gone.jsonl"]})
    with pytest.raises(ConfigError) as caught:
        require_runnable(config, core, {})
    assert [problem.path for problem in caught.value.problems] == [
        "pretrain",
        "actor_train.data_args.file_name: gone.jsonl",
        "rollout_batch_size",
    ]


def test_the_founding_sample_says_what_it_needs_and_what_is_here(
    core: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    config = load_config("ascend_examples", "qwen3_30b_rlvr_fsdp2")
    assert said(config, core)[0] == (
        "platform: this config is written for platform npu: its system_envs set HCCL_NPU_SOCKET_PORT_RANGE, "
        "VLLM_ASCEND_ENABLE_NZ\n"
        "    needs: platform npu, package roll-ascend (not installed), 16 devices\n"
        "    this machine has: cpu, 4 cores, no accelerator\n"
        "    try:   pip install roll-ascend, on a machine with 16 npu devices; or `platform: cpu` to run it here all "
        "the same"
    )


def test_with_a_platform_asked_for_other_platforms_variables_are_a_notice(small: Small, core: Registry) -> None:
    config = small({"platform": "cpu", "system_envs": {"HCCL_CONNECT_TIMEOUT": "3600"}})
    check = check_run(config, core, {})
    assert check.problems == []
    assert check.notices == [
        "system_envs: HCCL_CONNECT_TIMEOUT belongs to platform npu; platform cpu does not read them"
    ]


def test_variables_of_a_role_count_too(small: Small, core: Registry) -> None:
    found = said(small({"actor_infer.system_envs": {"VLLM_ASCEND_ENABLE_NZ": 0}}), core)
    assert found[0].startswith("platform: this config is written for platform npu: its system_envs set VLLM_ASCEND_")


def test_variables_that_are_about_no_device_say_nothing(small: Small, core: Registry) -> None:
    assert said(small({"system_envs": {"MY_VARIABLE": "1", "OMP_NUM_THREADS": "2"}}), core) == []


def test_a_broken_plugin_is_named_as_the_package_that_is_needed(small: Small, core: Registry) -> None:
    broken = PluginRecord("roll_ascend", "roll-ascend", "0.1", "failed", "OSError: libascend_hal.so")
    found = said(small({"system_envs": {"HCCL_CONNECT_TIMEOUT": 1}}), Registry((*core.records, broken)))
    assert "package roll-ascend (installed, failed: OSError: libascend_hal.so), 2 devices" in found[0]


def test_a_strategy_that_nobody_brings_names_the_role(small: Small, core: Registry) -> None:
    found = said(small({"actor_train.strategy_args": {"strategy_name": "megatron_train"}}), core)
    assert found == [
        "actor_train.strategy_args.strategy_name: no training strategy named 'megatron_train'\n"
        "    installed: fsdp2_train (roll_core), fsdp2_infer (roll_core)\n"
        "    megatron_train: is left to plugins, and no package that brings it is known"
    ]


def test_a_strategy_of_the_wrong_kind_says_which_would_do(small: Small, core: Registry) -> None:
    changes = {"use_kl_loss": True, "kl_loss_coef": 0.1, "reference": {"strategy_args": {"strategy_name": "hf_infer"}}}
    assert said(small(changes), core) == [
        "reference.strategy_args.strategy_name: 'hf_infer' is an inference strategy, and reference trains or scores\n"
        "    try:   one of: fsdp2_train, fsdp2_infer"
    ]


def test_an_engine_must_be_named(small: Small, core: Registry) -> None:
    assert said(small({"actor_infer.strategy_args": None}), core) == [
        "actor_infer.strategy_args.strategy_name: must be given\n    try:   one of: hf_infer, vllm, sglang"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fsdp_sice": 2}, "fsdp_sice: fsdp2_train has no such option\n    try:   did you mean 'fsdp_size'?"),
        ({"fsdp_size": "two"}, "fsdp_size: must be a whole number\n    given: 'two'"),
        ({"wrap_policy": {"layers": 1}}, "wrap_policy.layers: fsdp2_train has no such option"),
    ],
)
def test_options_of_a_strategy_are_checked_by_its_own_schema(
    small: Small, core: Registry, options: dict[str, Any], message: str
) -> None:
    found = said(small({"actor_train.strategy_args.strategy_config": options}), core)
    assert found == [f"actor_train.strategy_args.strategy_config.{message}"]


def test_an_unknown_tracker_is_named(small: Small, core: Registry) -> None:
    found = said(small({"track_with": "tensorbord"}), core)
    assert len(found) == 1
    assert found[0].startswith("track_with: no tracker named 'tensorbord'")
    assert "did you mean 'tensorboard'?" in found[0]


def test_a_transport_that_nobody_brings_names_its_package(small: Small, core: Registry) -> None:
    found = said(small({"transfer_backend": {"backend_name": "TransferQueue"}}), core)
    assert found[0].startswith("transfer_backend.backend_name: no transport named 'TransferQueue'")
    assert found[0].endswith("try:   pip install roll-transferqueue")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pretrain": "Qwen/Qwen3-30B-A3B"},
            "pretrain: there is no such folder; models are read from local folders, nothing is downloaded\n"
            "    given: 'Qwen/Qwen3-30B-A3B'\n"
            "    try:   fetch the model beforehand, then write the path of its folder",
        ),
        (
            {"pretrain": "."},
            "pretrain: the folder has no config.json, so it is no model; it has model, train.jsonl\n    given: '.'\n"
            "    try:   the folder that save_pretrained wrote",
        ),
        (
            {"pretrain": None},
            "pretrain: a model's folder must be given for actor_train\n    try:   pretrain: /models/my-model",
        ),
        (
            {"actor_train.data_args.file_name": "trian.jsonl"},
            "actor_train.data_args.file_name: trian.jsonl: no such file; looked for trian.jsonl; did you mean "
            "train.jsonl?",
        ),
        (
            {
                "rewards": {"math_rul": {"tag_included": ["math_rule"]}},
                "actor_train.data_args": {"file_name": "train.jsonl"},
            },
            "rewards.math_rul: no reward named 'math_rul'\n"
            f"    try:   built in: {', '.join(sorted(BUILTIN_REWARDS))}; did you mean 'math_rule'?; or name your own: "
            "package.module:name, ./file.py:name",
        ),
        (
            {"resume_from_checkpoint": "out/checkpoint-150"},
            "resume_from_checkpoint: there is no such folder\n    given: 'out/checkpoint-150'\n"
            "    try:   in out there are: checkpoint-90, checkpoint-100",
        ),
        (
            {"actor_train.worker_cls": "mine.workers.Trainer"},
            "actor_train.worker_cls: a worker class of your own is not part of this version; what a role does is its "
            "strategy's\n    given: 'mine.workers.Trainer'\n    try:   leave the key out",
        ),
        (
            {"actor_train.apply_loss_scale": False},
            "actor_train.apply_loss_scale: a loss is always normalised over its whole mini-batch\n    given: False\n"
            "    try:   leave the key out",
        ),
        (
            {"rewards.math_rule.response_length_penalty_coef": 0.1},
            "rewards.math_rule.response_length_penalty_coef: no reward for length is added\n    given: 0.1\n"
            "    try:   a reward of your own, which knows the response",
        ),
        (
            {"train_infer_correction": {"is_weight": {"detach": False}}},
            "train_infer_correction.is_weight.detach: no gradient flows through a weight that corrects for the engine\n"
            "    given: False\n    try:   leave the key out",
        ),
    ],
)
def test_what_is_missing_here_is_told_before_a_run(
    small: Small, core: Registry, machine: Path, changes: dict[str, Any], message: str
) -> None:
    for step in (100, 90):
        checkpoint = machine / "out" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        write_manifest(checkpoint, step, {})
    for other in ("checkpoint-200", "checkpoint-abc"):
        (machine / "out" / other).mkdir()
    changes = {"pretrain": "model"} | changes
    if changes["pretrain"] == ".":
        (machine / "out").rename(machine.parent / f"{machine.name}-out")
    found = said(small(changes), core)
    assert found[:1] == [message]


def test_a_data_file_is_found_under_dataset_dir_and_its_rows_are_checked(
    small: Small, core: Registry, machine: Path
) -> None:
    (machine / "data").mkdir()
    other = ROW.replace("math_rule", "KodCode").replace('"1"', '"2"')
    (machine / "data" / "rows.jsonl").write_text(f"{ROW}{other}{{\n")
    changes = {"actor_train.data_args": {"file_name": "rows.jsonl", "dataset_dir": "data"}}
    found = said(small(changes), core)
    assert len(found) == 2
    assert found[0].startswith("actor_train.data_args.file_name: data/rows.jsonl:2")
    assert "no reward answers to this tag" in found[0]
    assert found[1].startswith("actor_train.data_args.file_name: data/rows.jsonl:3")
    assert "is not JSON" in found[1]


def test_for_other_machines_files_are_not_looked_at(small: Small, core: Registry) -> None:
    assert said(small({"pretrain": "nowhere"}), core, planned="cpu") == []


@pytest.mark.parametrize("planned", [None, "cpu"])
@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (
            {"answers": {"worker_cls": "math_rul", "tag_included": ["math_rule"]}},
            "rewards.answers.worker_cls: no reward named 'math_rul'",
        ),
        ({"math_rul": {"tag_included": ["math_rule"]}}, "rewards.math_rul: no reward named 'math_rul'"),
        (
            {"math_rule": {"worker_cls": PUBLISHED.replace("MathRule", "MathRul")}},
            f"rewards.math_rule.worker_cls: no reward named '{PUBLISHED.replace('MathRule', 'MathRul')}'",
        ),
        (
            {"math_rule": {"worker_cls": PUBLISHED.replace("rewards", "reward")}},
            f"rewards.math_rule.worker_cls: no reward named '{PUBLISHED.replace('rewards', 'reward')}'",
        ),
    ],
)
def test_a_misspelt_reward_is_told_for_this_machine_and_for_others(
    small: Small, core: Registry, planned: str | None, rewards: dict[str, Any], message: str
) -> None:
    config = small({"rewards": rewards, "actor_train.data_args.domain_interleave_probs": None})
    plan = make_plan(config, core, "rlvr", problems_of(config), Request(planned, devices_per_node=8), {})
    [found] = map(str, plan.problems)
    assert found.startswith(message)
    assert "did you mean 'math_rule'?" in found or f"did you mean '{PUBLISHED}'?" in found


def test_for_other_machines_a_file_with_a_reward_is_not_looked_at(small: Small, core: Registry) -> None:
    changes = {"rewards.math_rule.worker_cls": "./gone.py:score"}
    assert said(small(changes), core, planned="cpu") == []
    [found] = said(small(changes), core)
    assert found.startswith("rewards.math_rule.worker_cls: no file 'gone.py' for reward './gone.py:score'")


def _pretend(registry: Registry) -> Registry:
    backend = Backend(
        "pretend",
        "roll_core_test_pretend:PretendPlatform",
        priority=10,
        probe=lambda: Availability(True, "4 pretend devices"),
    )
    record = PluginRecord("roll_pretend", "roll-pretend", "1.0", "loaded", "", {"platform": (backend,)})
    return Registry((*registry.records, record))


@pytest.fixture
def pretend(core: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry with a platform whose devices are numbers, limited by PRETEND_VISIBLE."""
    import sys
    import types

    from roll_core.platforms.base import Ability, Platform

    class PretendPlatform(Platform):
        name = "pretend"
        device_type = "cpu"
        ray_resource = "PRETEND"
        visible_devices_env = "PRETEND_VISIBLE"
        collective_backend = "gloo"

        def abilities(self) -> frozenset[Ability]:
            return frozenset({Ability.BF16})

    module = types.ModuleType("roll_core_test_pretend")
    module.PretendPlatform = PretendPlatform  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "roll_core_test_pretend", module)
    return _pretend(core)


def test_roles_must_name_devices_where_devices_are_counted(small: Small, pretend: Registry) -> None:
    found = said(small({"actor_infer.device_mapping": None}), pretend)
    assert found == [
        "actor_infer.device_mapping: must name devices on platform pretend\n"
        "    try:   device_mapping: list(range(0, 8))"
    ]


def test_device_numbers_index_the_visible_devices(
    small: Small, pretend: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETEND_VISIBLE", "4,5")
    assert said(small(), pretend) == []
    assert said(small({"actor_infer.device_mapping": [4, 5]}), pretend) == [
        "actor_infer.device_mapping: names device 5, but only 2 devices are visible (4,5)\n"
        "    try:   devices 0 to 1, or another PRETEND_VISIBLE"
    ]


@pytest.mark.parametrize("key", ["output_dir", "logging_dir", "checkpoint_config.output_dir", "rollout_dump_dir"])
def test_a_folder_that_cannot_be_made_is_told_before_a_run(
    small: Small, core: Registry, machine: Path, key: str
) -> None:
    assert said(small({key: "train.jsonl/logs"}), core) == [
        f"{key}: cannot be made: {machine / 'train.jsonl'} is a file\n    given: 'train.jsonl/logs'\n"
        "    try:   another folder"
    ]
