"""A small RLVR config for contracts to ask about; it names no file that has to be there."""

from __future__ import annotations

from typing import Any

from roll_core.config.rlvr import RLVRConfig


def sample_config(platform: str, **changes: Any) -> RLVRConfig:
    """One trainer, one engine and the grader of mathematics, on one device each."""
    return RLVRConfig.model_validate(
        {
            "exp_name": "contract",
            "platform": platform,
            "pretrain": "model",
            "max_steps": 1,
            "rollout_batch_size": 4,
            "prompt_length": 16,
            "response_length": 16,
            "adv_estimator": "grpo",
            "actor_train": {
                "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4},
                "data_args": {"file_name": ["train.jsonl"], "template": "native"},
                "strategy_args": {"strategy_name": "fsdp2_train"},
                "device_mapping": [0],
            },
            "actor_infer": {
                "generating_args": {"max_new_tokens": 16},
                "strategy_args": {"strategy_name": "hf_infer"},
                "device_mapping": [0],
            },
            "rewards": {"math_rule": {"tag_included": ["math_rule"]}},
        }
        | changes
    )
