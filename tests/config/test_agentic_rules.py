"""Agentic configs that cannot work say why before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from roll_core.config.rules import notices_of, problems_of
from roll_core.config.schema import AgenticConfig
from roll_core.config.unavailable import unavailable_problems


def config(**changes: Any) -> AgenticConfig:
    manager = {"num_env_groups": 4, "group_size": 2, "tags": ["Lake"]}
    base: dict[str, Any] = {
        "actor_train": {"device_mapping": [0], "strategy_args": {"strategy_name": "fsdp2_train"}},
        "actor_infer": {"device_mapping": [0], "strategy_args": {"strategy_name": "hf_infer"}},
        "adv_estimator": "grpo",
        "rollout_batch_size": 8,
        "sequence_length": 512,
        "custom_envs": {"Lake": {"env_type": "frozen_lake", "max_steps": 5, "max_tokens_per_step": 16}},
        "train_env_manager": manager,
    }
    base["train_env_manager"] = manager | changes.pop("train_env_manager", {})
    return AgenticConfig.model_validate(base | changes)


def test_a_good_config_has_no_problems() -> None:
    assert problems_of(config()) == []
    assert list(unavailable_problems(config())) == []


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"rollout_batch_size": 9}, "rollout_batch_size", "must be a multiple of train_env_manager.group_size 2"),
        ({"sequence_length": None}, "sequence_length", "must be given"),
        ({"train_env_manager": {"tags": ["Leke"]}}, "train_env_manager.tags", "no environment of custom_envs"),
        ({"train_env_manager": {"tags": []}}, "train_env_manager.tags", "names no environment"),
        (
            {"train_env_manager": {"num_groups_partition": [3]}},
            "train_env_manager.num_groups_partition",
            "must have a number for each of the 1 tags, adding up to num_env_groups 4",
        ),
        ({"custom_envs": {"Lake": {"env_type": "frozen_lak"}}}, "custom_envs.Lake.env_type", "no environment named"),
        (
            {"actor_train": {"data_args": {"template": "qwen_25"}}},
            "actor_train.data_args.template",
            "no chat template has this name",
        ),
        (
            {"custom_envs": {"Lake": {"env_type": "frozen_lake", "env_manager_cls": "vl_traj"}}},
            "custom_envs.Lake.env_manager_cls",
            "no env manager of this name",
        ),
        ({"adv_estimator": "rloo"}, "adv_estimator", "agentic runs do not have this estimator"),
        ({"adv_estimator": "gae"}, "critic", "adv_estimator gae learns values"),
        (
            {"train_env_manager": {"group_size": 1}},
            "train_env_manager.group_size",
            "adv_estimator grpo compares the episodes of a group",
        ),
        (
            {"reward_normalization": {"grouping": "traj_group"}},
            "reward_normalization.grouping",
            "episodes cannot be grouped by this",
        ),
        (
            {"train_env_manager": {"group_filter_cls": "./no_such_file.py:Filter"}},
            "train_env_manager.group_filter_cls",
            "no file 'no_such_file.py' for group filter",
        ),
        ({"val_env_manager": {"tags": ["Lake"], "group_size": 3}}, "val_batch_size", "must be a multiple of"),
        ({"async_generation_ratio": 0.5}, "async_generation_ratio", "must be 0 (wait for every rollout) or at least 1"),
        (
            {"async_generation_ratio": 1, "train_env_manager": {"pace": "lockstep"}},
            "train_env_manager.pace",
            "must be free with async_generation_ratio above 0",
        ),
    ],
)
def test_what_cannot_work_is_told_by_its_key(changes: dict[str, Any], path: str, rule: str) -> None:
    found = [(problem.path, problem.rule) for problem in problems_of(config(**changes))]
    assert [one for one in found if one[0] == path and one[1].startswith(rule)], found


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"train_env_manager": {"llm_proxy": {"proxy_type": "openai"}}}, "train_env_manager.llm_proxy.proxy_type"),
        ({"reward": {}}, "reward"),
    ],
)
def test_what_is_not_built_is_refused(changes: dict[str, Any], path: str) -> None:
    assert path in [problem.path for problem in unavailable_problems(config(**changes))]


def test_keys_of_unused_environments_are_not_looked_at() -> None:
    envs = {"Lake": {"env_type": "frozen_lake"}, "Shop": {"env_type": "webshop", "tool_wrapper": {"a": 1}}}
    assert problems_of(config(custom_envs=envs)) == []
    assert list(unavailable_problems(config(custom_envs=envs))) == []


def test_keys_that_change_nothing_are_told() -> None:
    said = notices_of(config(norm_mean_type="group", eval_steps=5))
    assert "norm_mean_type: has no effect; episodes are compared as reward_normalization says" in said
    assert "eval_steps: has no effect without a section val_env_manager" in said


def test_data_files_of_a_run_in_environments_are_told_to_have_no_effect() -> None:
    train = config().actor_train.model_dump(exclude_unset=True)
    said = notices_of(config(actor_train=train | {"data_args": {"template": "chatml", "file_name": ["train.jsonl"]}}))
    assert said == [
        "actor_train.data_args.file_name: has no effect; an episode begins in its environment, not in a data file"
    ]


def test_sampling_is_completed_by_what_one_turn_may_have() -> None:
    sampling = config().actor_infer.generating_args
    assert sampling is not None
    assert sampling.max_new_tokens == 16
