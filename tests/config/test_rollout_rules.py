"""Configs that train nothing: how they are told from those that train, what they need, and what they leave unused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roll_core.config.compose import read_config
from roll_core.config.resolution import started_roles
from roll_core.config.rollout_steps import episode_steps, prompt_steps
from roll_core.config.rules import notices_of, problems_of
from roll_core.config.schema import AgenticConfig, RLVRConfig

EMPTY = {"strategy_name": "vllm", "strategy_config": {"load_format": "dummy"}}
ENGINE = {"device_mapping": [0], "strategy_args": {"strategy_name": "hf_infer"}}
ROLLOUT_ONLY = Path(__file__).parent / "published" / "agentic" / "rollout_only.yaml"


def answers(**changes: Any) -> RLVRConfig:
    base: dict[str, Any] = {
        "actor_infer": ENGINE,
        "rewards": {"math_rule": {}},
        "validation": {"data_args": {"file_name": "v.jsonl"}},
        "rollout_batch_size": 8,
        "response_length": 16,
    }
    return RLVRConfig.model_validate(base | changes)


def episodes(**changes: Any) -> AgenticConfig:
    base: dict[str, Any] = {
        "actor_infer": ENGINE,
        "rollout_batch_size": 8,
        "sequence_length": 512,
        "custom_envs": {"Lake": {"env_type": "frozen_lake", "max_steps": 5, "max_tokens_per_step": 16}},
        "train_env_manager": {"num_env_groups": 4, "group_size": 2, "tags": ["Lake"]},
    }
    return AgenticConfig.model_validate(base | changes)


@pytest.mark.parametrize("config", [answers(), episodes()])
def test_without_a_trainer_engines_alone_are_started(config: RLVRConfig | AgenticConfig) -> None:
    assert config.is_rollout_only
    assert problems_of(config) == []
    assert list(started_roles(config)) == ["actor_infer"]
    told = "nothing is trained: answers are generated with the weights in actor_infer's folder, scored and written"
    assert notices_of(config) == [told]


@pytest.mark.parametrize(
    "name",
    [
        "rollout",
        "roll.pipeline.rlvr.rlvr_rollout_pipeline.RLVRRolloutPipeline",
        "roll.pipeline.agentic.agentic_rollout_pipeline.AgenticRolloutPipeline",
    ],
)
def test_a_config_that_trains_generates_only_where_the_pipeline_says_so(name: str) -> None:
    training = {"actor_train": {"data_args": {"file_name": "t.jsonl"}}, "adv_estimator": "grpo", "save_steps": 5}
    assert not answers(**training).is_rollout_only
    config = answers(**training, pipeline_cls=name)
    assert config.is_rollout_only
    assert problems_of(config) == []
    assert list(started_roles(config)) == ["actor_infer"]
    assert "actor_train, adv_estimator, save_steps: have no effect where nothing is trained" in notices_of(config)


def test_a_trainer_that_was_forgotten_is_not_taken_for_a_wish_to_train_nothing() -> None:
    config = answers(adv_estimator="reinforce")
    assert not config.is_rollout_only
    assert "actor_train" in {problem.path for problem in problems_of(config)}
    assert "actor_train" in {problem.path for problem in problems_of(episodes(adv_estimator="grpo"))}


@pytest.mark.parametrize(
    ("config", "path", "rule"),
    [
        (
            answers(validation=None),
            "validation",
            "must be given where nothing is trained: its prompts are answered",
        ),
        (
            answers(actor_infer=ENGINE | {"strategy_args": EMPTY}),
            "actor_infer.strategy_args.strategy_config.load_format",
            "must not be dummy where nothing is trained: no weights would ever come",
        ),
        (
            answers(resume_from_checkpoint="./checkpoint-3"),
            "resume_from_checkpoint",
            "must be true or false where nothing is trained: a rollout goes on from the files it has written",
        ),
        (
            answers(
                validation={
                    "data_args": {"file_name": "v.jsonl"},
                    "generating_args": {"temperature": 0.0, "num_return_sequences": 4},
                }
            ),
            "validation.generating_args.num_return_sequences",
            "all 4 answers to a prompt would be the same",
        ),
        (answers(max_steps=0), "max_steps", "must be at least 1, or -1 for all there is"),
        (
            episodes(max_steps=-1),
            "train_env_manager.max_traj_per_env",
            "must be given with max_steps -1: environments play as long as they are asked to",
        ),
    ],
)
def test_what_a_rollout_needs(config: RLVRConfig | AgenticConfig, path: str, rule: str) -> None:
    assert (path, rule) in {(problem.path, problem.rule) for problem in problems_of(config)}


def test_every_prompt_is_answered_once_or_as_many_batches_as_are_asked_for() -> None:
    steps = prompt_steps(answers(), 20)
    assert (steps.num_steps, steps.groups(3)) == (3, range(16, 20))
    assert prompt_steps(answers(max_steps=2), 20).total == 16
    assert prompt_steps(answers(max_steps=-1), 20).total == 20


def test_answers_of_a_rollout_are_sampled_as_the_engine_is_told_where_validation_says_nothing() -> None:
    config = answers(actor_infer=ENGINE | {"generating_args": {"temperature": 0.5}}, num_return_sequences_in_group=3)
    assert config.validation is not None and config.validation.generating_args is not None
    assert config.validation.generating_args.temperature == 0.5
    assert prompt_steps(config, 8).samples == 3


def test_environments_play_so_many_steps_or_episodes() -> None:
    assert episode_steps(episodes(max_steps=3)).total == 12
    manager = {"num_env_groups": 5, "group_size": 2, "tags": ["Lake"], "max_traj_per_env": 2}
    steps = episode_steps(episodes(max_steps=-1, train_env_manager=manager))
    assert (steps.num_steps, steps.groups(3)) == (3, range(8, 10))
    assert episode_steps(episodes(max_steps=2, train_env_manager=manager)).total == 8


def test_the_published_rollout_config_trains_nothing() -> None:
    reading = read_config(ROLLOUT_ONLY)
    assert isinstance(reading.config, AgenticConfig)
    assert reading.config.is_rollout_only
    assert [*reading.problems, *problems_of(reading.config)] == []
