"""Batch arithmetic: prompts, responses, mini-batches and optimiser steps of one pipeline step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import WorkerConfig
from roll_core.errors import Problem


@dataclass(frozen=True)
class BatchArithmetic:
    """How one step's responses are cut for a role that trains.

    `ranks` have rows of their own; each passes `rows` at once, `accumulation` times per optimiser step, and the
    whole rollout is passed `epochs` times.
    """

    prompts: int
    responses_per_prompt: int
    ranks: int
    rows: int
    accumulation: int
    epochs: int

    @property
    def samples(self) -> int:
        """Responses of one step."""
        return self.prompts * self.responses_per_prompt

    @property
    def mini_batch(self) -> int:
        """Responses of one optimiser step, over all ranks."""
        return self.ranks * self.rows * self.accumulation

    @property
    def is_even(self) -> bool:
        """Whether the responses make whole mini-batches."""
        return self.samples % self.mini_batch == 0

    @property
    def mini_batches(self) -> int:
        """Mini-batches of one pass, the last one possibly short."""
        return -(-self.samples // self.mini_batch)

    @property
    def optimizer_steps(self) -> int:
        """Optimiser steps of one pipeline step."""
        return self.mini_batches * self.epochs


def batch_arithmetic(config: RLVRConfig, role: WorkerConfig, epochs: int) -> BatchArithmetic:
    """The arithmetic of a role."""
    training = role.training_args
    return BatchArithmetic(
        config.rollout_batch_size,
        config.num_return_sequences_in_group,
        role.data_parallel_size,
        training.per_device_train_batch_size,
        training.gradient_accumulation_steps,
        epochs,
    )


def problems(config: RLVRConfig) -> Iterator[Problem]:
    """Responses that do not make whole mini-batches; token budgets that are missing or too small for one row."""
    yield from _divisibility(config, "actor_train", config.actor_train)
    if config.needs_critic and config.critic is not None:
        yield from _divisibility(config, "critic", config.critic)
    longest = config.prompt_length + config.response_window
    for name, role in config.roles().items():
        if name in ("actor_train", "critic", "reference"):
            yield from _token_budget(name, role, longest)


def notices(config: RLVRConfig) -> Iterator[str]:
    """Schedules that the run is too short for."""
    training = config.actor_train.training_args
    total = config.max_steps * batch_arithmetic(config, config.actor_train, config.ppo_epochs).optimizer_steps
    if training.warmup_steps > total > 0:
        yield (
            f"actor_train.training_args.warmup_steps: the run takes {total} optimiser steps, so its learning rate "
            f"never reaches the full value after {training.warmup_steps} steps of warm-up"
        )


def _divisibility(config: RLVRConfig, name: str, role: WorkerConfig) -> Iterator[Problem]:
    batch = batch_arithmetic(config, role, 1)
    if batch.is_even:
        return
    rule = (
        f"rollout_batch_size {batch.prompts} * num_return_sequences_in_group {batch.responses_per_prompt} = "
        f"{batch.samples} responses must be a multiple of the {batch.mini_batch} rows of an optimiser step of {name} "
        f"({batch.ranks} data-parallel ranks * per_device_train_batch_size {batch.rows} * "
        f"gradient_accumulation_steps {batch.accumulation})"
    )
    yield Problem("rollout_batch_size", rule, batch.prompts, _nearest(name, batch))


def _nearest(name: str, batch: BatchArithmetic) -> str:
    unit = batch.mini_batch // math.gcd(batch.mini_batch, batch.responses_per_prompt)
    lower = batch.prompts // unit * unit
    prompts = [str(one) for one in (lower, lower + unit) if one > 0]
    advice = f"rollout_batch_size: {' or '.join(prompts)}"
    per_pass = batch.ranks * batch.rows
    fitting = [steps for steps in range(batch.accumulation, 0, -1) if batch.samples % (per_pass * steps) == 0]
    if fitting:
        advice += f", or {name}.training_args.gradient_accumulation_steps: {fitting[0]}"
    return advice


def _token_budget(name: str, role: WorkerConfig, longest: int) -> Iterator[Problem]:
    for use in ("train", "infer"):
        if not getattr(role, f"use_dynamic_batching_in_{use}"):
            continue
        key = f"max_tokens_per_microbatch_in_{use}"
        budget = getattr(role, key)
        rounding = getattr(role, f"sequence_length_round_in_{use}")
        needed = -(-longest // rounding) * rounding
        if not budget:
            rule = f"must be set when use_dynamic_batching_in_{use} is true"
            yield Problem(f"{name}.{key}", rule, budget, f"at least {needed}, the longest row")
        elif budget < needed:
            rule = f"must hold one row of prompt_length + response_length = {longest} tokens, rounded to {needed}"
            yield Problem(f"{name}.{key}", rule, budget, f"at least {needed}")
