"""Every rule between keys, with its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from roll_core.config.rules import notices_of, problems_of
from roll_core.config.schema import RLVRConfig

Small = Callable[..., RLVRConfig]


def test_nothing_is_wrong_with_the_small_config(small: Small) -> None:
    assert problems_of(small()) == []
    assert notices_of(small()) == []


VALIDATION = {"data_args": {"file_name": "v.jsonl"}}
CRITIC = {"strategy_args": {"strategy_name": "fsdp2_train"}, "device_mapping": [0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rollout_batch_size": 6},
            "rollout_batch_size: rollout_batch_size 6 * num_return_sequences_in_group 4 = 24 responses must be a "
            "multiple of the 16 rows of an optimiser step of actor_train (2 data-parallel ranks * "
            "per_device_train_batch_size 4 * gradient_accumulation_steps 2)\n    given: 6\n"
            "    try:   rollout_batch_size: 4 or 8, or actor_train.training_args.gradient_accumulation_steps: 1",
        ),
        (
            {"adv_estimator": "gae", "critic": {"training_args": {"per_device_train_batch_size": 24}, **CRITIC}},
            "rollout_batch_size: rollout_batch_size 8 * num_return_sequences_in_group 4 = 32 responses must be a "
            "multiple of the 24 rows of an optimiser step of critic (1 data-parallel ranks * "
            "per_device_train_batch_size 24 * gradient_accumulation_steps 1)\n    given: 8\n"
            "    try:   rollout_batch_size: 6 or 12",
        ),
        (
            {"actor_train.use_dynamic_batching_in_train": True},
            "actor_train.max_tokens_per_microbatch_in_train: must be set when use_dynamic_batching_in_train is true\n"
            "    try:   at least 64, the longest row",
        ),
        (
            {
                "actor_train.use_dynamic_batching_in_infer": True,
                "actor_train.max_tokens_per_microbatch_in_infer": 63,
                "actor_train.sequence_length_round_in_infer": 10,
            },
            "actor_train.max_tokens_per_microbatch_in_infer: must hold one row of prompt_length + response_length = 64 "
            "tokens, rounded to 70\n    given: 63\n    try:   at least 70",
        ),
        (
            {"actor_train.data_args.domain_interleave_probs": {"math_rule": 0.5}},
            "actor_train.data_args.domain_interleave_probs: the shares must add up to 1, these add up to 0.5\n"
            "    given: {'math_rule': 0.5}\n    try:   math_rule: 1",
        ),
        (
            {"rewards.math_rule.query_filter_config": {"type": "mean_filter", "filter_args": {"treshold_up": 0.9}}},
            "rewards.math_rule.query_filter_config.filter_args.treshold_up: mean_filter has no such argument\n"
            "    given: 0.9\n    try:   did you mean 'threshold_up'?",
        ),
        (
            {"rewards.math_rule.query_filter_config": {"type": "std_filter", "filter_args": {"std_threshold": "low"}}},
            "rewards.math_rule.query_filter_config.filter_args.std_threshold: must be a number\n    given: 'low'",
        ),
        (
            {"actor_train.data_args.domain_interleave_probs": {"math_rules": 1.0}},
            "actor_train.data_args.domain_interleave_probs.math_rules: is no domain under rewards\n    given: 1.0\n"
            "    try:   did you mean 'math_rule'?",
        ),
        (
            {"actor_train.data_args.domain_interleave_probs": {"math_rule": 1.5, "b": -0.5}, "rewards.b": {}},
            "actor_train.data_args.domain_interleave_probs.b: must not be negative\n    given: -0.5",
        ),
        (
            {"actor_train.data_args.domain_interleave_probs": {"b": 0.1, "math_rule": 0.9}, "rewards.b": {}},
            "actor_train.data_args.domain_interleave_probs.b: 0.1 of rollout_batch_size 8 is not one prompt\n"
            "    given: 0.1\n    try:   a larger share or batch, or 0 to leave the domain out",
        ),
        (
            {"rewards": {}},
            "rewards: at least one reward must be given\n"
            "    try:   rewards: {math_rule: {}} scores answers to mathematical questions",
        ),
        (
            {"rewards": {"math_rule": {"tag_included": ["a"]}, "b": {"tag_included": ["a"]}}},
            "rewards.b.tag_included: the tag is claimed by rewards.math_rule too\n    given: 'a'\n"
            "    try:   leave it to one of rewards.math_rule and rewards.b",
        ),
        (
            {"actor_train.data_args.file_name": None},
            "actor_train.data_args.file_name: at least one JSONL file must be named\n"
            "    try:   file_name: [data/train.jsonl]",
        ),
        (
            {"validation": {}},
            "validation.data_args.file_name: at least one JSONL file must be named\n"
            "    try:   file_name: [data/train.jsonl]",
        ),
        (
            {"actor_train.data_args.messages": "dialogue", "actor_train.data_args.prompt": "question"},
            "actor_train.data_args.prompt: names a column for the prompt, and messages names another\n"
            "    given: 'question'\n    try:   leave one of the two out",
        ),
        (
            {"response_length": None},
            "response_length: response_length or sequence_length must be given\n"
            "    try:   response_length: 1024 (the longest answer, in tokens)",
        ),
        (
            {"sequence_length": 60},
            "sequence_length: must be at least prompt_length 32 + response_length 32 = 64\n    given: 60\n"
            "    try:   at least 64, or leave it out: it follows from the other two",
        ),
        (
            {"val_prompt_length": 64},
            "val_sequence_length: must be given together with val_prompt_length\n"
            "    try:   give both, or leave out val_prompt_length to use the training lengths",
        ),
        (
            {"val_prompt_length": 64, "val_sequence_length": 64},
            "val_sequence_length: must be more than val_prompt_length 64, to leave room for an answer\n    given: 64",
        ),
        (
            {"actor_infer.generating_args.max_new_tokens": 33},
            "actor_infer.generating_args.max_new_tokens: must not exceed response_length 32\n    given: 33\n"
            "    try:   at most 32, or leave it out",
        ),
        (
            {"actor_infer.generating_args.num_return_sequences": 8},
            "actor_infer.generating_args.num_return_sequences: must equal num_return_sequences_in_group 4\n"
            "    given: 8\n    try:   leave it out",
        ),
        (
            {"actor_infer.generating_args.num_beams": 2},
            "actor_infer.generating_args.num_beams: beam search gives no samples of the policy, which training needs\n"
            "    given: 2\n    try:   num_beams: 1",
        ),
        (
            {"actor_infer.generating_args.temperature": 0},
            "actor_infer.generating_args.temperature: all 4 responses of a prompt would be the same; "
            "num_return_sequences_in_group asks for sampling\n    given: 0.0\n    try:   temperature: 1.0",
        ),
        (
            {"validation": {**VALIDATION, "generating_args": {"max_new_tokens": 50}}},
            "validation.generating_args.max_new_tokens: must not exceed the response length in validation 32\n"
            "    given: 50\n    try:   at most 32, or leave it out",
        ),
        (
            {"actor_infer.strategy_args.strategy_config": {"max_model_len": 60}},
            "actor_infer.strategy_args.strategy_config.max_model_len: must be at least prompt_length 32 + "
            "response_length 32 = 64\n    given: 60\n    try:   at least 64, or shorter prompts or responses",
        ),
        (
            {"num_nodes": 2, "num_gpus_per_node": 1, "actor_infer.device_mapping": [0, 2]},
            "actor_infer.device_mapping: names device 2, but num_nodes 2 * num_gpus_per_node 1 are the devices 0 to 1\n"
            "    try:   num_nodes: 3, or devices below 2",
        ),
        (
            {"actor_infer.num_gpus_per_worker": 2, "actor_infer.device_mapping": [0, 1, 2]},
            "actor_infer.device_mapping: names 3 devices, which are no whole number of workers of 2 each\n"
            "    try:   2 or 4 devices",
        ),
        (
            {"actor_infer.world_size": 3},
            "actor_infer.world_size: must equal 2 devices / 1 per worker = 2\n    given: 3\n"
            "    try:   leave it out: it follows from device_mapping",
        ),
        (
            {"actor_infer.num_gpus_per_worker": 2, "actor_infer.device_mapping": [1, 2], "num_gpus_per_node": 2},
            "actor_infer.device_mapping: gives one worker the devices [1, 2], which are on several nodes of 2 devices\n"
            "    try:   order the devices so that each worker has one node",
        ),
        (
            {
                "actor_infer.strategy_args": {
                    "strategy_name": "vllm",
                    "strategy_config": {"tensor_parallel_size": 2},
                },
                "actor_infer.num_gpus_per_worker": 1,
            },
            "actor_infer.num_gpus_per_worker: must equal tensor_parallel_size * pipeline_parallel_size = 2\n"
            "    given: 1\n    try:   leave it out",
        ),
        (
            {
                "actor_train.strategy_args.strategy_config": {"fsdp_size": 3},
                "actor_train.device_mapping": "list(range(0, 4))",
            },
            "actor_train.strategy_args.strategy_config.fsdp_size: must divide the 4 ranks of actor_train\n"
            "    given: 3\n    try:   one of 2, 4",
        ),
        (
            {"rewards.math_rule.device_mapping": [4, 5]},
            "rewards.math_rule.device_mapping: only a judge with judge_model_type: inference has an engine; other "
            "rewards run on plain processes\n    try:   world_size, which says how many workers",
        ),
        (
            {"num_return_sequences_in_group": 1, "rollout_batch_size": 16},
            "num_return_sequences_in_group: adv_estimator: grpo compares the responses of one prompt, which needs at "
            "least 2\n    given: 1\n    try:   num_return_sequences_in_group: 8, or normalisation over the batch",
        ),
        (
            {
                "num_return_sequences_in_group": 1,
                "rollout_batch_size": 16,
                "adv_estimator": "reinforce",
                "norm_mean_type": "group",
            },
            "num_return_sequences_in_group: norm_mean_type: group compares the responses of one prompt, which needs at "
            "least 2\n    given: 1\n    try:   num_return_sequences_in_group: 8, or normalisation over the batch",
        ),
        (
            {"norm_std_type": "batch"},
            "norm_std_type: adv_estimator grpo normalises within groups\n    given: 'batch'\n"
            "    try:   leave norm_std_type out, or adv_estimator: reinforce, which takes any norm types",
        ),
        (
            {"adv_estimator": "gigpo"},
            "adv_estimator: needs the rewards of single steps, which only agentic runs have\n    given: 'gigpo'\n"
            "    try:   gae, reinforce, reinforce_plus_plus, grpo, rloo, dr_grpo, raft_plus_plus",
        ),
        (
            {"adv_estimator": "gae"},
            "critic: adv_estimator gae learns values, which needs a critic\n"
            "    try:   add a section critic, or adv_estimator: reinforce or grpo, which need none",
        ),
        (
            {"async_generation_ratio": 0.5},
            "async_generation_ratio: must be 0 (wait for every rollout) or at least 1 (steps that rollouts may lag "
            "behind)\n    given: 0.5\n    try:   0 or 1",
        ),
        (
            {"async_generation_ratio": 1, "generate_opt_level": 0},
            "generate_opt_level: must be 1 with async_generation_ratio above 0\n    given: 0\n"
            "    try:   generate_opt_level: 1",
        ),
        (
            {"add_token_level_kl": True, "kl_penalty": "full"},
            "kl_penalty: full compares whole distributions, and only the sampled tokens' probabilities are kept\n"
            "    given: 'full'\n    try:   kl_penalty: kl (k1), mse (k2), abs or k3",
        ),
        (
            {"overlong_buffer_length": 33},
            "overlong_buffer_length: must be at most the 32 tokens of the longest response\n    given: 33",
        ),
        (
            {"difficulty_mask": True, "difficulty_low_threshold": 1.0},
            "difficulty_low_threshold: must be less than difficulty_high_threshold 1, or no group is ever kept\n"
            "    given: 1.0",
        ),
        (
            {"profiler_timeline": True, "profiler_memory": True},
            "profiler_memory: cannot be on together with profiler_timeline\n    given: True\n"
            "    try:   leave one of the two out",
        ),
        ({"max_steps": -1}, "max_steps: must be at least 1\n    given: -1"),
        (
            {"actor_train.training_args.lr_scheduler_type": "cosin"},
            "actor_train.training_args.lr_scheduler_type: no learning-rate schedule has this name\n"
            "    given: 'cosin'\n    try:   did you mean 'cosine'?",
        ),
        (
            {"checkpoint_config": {"type": "s3"}},
            "checkpoint_config.type: checkpoints are written to a folder\n    given: 's3'\n"
            "    try:   type: file_system",
        ),
    ],
)
def test_a_broken_rule_is_told_with_its_numbers_and_a_way_out(
    small: Small, changes: dict[str, Any], message: str
) -> None:
    assert [str(problem) for problem in problems_of(small(changes))] == [message]


@pytest.mark.parametrize(
    "changes",
    [
        {"rollout_batch_size": 4},
        {"sequence_length": 64},
        {"sequence_length": 100},
        {"val_prompt_length": 16, "val_sequence_length": 20},
        {"actor_infer.generating_args.max_new_tokens": 8},
        {"actor_infer.strategy_args.strategy_config": {"max_model_len": 64}},
        {"num_nodes": 2, "num_gpus_per_node": 1},
        {"num_gpus_per_node": 1},
        {"adv_estimator": "reinforce", "norm_mean_type": "group", "norm_std_type": "batch"},
        {"adv_estimator": "reinforce", "num_return_sequences_in_group": 1, "rollout_batch_size": 16},
        {"adv_estimator": "gae", "critic": CRITIC},
        {"async_generation_ratio": 1.5},
        {"actor_train.strategy_args.strategy_config": {"fsdp_size": 16}},
        {"actor_train.data_args.domain_interleave_probs": {"math_rule": 1.0, "b": 0.0}, "rewards.b": {}},
    ],
)
def test_what_fits_is_let_through(small: Small, changes: dict[str, Any]) -> None:
    assert problems_of(small(changes)) == []


def test_all_broken_rules_are_reported_at_once(small: Small) -> None:
    config = small({"rollout_batch_size": 6, "num_gpus_per_node": 1, "num_nodes": 1, "response_length": None})
    assert {problem.path for problem in problems_of(config)} == {
        "rollout_batch_size",
        "response_length",
        "actor_train.device_mapping",
        "actor_infer.device_mapping",
    }


@pytest.mark.parametrize(
    ("changes", "notice"),
    [
        (
            {"init_kl_coef": 0.2},
            "init_kl_coef: has no effect without add_token_level_kl: true, and makes no reference model",
        ),
        ({"value_clip": 0.5}, "value_clip: has no effect; adv_estimator grpo learns no values"),
        ({"critic": CRITIC}, "critic: not started; adv_estimator grpo learns no values"),
        (
            {"reference": {}},
            "reference: not started; neither use_kl_loss nor add_token_level_kl asks for a reference model",
        ),
        ({"kl_loss_coef": 0.1}, "kl_loss_coef: has no effect without use_kl_loss: true"),
        (
            {"pg_clip_low": 0.1},
            "pg_clip_low, pg_clip_high: have no effect without use_pg_clip_range: true",
        ),
        (
            {"use_pg_clip_range": True, "pg_clip": 0.1},
            "pg_clip: has no effect; use_pg_clip_range takes pg_clip_low and pg_clip_high",
        ),
        (
            {"adv_estimator": "dr_grpo"},
            "adv_estimator dr_grpo: loss_agg_mode seq-mean-token-mean is not its own, which is seq-mean-token-sum-norm",
        ),
        (
            {"overlong_penalty_factor": 0.5},
            "overlong_penalty_factor: has no effect without overlong_buffer_length",
        ),
        ({"actor_train.cispo_epsilon_low": 0.3}, "actor_train.cispo_epsilon_low: has no effect; pg_variant is ppo"),
        ({"val_batch_size": 64}, "val_batch_size: has no effect; validation answers every held-out prompt"),
        (
            {"actor_infer.data_args": {"template": "qwen3"}},
            "actor_infer.data_args: has no effect; prompts are made as actor_train.data_args and "
            "validation.data_args say",
        ),
        (
            {"rewards.math_rule.judge_model_name": "judge"},
            "rewards.math_rule.judge_model_name: has no effect; what a reward of your own needs stands in reward_args",
        ),
        (
            {"actor_train.training_args.seed": 7},
            "actor_train.training_args.seed: has no effect; the config's seed is that of every role",
        ),
        ({"eval_steps": 5}, "eval_steps: has no effect without a section validation"),
        (
            {"actor_train.training_args.num_train_epochs": 50},
            "actor_train.training_args.num_train_epochs: has no effect; max_steps counts the steps of the pipeline",
        ),
        (
            {"max_steps": 5, "actor_train.training_args.warmup_steps": 20},
            "actor_train.training_args.warmup_steps: the run takes 10 optimiser steps, so its learning rate never "
            "reaches the full value after 20 steps of warm-up",
        ),
    ],
)
def test_a_key_that_changes_nothing_gets_one_notice(small: Small, changes: dict[str, Any], notice: str) -> None:
    config = small(changes)
    assert problems_of(config) == []
    assert notices_of(config) == [notice]
