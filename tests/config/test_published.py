"""Configs as they are published for ROLL are read: every key of theirs is known, whatever it does here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from roll_core.config.compose import load_config, read_config
from roll_core.config.kinds import model_of
from roll_core.config.rules import problems_of
from roll_core.config.schema import AgenticConfig, RLVRConfig
from roll_core.config.validation import validate
from roll_core.data.tags import tag_routes

Write = Callable[..., Path]
EXAMPLE = Path(__file__).parents[2] / "examples" / "ascend_examples" / "qwen3_30b_rlvr_fsdp2.yaml"


def test_the_founding_sample_is_as_published() -> None:
    assert hashlib.sha256(EXAMPLE.read_bytes()).hexdigest() == PUBLISHED_DIGEST


def test_the_founding_sample_loads_and_breaks_no_rule() -> None:
    config = load_config("ascend_examples", "qwen3_30b_rlvr_fsdp2")
    assert problems_of(config) == []
    assert config.platform is None
    assert config.checkpoint_dir == Path("output/models/qwen3-30BA3B-rlvr-npu")
    assert config.actor_train.strategy_config["wrap_policy"]["moe_experts"] == ["Qwen3MoeMLP"]
    assert config.actor_infer.generating_args is not None
    assert config.actor_infer.generating_args.max_new_tokens == 4096
    assert (config.actor_infer.world_size, config.actor_infer.num_gpus_per_worker) == (8, 2)
    assert tag_routes(config.rewards)["math_rule"] == "math_rule"
    assert config.num_gpus_per_node == 16


def test_each_key_of_the_founding_sample_that_does_nothing_is_named_once() -> None:
    config = load_config("ascend_examples", "qwen3_30b_rlvr_fsdp2")
    assert [notice.partition(":")[0] for notice in config.notices] == [
        "hydra",
        "system_envs.USE_MODELSCOPE",
        "actor_train.data_args.interleave_probs",
        "actor_train.use_remove_padding",
        "eval_steps",
        "actor_train.training_args.num_train_epochs",
        "reference",
        "value_clip",
        "actor_train.data_args.preprocessing_num_workers",
    ]


BASE: dict[str, Any] = {
    "hydra": {"run": {"dir": "."}, "output_subdir": None},
    "exp_name": "a",
    "seed": 1,
    "rpc_timeout": 72000,
    "output_dir": "./o",
    "base_dir": "./o",
    "logging_dir": "./l",
    "rollout_dump_dir": "./d",
    "track_with": "wandb",
    "tracker_kwargs": {"api_key": None, "project": "p", "notes": "n", "tags": ["a"], "log_dir": "x", "name": "y"},
    "max_steps": 5,
    "save_steps": 1,
    "max_ckpt_to_keep": 0,
    "logging_steps": 1,
    "eval_steps": 1,
    "rollout_batch_size": 8,
    "val_batch_size": 8,
    "max_running_requests": 128,
    "local_rank": -1,
    "resume_from_checkpoint": False,
    "checkpoint_config": {"type": "file_system", "output_dir": "x", "async_upload": True, "keep_local_file": False},
    "prompt_length": 8,
    "response_length": 8,
    "sequence_length": 16,
    "val_prompt_length": 8,
    "val_sequence_length": 16,
    "profiler_timeline": False,
    "profiler_memory": False,
    "profiler_output_dir": "x",
    "length_profiler_dir": "x",
    "otlp_output_dir": "x",
    "report_length_and_rewards": True,
    "is_offload_states": True,
    "is_offload_optimizer_states_in_train_step": False,
    "system_envs": {"USE_MODELSCOPE": "1", "NCCL_NVLS_ENABLE": 0},
    "model_update_buffer_size_mb": 1024,
    "num_nodes": 1,
    "num_gpus_per_node": 8,
    "model_download_type": "MODELSCOPE",
    "rollout_mock": {"enable": False, "mode": "dump", "dump_dir": "x"},
    "transfer_backend": {
        "backend_name": "TransferQueue",
        "backend_config": {"backend": {"SimpleStorage": {"num_data_storage_units": 16}}},
    },
    "generate_opt_level": 1,
    "is_num_return_sequences_expand": True,
    "is_use_additional_prompts": True,
    "max_additional_running_prompts": 16,
    "user_defined_rollout_loop_cls": "a.b.C",
    "router_args": {"router_name": "EnvAffinityRouter", "router_config": {}, "max_running_requests": 1},
    "pipeline_cls": "a.b.C",
}
ROLE: dict[str, Any] = {
    "name": "a",
    "worker_cls": "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker",
    "pg_variant": "topr",
    "model_args": {
        "model_name_or_path": "m",
        "adapter_name_or_path": None,
        "attn_implementation": "fa2",
        "flash_attn": "fa2",
        "moe_aux_loss_coef": None,
        "disable_gradient_checkpointing": True,
        "gradient_checkpointing_use_reentrant": None,
        "device_map": "cuda:0",
        "dtype": "bf16",
        "model_type": None,
        "num_labels": 1,
        "model_config_kwargs": {},
        "freeze_module_prefix": "vision_model",
        "ulysses_size": 1,
        "lora_rank": 8,
        "lora_alpha": 16,
        "lora_dropout": 0,
        "lora_target": "all-linear",
        "additional_target": None,
        "autocast_adapter_dtype": True,
    },
    "training_args": {
        "output_dir": "x",
        "max_steps": -1,
        "num_train_epochs": 50,
        "learning_rate": 1.0e-6,
        "lr_scheduler_type": "cosine",
        "weight_decay": 0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 32,
        "seed": 1,
        "data_seed": 1,
        "dataloader_num_workers": 0,
        "fp16": False,
        "bf16": True,
        "tf32": True,
        "warmup_ratio": 0.1,
        "warmup_steps": 20,
        "save_hf_model": False,
    },
    "data_args": {
        "template": "qwen2_5",
        "domain_interleave_probs": {"a": 1},
        "preprocessing_num_workers": 16,
        "file_name": ["a.jsonl"],
        "eval_file_name": "b.jsonl",
        "dataset_type": "json",
        "dataset_dir": "data",
        "messages": "messages",
        "prompt": None,
        "response": "solution",
        "tag": "tag",
        "id": "id",
        "interleave_probs": "1.0",
        "custom_data_kwargs_func": None,
    },
    "generating_args": {
        "do_sample": True,
        "temperature": 0.99,
        "top_p": 0.99,
        "top_k": 100,
        "num_beams": 1,
        "max_length": 8192,
        "max_new_tokens": 8,
        "repetition_penalty": 1.0,
        "length_penalty": 1.0,
        "num_return_sequences": 8,
        "stop_strings": ["</answer>"],
        "include_stop_str_in_output": True,
        "logprobs": 0,
    },
    "strategy_args": {
        "strategy_name": "megatron_train",
        "strategy_config": {"tensor_model_parallel_size": 1, "use_batched_model_update": True, "bf16": True},
    },
    "world_size": 8,
    "device_mapping": "list(range(0,8))",
    "num_gpus_per_worker": 1,
    "model_update_frequency": 1,
    "infer_batch_size": 4,
    "backend_timeout": 30,
    "system_envs": {"A": "1"},
    "topr_positive_weight": 1.0,
    "topr_negative_weight": 1.0,
    "tis_lower_bound": 0.0,
    "tis_upper_bound": 1.0,
    "cispo_epsilon_low": 0.1,
    "cispo_epsilon_high": 0.1,
    "cispo_use_unified_mask": True,
    "kimi15_tau": 0.1,
    "max_concurrency": 1000,
    "use_dynamic_batching_in_train": True,
    "max_tokens_per_microbatch_in_train": 0,
    "sequence_length_round_in_train": 4,
    "use_dynamic_batching_in_infer": True,
    "max_tokens_per_microbatch_in_infer": None,
    "sequence_length_round_in_infer": 4,
    "offload_nccl": True,
    "use_sequence_packing": True,
    "sequence_packing_args": {
        "algorithm": "load_balance",
        "max_packed_sequence_length_forward": 1,
        "max_packed_sequence_length_train": None,
        "min_num_micro_batches_forward": 1,
        "min_num_micro_batches_train": 1,
    },
    "logits_in_fp32": True,
    "router_replay": {"mode": "R3"},
    "apply_loss_scale": True,
    "mtp_training_mode": "disabled",
    "opd_kl_coef": 1.0,
    "tag_included": ["a"],
    "use_remove_padding": True,
}
PPO: dict[str, Any] = {
    "pretrain": "m",
    "reward_pretrain": "m",
    "actor_train": ROLE,
    "actor_infer": ROLE,
    "critic": ROLE,
    "reference": ROLE,
    "async_generation_ratio": 1,
    "ppo_epochs": 1,
    "max_grad_norm": 1.0,
    "lambd": 0.95,
    "gamma": 1,
    "pg_clip": 0.2,
    "use_pg_clip_range": True,
    "pg_clip_low": 0.2,
    "pg_clip_high": 0.28,
    "value_clip": 0.5,
    "kl_penalty": "kl",
    "target_kl": None,
    "init_kl_coef": 0.0,
    "kl_horizon": 10000,
    "reward_clip": 10,
    "whiten_rewards": False,
    "whiten_advantages": True,
    "advantage_clip": 2.0,
    "adv_estimator": "reinforce",
    "norm_mean_type": "batch",
    "norm_std_type": "group",
    "add_token_level_kl": False,
    "critic_warmup": 0,
    "use_kl_loss": True,
    "kl_loss_coef": 0.001,
    "entropy_loss_coef": 0,
    "loss_agg_mode": "seq-mean-token-sum",
    "dual_clip_loss": True,
    "enable_reference": True,
    "enable_old_logprobs_recompute": True,
    "force_disable_old_logprobs_recompute": False,
    "train_infer_correction": {
        "is_weight": {"enabled": True, "weight_type": "segment", "upper_bound": 1.2, "detach": True},
        "filters": [
            {
                "enabled": True,
                "agg_type": "sequence",
                "ratio_enabled": True,
                "ratio_low": 0.8,
                "ratio_high": 1.2,
                "diff_enabled": False,
                "diff_low": -0.2,
                "diff_high": 0.2,
            }
        ],
    },
    "use_reward_scaling": True,
    "use_reward_norm": True,
    "add_len_reward": False,
    "l2": 0.0,
    "pure_opd_pipeline_type": "rlvr",
    "teacher": {"big": ROLE},
    "student_train": ROLE,
    "student_infer": ROLE,
    "is_pure_opd": False,
    "use_opd": False,
    "reward_norm": "None",
    "reward_shift": False,
    "reward_scale": False,
}
REWARD: dict[str, Any] = {
    **ROLE,
    "code_url": None,
    "use_local": True,
    "judge_prompt": "p",
    "judge_model_type": "inference",
    "judge_model_name": "m",
    "judge_api_url": "u",
    "judge_api_key": "k",
    "format_pattern": None,
    "reward_type": "soft",
    "response_length_penalty_coef": 0.0,
    "query_filter_config": {"type": "mean_filter", "filter_args": {"threshold_up": 0.9, "threshold_down": 0.1}},
    "response_filter_config": {"type": "no_filter", "filter_args": {}},
    "reward_manager_config": {},
}
RLVR: dict[str, Any] = {
    **BASE,
    **PPO,
    "num_return_sequences_in_group": 8,
    "global_template": "qwen3",
    "tag_to_template": {"a": "qwen3"},
    "validation": {**ROLE, "eval_steps": 10},
    "rewards": {"math_rule": REWARD, "ifeval": {"tag_included": ["ifeval"]}},
    "reward_model": ROLE,
    "save_logging_board_dir": None,
    "max_len_mask": True,
    "difficulty_mask": True,
    "difficulty_low_threshold": 0.1,
    "difficulty_high_threshold": 0.95,
    "error_max_len_clip": False,
    "error_max_len_threshold": 9999999999,
    "difficulty_loss_weight": True,
    "length_loss_weight": True,
    "rl_loss_coef": 1.0,
    "importance_sampling": "seq",
    "dataset_filter": None,
    "val_greedy": False,
    "val_n_sample": 1,
    "mask_type": "all",
    "balance_length": True,
    "minibatch_data_iter_num": 1,
    "postive_loss_coef": 1,
    "positive_loss_coef": "x_1",
    "use_topr_neg_loss_coef": "x_2",
    "use_policy_loss_type": "a",
    "use_topr_loss": False,
}
ENVS: dict[str, Any] = {
    **ROLE,
    "llm_proxy": {"proxy_type": "openai", "proxy_config": {"base_url": "u", "api_key": "k"}},
    "num_env_groups": 8,
    "group_size": 2,
    "group_size_redundancy": 1,
    "tags": ["FrozenLake"],
    "num_groups_partition": [8],
    "max_traj_per_env": -1,
    "format_penalty": -0.15,
    "max_env_num_per_worker": 16,
    "group_filter_cls": "a.b.C",
}
AGENTIC: dict[str, Any] = {
    **BASE,
    **PPO,
    "model_name": "x",
    "adv_estimator": "gigpo",
    "custom_envs": {
        "FrozenLake": {
            "env_type": "frozen_lake",
            "max_steps": 10,
            "max_tokens_per_step": 64,
            "env_manager_cls": "roll.pipeline.agentic.env_manager.traj_env_manager.TrajEnvManager",
            "agent_runner_cls": None,
            "use_thread_lock": True,
            "agent_system_template": "s",
            "agent_template": "t",
            "history_length": 5,
            "max_env_step_concurrent": 5,
            "tool_wrapper": {"a": 1},
            "pre_step_template": "a",
            "next_step_template": "b",
            "env_config": {"grid_lookup": {0: "W"}, "dim_room": [6, 6], "anything": None},
        }
    },
    "train_env_manager": ENVS,
    "val_env_manager": ENVS,
    "render_save_dir": "x",
    "reward": ROLE,
    "reward_normalization": {
        "grouping": "traj_group_id",
        "method": "mean_std",
        "norm_mean_type": "batch",
        "norm_std_type": None,
    },
    "env_monitor": {"enable": True, "monitor_interval": 30, "hung_timeout": 3600},
    "batch_adjust_mode": "copy",
    "episode_reward_weight": 1.0,
    "step_reward_weight": 1.0,
    "step_reward_gamma": 0.95,
    "ratio_type": "segment",
    "exp_mode": "train",
    "partial_gpu_mode": True,
    "parse_tool_call_parameter_to_dict": True,
    "skip_mock_system_prompt": True,
    "dirty_data_mask": True,
    "open_feedback_turn": True,
    "use_token_reward": True,
}
OFFLINE = {**BASE, "validation": ROLE, "pretrain": "m"}
DPO = {
    **OFFLINE,
    "track_name": "None",
    "actor_train": ROLE,
    "reference": ROLE,
    "train_batch_size": 64,
    "ipo": False,
    "beta": 0.1,
    "label_smoothing": 0.0,
    "chosen_key": "chosen",
    "rejected_key": "rejected",
}
SFT = {
    **OFFLINE,
    "sft_train": ROLE,
    "system_key": None,
    "prompt_key": "instruction",
    "query_key": None,
    "response_key": "output",
    "global_template": "qwen3",
    "num_train_epochs": 1,
}
DISTILL = {
    **BASE,
    "student": ROLE,
    "teacher": ROLE,
    "student_pretrain": "s",
    "teacher_pretrain": "t",
    "question_key": "q",
    "answer_key": "a",
    "system_key": None,
    "distill_on_prompt": False,
    "logits_topk": 64,
    "distill_loss_weight": 0.85,
    "kd_temperature": 1,
    "teacher_temperature": 1,
    "kd_objective": "forward_kl",
    "adaptive_kl_alpha": 0.5,
    "skew_lambda": 0.1,
    "max_grad_norm": 1.0,
    "logits_transfer_backend": "nccl-only",
}


@pytest.mark.parametrize(
    ("pipeline", "published"),
    [("rlvr", RLVR), ("agentic", AGENTIC), ("dpo", DPO), ("sft", SFT), ("distill", DISTILL)],
)
def test_every_published_key_is_known(pipeline: str, published: dict[str, Any]) -> None:
    result = validate(published, model_of(pipeline))
    assert [str(problem) for problem in result.problems] == []
    assert result.config is not None


@pytest.mark.parametrize(
    ("pipeline", "published"),
    [("rlvr", RLVR), ("agentic", AGENTIC), ("dpo", DPO), ("sft", SFT), ("distill", DISTILL)],
)
def test_the_pipeline_of_a_published_config_is_recognised(
    write: Write, pipeline: str, published: dict[str, Any]
) -> None:
    reading = read_config(write(yaml.safe_dump(published)))
    assert (reading.pipeline, reading.problems) == (pipeline, [])


def test_environments_come_from_an_included_file(write: Write) -> None:
    write(
        "max_tokens_per_step: 128\nmax_actions_per_traj: 10\nagent_template: |\n  Turn {turn_idx}:\n  {observation}\n"
        "custom_env:\n  FrozenLake:\n    env_type: frozen_lake\n    max_tokens_per_step: ${max_tokens_per_step}\n"
        "    agent_template: ${agent_template}\n"
        "    env_config: {max_steps: '${max_actions_per_traj}', grid_lookup: {0: P}}\n",
        "config/traj_envs.yaml",
    )
    path = write(
        "defaults:\n  - ../config/traj_envs@_here_\nhydra: {run: {dir: .}, output_subdir: null}\n"
        "max_tokens_per_step: 64\ntrain_env_manager: {tags: [FrozenLake], num_env_groups: 8}\n"
        "custom_envs:\n  FrozenLake:\n    ${custom_env.FrozenLake}\n",
        "qwen/agent.yaml",
    )
    reading = read_config(path)
    assert reading.problems == []
    assert isinstance(reading.config, AgenticConfig)
    lake = reading.config.custom_envs["FrozenLake"]
    assert (lake.max_tokens_per_step, lake.agent_template) == (64, "Turn {turn_idx}:\n{observation}\n")
    assert lake.env_config == {"max_steps": 10, "grid_lookup": {0: "P"}}


def test_variables_of_the_file_itself_may_be_referred_to_and_do_nothing_else(write: Write) -> None:
    path = write("lora_rank: 32\nresponse_length: 8\nactor_train: {model_args: {lora_rank: '${lora_rank}'}}\n")
    config = read_config(path).config
    assert isinstance(config, RLVRConfig)
    assert config.actor_train.model_args.lora_rank == 32


def test_presets_of_a_trainer_that_are_not_there_are_told_and_do_no_harm(write: Write) -> None:
    text = "defaults:\n  - ../config/deepspeed_zero@_here_\n  - ../config/deepspeed_zero3@_here_\nresponse_length: 8\n"
    reading = read_config(write(text, "a/run.yaml"))
    assert reading.problems == []
    assert reading.config is not None
    assert (
        "defaults: ../config/deepspeed_zero, ../config/deepspeed_zero3: not there, and nothing refers to it"
        in reading.config.notices
    )


def test_a_preset_that_is_referred_to_and_not_there_is_a_problem(write: Write) -> None:
    text = "defaults: [../config/deepspeed_zero3@_here_]\nresponse_length: 8\n"
    text += "actor_train: {strategy_args: {strategy_name: deepspeed_train, strategy_config: '${deepspeed_zero3}'}}\n"
    (problem,) = read_config(write(text, "a/run.yaml")).problems
    assert problem.path == "actor_train.strategy_args.strategy_config"
    assert problem.rule == "refers to ${deepspeed_zero3}, which is not in this config"


def test_any_other_file_that_is_not_there_is_told_with_the_other_problems(write: Write) -> None:
    reading = read_config(write("defaults: [base, more/stuff@_here_]\nresponse_length: x\n", "a/run.yaml"))
    assert [(problem.path, problem.value) for problem in reading.problems] == [
        ("defaults", "base"),
        ("defaults", "more/stuff"),
        ("response_length", "x"),
    ]


def test_files_that_are_missing_once_are_found_when_they_are_there(write: Write) -> None:
    path = write("defaults: [base, _self_]\nresponse_length: 8\n", "a/run.yaml")
    assert len(read_config(path).problems) == 1
    write("max_steps: 3\n", "a/base.yaml")
    reading = read_config(path)
    assert reading.problems == []
    assert reading.config is not None
    assert reading.config.max_steps == 3


def test_a_reference_to_nothing_from_a_key_without_effect_does_no_harm(write: Write) -> None:
    text = "response_length: 8\ncustom_envs: {Lake: {env_type: frozen_lake, user_prompt_format: '${nothing}'}}\n"
    reading = read_config(write(text))
    assert reading.problems == []
    assert reading.config is not None
    assert any("user_prompt_format: has no effect" in notice for notice in reading.config.notices)


def test_students_are_the_actors_of_a_run_that_learns_from_a_teacher(write: Write) -> None:
    role = "{strategy_args: {strategy_name: fsdp2_train}, device_mapping: [0, 1]}"
    config = read_config(write(f"response_length: 8\nrewards: {{}}\nstudent_train: {role}\n")).config
    assert isinstance(config, RLVRConfig)
    assert config.actor_train.devices == [0, 1]
    assert not config.needs_critic


def test_no_rank_is_no_adapter(write: Write) -> None:
    assert read_config(write("response_length: 8\nactor_train: {model_args: {lora_rank: 0}}\n")).problems == []


PUBLISHED_DIGEST = "57b2423172cbe0ce899e46364446421603b63945a5d11d6c9039039edd704723"


def test_what_a_config_refers_to_is_not_said_to_have_no_effect(write: Write) -> None:
    path = write(
        "max_actions_per_traj: 7\ncustom_env: {Lake: {env_type: frozen_lake, max_steps: '${max_actions_per_traj}'}}\n"
        "custom_envs: {Lake: '${custom_env.Lake}'}\nspecial_token_list: ['<think>']\nsequence_length: 8\n"
    )
    reading = read_config(path)
    assert reading.problems == [] and reading.config is not None
    about = [notice.partition(":")[0] for notice in reading.config.notices]
    assert "special_token_list" in about
    assert not {"max_actions_per_traj", "custom_env"} & set(about)


def test_a_key_of_another_pipeline_is_told_by_its_owner(write: Write) -> None:
    path = write("sequence_length: 8\ncustom_envs: {}\nimportance_sampling: seq\nstudent_pretrain: m\n")
    assert [str(problem) for problem in read_config(path).problems] == [
        "importance_sampling: unknown key\n    try:   it is a key of rlvr configs, and this is read as one of agentic",
        "student_pretrain: unknown key\n    try:   it is a key of distill configs, and this is read as one of agentic",
    ]


def test_with_an_adapter_its_options_have_an_effect(write: Write) -> None:
    text = "response_length: 8\nrewards: {{math_rule: {{}}}}\nactor_train: {{model_args: {{lora_rank: 32{}}}}}\n"
    told = []
    for more in ("", ", lora_target: all-linear"):
        config = read_config(write(text.format(more))).config
        assert config is not None
        told.append("actor_train.model_args.lora_rank" in [one.partition(":")[0] for one in config.notices])
    assert told == [True, False]


def test_a_published_reward_that_is_not_built_is_told_of_every_machine(write: Write) -> None:
    missing = "roll.pipeline.rlvr.rewards.detection_reward_worker.DetectionRewardWorker"
    found = read_config(write(f"response_length: 8\nrewards: {{boxes: {{worker_cls: {missing}}}}}\n")).rule_problems()
    about = [problem for problem in found if problem.path == "rewards.boxes.worker_cls"]
    assert [(one.rule, one.is_not_built) for one in about] == [(f"no reward named '{missing}'", True)]
