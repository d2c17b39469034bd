"""Keys of the learning algorithm that need, exclude or silence each other."""

from __future__ import annotations

from collections.abc import Iterator

from roll_core.config.policy import PPOConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.errors import Problem

GROUP_ESTIMATORS = ("grpo", "rloo", "dr_grpo", "raft_plus_plus")
"""Estimators that compare the responses to one prompt."""
AGENTIC_ESTIMATORS = ("gigpo", "step_reinforce", "agentic_reinforce")


def problems(config: RLVRConfig) -> Iterator[Problem]:
    """Combinations that cannot be computed or contradict themselves."""
    yield from missing_roles(config)
    yield from _estimator(config)
    yield from _groups(config)
    yield from asynchronous(config)
    yield from _pairs(config)


def notices(config: RLVRConfig) -> Iterator[str]:
    """Keys that were written and change nothing, because of what other keys say."""
    given = config.model_fields_set
    if "init_kl_coef" in given and config.init_kl_coef > 0 and not config.add_token_level_kl:
        yield "init_kl_coef: has no effect without add_token_level_kl: true, and makes no reference model"
    yield from idle_roles(config)
    if config.needs_reference and config.reference is None:
        yield "reference: not given, so it is made like actor_train and on its devices"
    if config.value_clip is not None and not config.needs_critic:
        yield f"value_clip: has no effect; adv_estimator {config.adv_estimator} learns no values"
    if config.use_kl_loss and config.kl_loss_coef == 0:
        yield "use_kl_loss: a reference model is made, but kl_loss_coef is 0"
    if config.kl_loss_coef and not config.use_kl_loss:
        yield "kl_loss_coef: has no effect without use_kl_loss: true"
    if not config.use_pg_clip_range and given & {"pg_clip_low", "pg_clip_high"}:
        yield "pg_clip_low, pg_clip_high: have no effect without use_pg_clip_range: true"
    if config.adv_estimator == "dr_grpo" and config.loss_agg_mode != "seq-mean-token-sum-norm":
        mode = config.loss_agg_mode
        yield f"adv_estimator dr_grpo: loss_agg_mode {mode} is not its own, which is seq-mean-token-sum-norm"
    if config.overlong_penalty_factor != 1.0 and config.overlong_buffer_length == 0:
        yield "overlong_penalty_factor: has no effect without overlong_buffer_length"
    if config.difficulty_mask and config.num_return_sequences_in_group == 1:
        yield "difficulty_mask: has no effect with num_return_sequences_in_group 1"


def _estimator(config: RLVRConfig) -> Iterator[Problem]:
    name = config.adv_estimator
    if name in AGENTIC_ESTIMATORS:
        rule = "needs the rewards of single steps, which only agentic runs have"
        there = ("gae", "reinforce", "reinforce_plus_plus", *GROUP_ESTIMATORS)
        yield Problem("adv_estimator", rule, name, ", ".join(there))
    if name in GROUP_ESTIMATORS:
        for key in ("norm_mean_type", "norm_std_type"):
            if getattr(config, key) not in (None, "group"):
                rule = f"adv_estimator {name} normalises within groups"
                hint = f"leave {key} out, or adv_estimator: reinforce, which takes any norm types"
                yield Problem(key, rule, getattr(config, key), hint)


def _groups(config: RLVRConfig) -> Iterator[Problem]:
    if config.num_return_sequences_in_group > 1:
        return
    asking = []
    if config.adv_estimator in GROUP_ESTIMATORS:
        asking.append(f"adv_estimator: {config.adv_estimator}")
    asking += [f"{key}: group" for key in ("norm_mean_type", "norm_std_type") if getattr(config, key) == "group"]
    if asking:
        rule = f"{' and '.join(asking)} compares the responses of one prompt, which needs at least 2"
        hint = "num_return_sequences_in_group: 8, or normalisation over the batch"
        yield Problem("num_return_sequences_in_group", rule, config.num_return_sequences_in_group, hint)


