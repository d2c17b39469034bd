"""What no GPU can do as a config asks for it, found without a machine."""

from typing import Any

import pytest
from roll_cuda.cuda import CudaPlatform
from roll_cuda.rocm import RocmPlatform

from roll_core.config.schema import RLVRConfig
from roll_core.platforms import Platform

CUDA, ROCM = CudaPlatform(), RocmPlatform()


def found(platform: Platform, top: dict[str, str], engine: dict[str, str], trainer: dict[str, str]) -> list[str]:
    """Paths of the problems of a config with these variables."""
    config = RLVRConfig.model_validate(
        {
            "rollout_batch_size": 8,
            "num_return_sequences_in_group": 4,
            "prompt_length": 32,
            "response_length": 32,
            "adv_estimator": "grpo",
            "pretrain": "model",
            "num_gpus_per_node": 4,
            "system_envs": top,
            "actor_train": role("fsdp2_train", trainer) | {"data_args": {"file_name": ["train.jsonl"]}},
            "actor_infer": role("vllm", engine),
            "rewards": {"math_rule": {"world_size": 2}},
        }
    )
    problems = platform.problems(config)
    assert all(problem.hint for problem in problems)
    return [problem.path for problem in problems]


def role(strategy: str, variables: dict[str, str]) -> dict[str, Any]:
    return {
        "strategy_args": {"strategy_name": strategy},
        "device_mapping": "list(range(0,2))",
        "system_envs": variables,
    }


@pytest.mark.parametrize("platform", [CUDA, ROCM])
def test_nothing_is_wrong_with_what_platforms_set_themselves(platform: Platform) -> None:
    assert found(platform, {}, platform.worker_env("actor_infer"), platform.worker_env("actor_train")) == []


def test_expandable_segments_are_for_trainers_only() -> None:
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert found(CUDA, {}, {}, segments) == []
    assert found(CUDA, {}, segments, {}) == ["actor_infer.system_envs.PYTORCH_CUDA_ALLOC_CONF"]
    assert found(CUDA, segments, {}, {}) == ["system_envs.PYTORCH_CUDA_ALLOC_CONF"]
    assert found(ROCM, {}, segments, {}) == []


def test_an_engine_that_takes_them_back_is_fine() -> None:
    top = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert found(CUDA, top, {"PYTORCH_CUDA_ALLOC_CONF": ""}, {}) == []


def test_lists_of_visible_devices_are_not_for_configs() -> None:
    top = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert found(CUDA, top, {}, {}) == ["system_envs.CUDA_VISIBLE_DEVICES"]
    assert found(ROCM, {}, {}, {"HIP_VISIBLE_DEVICES": "0"}) == ["actor_train.system_envs.HIP_VISIBLE_DEVICES"]


def test_ranks_of_a_group_must_agree_on_their_memory() -> None:
    assert found(CUDA, {}, {}, {"NCCL_CUMEM_ENABLE": "1"}) == ["actor_train.system_envs.NCCL_CUMEM_ENABLE"]
