"""Configs as they are published for ROLL, scaled down by overrides alone: each loads, is planned, and runs three steps.

The first is the founding documents' own. The others are in tests/config/published.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from roll_core.config.compose import read_config
from roll_core.config.plan import Request
from roll_core.config.planning import make_plan
from roll_core.config.rules import problems_of
from roll_core.config.runnable import check_run
from roll_core.plugins import load_plugins
from tests.end_to_end.agentic_runs import prepare_lake
from tests.end_to_end.runs import REPOSITORY, REWARD, Run

PUBLISHED = REPOSITORY / "tests" / "config" / "published"
FOUNDING = REPOSITORY / "examples" / "ascend_examples" / "qwen3_30b_rlvr_fsdp2.yaml"


def placed(role: str, strategy: str, device: int = 0) -> list[str]:
    """A role on one device, with another strategy's options left out."""
    return [
        f"{role}.strategy_args.strategy_name={strategy}",
        f"{role}.strategy_args.strategy_config=null",
        f"{role}.device_mapping=[{device}]",
        f"{role}.model_args.dtype=fp32",
        f"{role}.model_args.attn_implementation=sdpa",
        f"{role}.data_args.template=native",
    ]


TRAINED = [
    "actor_train.training_args.per_device_train_batch_size=4",
    "actor_train.training_args.gradient_accumulation_steps=2",
    *placed("actor_train", "fsdp2_train"),
    *placed("reference", "fsdp2_infer"),
]
ANSWERS = [
    *TRAINED,
    *placed("actor_infer", "hf_infer"),
    "rollout_batch_size=2",
    "num_return_sequences_in_group=4",
    "prompt_length=64",
    "response_length=12",
    "actor_train.data_args.file_name=[train.jsonl]",
    f"rewards.math_rule.worker_cls={REWARD}",
    "rewards.math_rule.world_size=1",
]
VALIDATED = ["validation.data_args.file_name=[few.jsonl]", "validation.data_args.template=native", "eval_steps=2"]
EPISODES = [
    "rollout_batch_size=8",
    "sequence_length=320",
    "max_tokens_per_step=4",
    "actor_infer.generating_args.max_new_tokens=4",
    "train_env_manager.num_env_groups=2",
    "train_env_manager.group_size=4",
    "train_env_manager.num_groups_partition=[2]",
    "max_actions_per_traj=4",
]
HELD_OUT = [
    "val_batch_size=4",
    "val_env_manager.num_env_groups=4",
    "val_env_manager.num_groups_partition=[2,2]",
    "eval_steps=2",
]
LAKE = [*TRAINED, *placed("actor_infer", "hf_infer"), *EPISODES, *HELD_OUT]
OVERRIDES: dict[str, list[str]] = {
    "founding": ANSWERS,
    "rlvr/fsdp2": ANSWERS,
    "rlvr/ppo_critic": [
        *ANSWERS,
        *VALIDATED,
        *placed("critic", "fsdp2_train"),
        "critic.training_args.per_device_train_batch_size=4",
        "critic.training_args.gradient_accumulation_steps=2",
    ],
    "rlvr/async": [*ANSWERS, *VALIDATED, "actor_infer.device_mapping=[1]"],
    "rlvr/dynamic_batching": [*ANSWERS],
    "agentic/frozen_lake": LAKE,
    "agentic/async": [*LAKE, "actor_infer.device_mapping=[1]"],
    "agentic/rollout_only": [*placed("actor_infer", "hf_infer"), *EPISODES],
}


class PublishedRun(Run):
    """Three steps of a published config; `assets` holds a model and, for answers, data."""

    name = ""

    @property
    def settings(self) -> Sequence[str]:
        return scaled_down(self.name, self.folder, self.assets)


def config_of(name: str) -> Path:
    return FOUNDING if name == "founding" else PUBLISHED / f"{name}.yaml"


def scaled_down(name: str, folder: Path, assets: Path) -> list[str]:
    common = [
        "platform=cpu",
        "max_steps=3",
        f"pretrain={assets / 'model'}",
        f"reward_pretrain={assets / 'model'}",
        f"output_dir={folder}",
        f"logging_dir={folder / 'logs'}",
        f"rollout_dump_dir={folder / 'rollouts'}",
        f"checkpoint_config.output_dir={folder / 'checkpoints'}",
        f"tracker_kwargs.log_dir={folder / 'tensorboard'}",
    ]
    data = [f"actor_train.data_args.dataset_dir={assets / 'data'}"] if "rollout_batch_size=2" in OVERRIDES[name] else []
    return [*common, *data, *OVERRIDES[name]]


@pytest.mark.parametrize("name", OVERRIDES)
def test_a_published_config_loads_and_is_planned_as_it_stands(name: str) -> None:
    reading = read_config(config_of(name))
    assert reading.problems == []
    assert reading.config is not None
    plan = make_plan(reading.config, load_plugins(), reading.pipeline, [], Request("npu", 2, 8))
    assert "actor_infer" in {role.name for role in plan.roles}


@pytest.mark.parametrize("name", OVERRIDES)
def test_a_published_config_that_is_scaled_down_lacks_nothing_but_model_and_data(name: str, tmp_path: Path) -> None:
    reading = read_config(config_of(name), scaled_down(name, tmp_path, tmp_path))
    assert reading.problems == []
    assert reading.config is not None
    assert problems_of(reading.config) == []
    lacking = [problem.path for problem in check_run(reading.config, load_plugins()).problems]
    files = ("pretrain", "reward_pretrain", "actor_train.data_args.file_name", "validation.data_args.file_name")
    assert [path for path in lacking if not path.startswith(files)] == []


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_lake(tmp_path_factory.mktemp("lake")).parent


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", OVERRIDES)
def test_a_published_config_runs_three_steps(name: str, assets: Path, lake: Path, tmp_path: Path) -> None:
    run = PublishedRun(tmp_path, lake if name.startswith("agentic") else assets)
    run.name, run.config = name, config_of(name)  # type: ignore[misc]
    code, output = run.finish()
    assert code == 0, output
    metrics = {step: record for step, record in run.metrics().items() if step > 0}
    assert sorted(metrics) == [1, 2, 3]
    if name != "agentic/rollout_only":
        assert all("train/grad_norm" in metrics[step] or "mask" in json.dumps(metrics[step]) for step in metrics)
