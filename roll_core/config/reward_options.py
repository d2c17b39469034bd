"""Which keys of a reward's section become options of the built-in reward that scores its domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from roll_core.config.roles import RewardConfig
from roll_core.objects import our_name
from roll_core.rewards.builtin import BUILTIN_REWARDS

OPTION_KEYS: Mapping[str, Mapping[str, str]] = {
    "crossthinkqa": {"reward_type": "reward_type"},
    "ifeval": {"reward_type": "reward_type"},
    "llm_judge": {
        "judge_prompt": "prompt",
        "judge_model_name": "model",
        "judge_api_url": "url",
        "judge_api_key": "api_key",
    },
}
"""By built-in name: a key of the section, and the option it becomes. `reward_args` holds options by their own names."""
READ_KEYS: Mapping[str, tuple[str, ...]] = {"llm_judge": ("judge_model_type",)}
"""By built-in name: keys that are read, and become no option."""


def reward_name(domain: str, reward: RewardConfig) -> str:
    """What scores a domain: a built-in name where it is one, else the dotted path or file path."""
    return our_name(reward.worker_cls or domain)


def is_builtin(domain: str, reward: RewardConfig) -> bool:
    """Whether a domain is scored by a reward that comes with roll-core."""
    return reward_name(domain, reward) in BUILTIN_REWARDS


def has_own_engine(reward: RewardConfig) -> bool:
    """Whether a section asks for a judge with an engine of this run, which takes options of its own."""
    return bool(reward.devices) or reward.judge_model_type not in (None, "api")


def reward_options(domain: str, reward: RewardConfig) -> dict[str, Any]:
    """Keyword arguments of a domain's reward: its keys that were written, and its `reward_args`."""
    keys = OPTION_KEYS.get(reward_name(domain, reward), {})
    options: dict[str, Any] = {}
    for key, option in keys.items():
        value = getattr(reward, key)
        if value is not None:
            options[option] = value.get_secret_value() if isinstance(value, SecretStr) else value
    return options | dict(reward.reward_args)
