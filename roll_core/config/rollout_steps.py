"""How a run that trains nothing is cut into steps."""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.config.agentic import AgenticConfig
from roll_core.config.rlvr import RLVRConfig


@dataclass(frozen=True)
class RolloutSteps:
    """Groups of answers or episodes, in steps of equal size but for the last one.

    `noun` says what the groups are; one has `samples` answers or episodes. `total` counts the groups of the run.
    """

    noun: str
    per_step: int
    samples: int
    total: int

    @property
    def num_steps(self) -> int:
        """Steps until every group is there."""
        return -(-self.total // self.per_step)

    def groups(self, step: int) -> range:
        """Numbers of a step's groups; steps count from 1."""
        return range((step - 1) * self.per_step, min(self.total, step * self.per_step))


def prompt_steps(config: RLVRConfig, num_prompts: int) -> RolloutSteps:
    """Every prompt once, or the first `max_steps` batches of them where that is written."""
    total = num_prompts
    if "max_steps" in config.model_fields_set and config.max_steps > 0:
        total = min(total, config.max_steps * config.rollout_batch_size)
    sampling = config.validation.generating_args if config.validation is not None else None
    number = (sampling.num_return_sequences if sampling is not None else None) or 1
    return RolloutSteps("prompts", config.rollout_batch_size, number, total)


def episode_steps(config: AgenticConfig) -> RolloutSteps:
    """`max_steps` batches, or until each environment has played `max_traj_per_env` episodes, whichever is first."""
    manager, per_step = config.train_env_manager, config.num_train_groups
    limits = [config.max_steps * per_step] if config.max_steps > 0 else []
    if manager.max_traj_per_env > 0:
        limits.append(manager.num_env_groups * manager.max_traj_per_env)
    return RolloutSteps("groups of episodes", per_step, manager.group_size, min(limits, default=0))