def missing_roles(config: PPOConfig, *, has_default_estimator: bool = False) -> Iterator[Problem]:
    """Roles that training needs and the config does not describe.

    Args:
        has_default_estimator: published configs of this kind leave the estimator to its default, also without the
            critic that it needs.
    """
    for name in ("actor_train", "actor_infer"):
        if name not in config.model_fields_set:
            yield Problem(name, "must be given", None, f"a section {name} with strategy_args and device_mapping")
    if config.needs_critic and config.critic is None:
        rule = "adv_estimator gae learns values, which needs a critic"
        hint = "add a section critic, or adv_estimator: reinforce or grpo, which need none"
        yield Problem("critic", rule, None, hint, is_not_built=has_default_estimator)


def idle_roles(config: PPOConfig) -> Iterator[str]:
    """Roles that are described and that nothing asks for."""
    if config.reference is not None and not config.needs_reference:
        yield "reference: not started; neither use_kl_loss nor add_token_level_kl asks for a reference model"
    if config.critic is not None and not config.needs_critic:
        yield f"critic: not started; adv_estimator {config.adv_estimator} learns no values"


def asynchronous(config: PPOConfig) -> Iterator[Problem]:
    """What must hold where rollouts go on while others train."""
    ratio = config.async_generation_ratio
    if 0 < ratio < 1:
        rule = "must be 0 (wait for every rollout) or at least 1 (steps that rollouts may lag behind)"
        yield Problem("async_generation_ratio", rule, ratio, "0 or 1")
    if ratio > 0 and config.generate_opt_level != 1:
        rule = "must be 1 with async_generation_ratio above 0"
        yield Problem("generate_opt_level", rule, config.generate_opt_level, "generate_opt_level: 1")
    if ratio > 0 and config.model_update_frequency != 1:
        rule = "must be 1 with async_generation_ratio above 0, as the age of a rollout is counted in updates"
        yield Problem("actor_train.model_update_frequency", rule, config.model_update_frequency, "leave it out")
    if ratio == 0 and config.is_use_additional_prompts:
        rule = "needs async_generation_ratio of at least 1: other steps draw prompts anew where a filter dropped some"
        yield Problem("is_use_additional_prompts", rule, True, "leave it out")


def _pairs(config: RLVRConfig) -> Iterator[Problem]:
    if config.enable_old_logprobs_recompute and config.force_disable_old_logprobs_recompute:
        rule = "contradicts enable_old_logprobs_recompute: true"
        yield Problem("force_disable_old_logprobs_recompute", rule, True, "leave one of the two out")
    if config.profiler_timeline and config.profiler_memory:
        rule = "cannot be on together with profiler_timeline"
        yield Problem("profiler_memory", rule, True, "leave one of the two out")
    if config.add_token_level_kl and config.kl_penalty == "full":
        rule = "full compares whole distributions, and only the sampled tokens' probabilities are kept"
        yield Problem("kl_penalty", rule, "full", "kl_penalty: kl (k1), mse (k2), abs or k3")
    frequencies = [config.actor_train.model_update_frequency, config.actor_infer.model_update_frequency]
    if 1 not in frequencies and frequencies[0] != frequencies[1]:
        rule = f"contradicts actor_train.model_update_frequency: {frequencies[0]}"
        yield Problem("actor_infer.model_update_frequency", rule, frequencies[1], "leave one of the two out")
    if config.overlong_buffer_length > config.response_window:
        rule = f"must be at most the {config.response_window} tokens of the longest response"
        yield Problem("overlong_buffer_length", rule, config.overlong_buffer_length)
    low, high = config.difficulty_low_threshold, config.difficulty_high_threshold
    if config.difficulty_mask and low >= high:
        rule = f"must be less than difficulty_high_threshold {high:g}, or no group is ever kept"
        yield Problem("difficulty_low_threshold", rule, low)
