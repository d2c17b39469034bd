"""Unknown keys, and what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from roll_core.config.schema import AgenticConfig, RLVRConfig
from roll_core.config.validation import validate

Given = Callable[..., dict[str, Any]]


def said(given: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in validate(given, RLVRConfig).problems]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rolout_batch_size": 8}, "rolout_batch_size: unknown key\n    try:   did you mean 'rollout_batch_size'?"),
        (
            {"actor_train.training_args.learningrate": 1},
            "actor_train.training_args.learningrate: unknown key\n    try:   did you mean 'learning_rate'?",
        ),
        (
            {"rewards.math_rule.model_args": {"dtyp": "bf16"}},
            "rewards.math_rule.model_args.dtyp: unknown key\n    try:   did you mean 'dtype'?",
        ),
        (
            {"actor_train.learning_rate": 1},
            "actor_train.learning_rate: unknown key\n    try:   it belongs in actor_train.training_args.learning_rate",
        ),
        (
            {"temperature": 1.0},
            "temperature: unknown key\n    try:   it belongs in actor_train.generating_args.temperature",
        ),
        (
            {"actor_infer.training_args": {"response_length": 3}},
            "actor_infer.training_args.response_length: unknown key\n    try:   it belongs in response_length",
        ),
        (
            {"actor_train.strategy_args.fsdp_size": 2},
            "actor_train.strategy_args.fsdp_size: unknown key\n"
            "    try:   options of a strategy belong in actor_train.strategy_args.strategy_config.fsdp_size",
        ),
        ({"qwertyuiop": 1}, "qwertyuiop: unknown key"),
        (
            {"rewards.math_rule.my_threshold": 0.5},
            "rewards.math_rule.my_threshold: unknown key\n"
            "    try:   options of a reward of your own belong in rewards.math_rule.reward_args.my_threshold",
        ),
        (
            {"rewards.math_rule.query_filter_config": {"typ": "x"}},
            "rewards.math_rule.query_filter_config.typ: unknown key\n    try:   did you mean 'type'?",
        ),
    ],
)
def test_an_unknown_key_is_named_by_its_path_with_a_suggestion(
    given: Given, changes: dict[str, Any], message: str
) -> None:
    assert said(given(changes)) == [message]


def test_all_unknown_keys_and_bad_values_are_reported_together(given: Given) -> None:
    found = said(
        given({"sed": 1, "actor_train.device_maping": [0], "rewards.math_rule.wrld_size": 1, "max_steps": "many"})
    )
    assert [line.partition(":")[0] for line in found] == [
        "actor_train.device_maping",
        "rewards.math_rule.wrld_size",
        "sed",
        "max_steps",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_steps": "many"}, "max_steps: must be a whole number\n    given: 'many'"),
        ({"max_steps": 1.5}, "max_steps: must be a whole number\n    given: 1.5"),
        ({"whiten_advantages": "perhaps"}, "whiten_advantages: must be true or false\n    given: 'perhaps'"),
        ({"actor_train": [1]}, "actor_train: must be a mapping of keys to values\n    given: [1]"),
        ({"rewards": 3}, "rewards: must be a mapping of keys to values\n    given: 3"),
        ({"rollout_batch_size": 0}, "rollout_batch_size: must be at least 1\n    given: 0"),
        ({"gamma": 1.5}, "gamma: must be at most 1\n    given: 1.5"),
        ({"seed": True}, "seed: a number is expected, not true or false\n    given: True"),
        (
            {"loss_agg_mode": "token_mean"},
            "loss_agg_mode: must be one of: token-mean, seq-mean-token-sum, seq-mean-token-mean, "
            "seq-mean-token-sum-norm\n    given: 'token_mean'\n    try:   did you mean 'token-mean'?",
        ),
        (
            {"adv_estimator": "GRPO"},
            "adv_estimator: must be one of: gae, reinforce, reinforce_plus_plus, grpo, rloo, dr_grpo, raft_plus_plus, "
            "gigpo, step_reinforce, agentic_reinforce\n    given: 'GRPO'\n    try:   did you mean 'grpo'?",
        ),
        (
            {"actor_train.device_mapping": [0, 0]},
            "actor_train.device_mapping: named more than once: 0\n    given: [0, 0]",
        ),
        ({"resume_from_checkpoint": [1]}, "resume_from_checkpoint: must be true or false, or text\n    given: [1]"),
    ],
)
def test_a_bad_value_is_told_in_a_sentence(given: Given, changes: dict[str, Any], message: str) -> None:
    assert said(given(changes)) == [message]


def test_a_bad_secret_is_not_repeated(given: Given) -> None:
    found = said(given({"rewards.math_rule.judge_api_key": ["sk-very-secret"]}))
    assert found == ["rewards.math_rule.judge_api_key: must be text\n    given: '(hidden)'"]


def test_keys_that_do_nothing_are_accepted_with_one_notice_each(given: Given) -> None:
    changes = {
        "hydra": {"run": {"dir": "."}},
        "system_envs": {"USE_MODELSCOPE": "1"},
        "actor_train.use_remove_padding": True,
        "actor_train.model_args.flash_attn": "fa2",
        "actor_train.data_args.interleave_probs": "1.0",
        "actor_train.strategy_args.strategy_config.use_batched_model_update": True,
        "validation": {"eval_steps": 10, "data_args": {"file_name": "a"}},
        "reward_norm": "None",
        "positive_loss_coef": "x_1",
    }
    result = validate(given(changes), RLVRConfig)
    assert result.problems == []
    assert result.config is not None
    assert sorted(notice.partition(": has no effect; ")[0] for notice in result.config.notices) == [
        "actor_train.data_args.interleave_probs",
        "actor_train.model_args.flash_attn",
        "actor_train.strategy_args.strategy_config.use_batched_model_update",
        "actor_train.use_remove_padding",
        "hydra",
        "positive_loss_coef",
        "reward_norm",
        "system_envs.USE_MODELSCOPE",
        "validation.eval_steps",
    ]
    assert "use_batched_model_update" not in result.config.actor_train.strategy_config


def test_a_misspelt_key_still_counts_when_rules_look_for_more(given: Given) -> None:
    result = validate(given({"rollout_batch_size": None, "rolout_batch_size": 5}), RLVRConfig)
    assert result.config is not None
    assert result.config.rollout_batch_size == 5


def test_keys_that_an_interpolation_uses_are_variables(given: Given) -> None:
    written = given({"my_rank": 3, "shared": {"a": 1}})
    unused = validate(written, RLVRConfig)
    assert [problem.path for problem in unused.problems] == ["my_rank", "shared"]
    assert not validate(written, RLVRConfig, referenced=frozenset({"my_rank", "shared.a"})).problems


def test_a_teacher_may_stand_with_or_without_a_name() -> None:
    one = validate({"teacher": {"model_args": {"dtype": "bf16"}}}, AgenticConfig).config
    two = validate({"teacher": {"big": {}, "small": {"tag_included": ["a"]}}}, AgenticConfig).config
    assert one is not None and one.teacher is not None and list(one.teacher) == ["teacher"]
    assert two is not None and two.teacher is not None and list(two.teacher) == ["big", "small"]
