"""Small configs to take apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from roll_core.config.schema import RLVRConfig

SMALL: dict[str, Any] = {
    "rollout_batch_size": 8,
    "num_return_sequences_in_group": 4,
    "prompt_length": 32,
    "response_length": 32,
    "adv_estimator": "grpo",
    "pretrain": "model",
    "actor_train": {
        "training_args": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        "data_args": {"file_name": ["train.jsonl"], "domain_interleave_probs": {"math_rule": 1.0}},
        "strategy_args": {"strategy_name": "fsdp2_train", "strategy_config": {"param_dtype": "fp32"}},
        "model_args": {"dtype": "fp32"},
        "device_mapping": "list(range(0, 2))",
    },
    "actor_infer": {
        "strategy_args": {"strategy_name": "hf_infer"},
        "model_args": {"dtype": "fp32"},
        "generating_args": {"temperature": 1.0, "top_p": 1.0, "top_k": 0},
        "device_mapping": "list(range(0, 2))",
    },
    "rewards": {"math_rule": {"world_size": 2}},
}
"""An RLVR config in which nothing is wrong."""


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with dotted keys set; None under a key removes it."""
    import copy

    result = copy.deepcopy(config)
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        level = result
        for part in parents:
            level = level.setdefault(part, {})
        if value is None:
            level.pop(last, None)
        else:
            level[last] = value
    return result


@pytest.fixture
def given() -> Callable[..., dict[str, Any]]:
    """The small config as a mapping, with changes: `given({"actor_train.world_size": 3})`."""
    return lambda changes=None: changed(SMALL, changes or {})


@pytest.fixture
def small() -> Callable[..., RLVRConfig]:
    """The small config as an object, with changes."""

    def make(changes: dict[str, Any] | None = None) -> RLVRConfig:
        return RLVRConfig.model_validate(changed(SMALL, changes or {}))

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes the small config, with changes, or any text, to a file."""

    def make(changes: dict[str, Any] | str | None = None, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = changes if isinstance(changes, str) else yaml.safe_dump(changed(SMALL, changes or {}), sort_keys=False)
        path.write_text(text)
        return path

    return make
