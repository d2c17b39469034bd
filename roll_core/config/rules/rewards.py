"""Rewards: which domains there are, which tags they claim, and how prompts are shared among them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from roll_core.config import judges
from roll_core.config.reward_options import OPTION_KEYS, has_own_engine, is_builtin, reward_name, reward_options
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import FilterConfig, RewardConfig
from roll_core.data.tags import tag_routes
from roll_core.errors import ConfigError, Problem
from roll_core.objects import ObjectError, published_path_meant, spec_problem
from roll_core.rewards.builtin import BUILTIN_REWARDS, make_reward
from roll_core.rollout.filters import BUILTIN_FILTERS, THRESHOLDS

_SHARES = "actor_train.data_args.domain_interleave_probs"


def problems(config: RLVRConfig) -> Iterator[Problem]:
    """Missing rewards, tags claimed twice, domains that nobody scores, shares that are no shares."""
    if not config.rewards:
        hint = "rewards: {math_rule: {}} scores answers to mathematical questions"
        yield Problem("rewards", "at least one reward must be given", None, hint)
        return
    try:
        tag_routes(config.rewards)
    except ConfigError as error:
        yield from error.problems
    for name, reward in config.rewards.items():
        if is_published(reward):
            yield from reward_name_problems(name, reward)
        wrong = spec_problem(reward.query_filter_config.type, BUILTIN_FILTERS, "query filter")
        if wrong is not None:
            rule, _, hint = wrong.partition("\n")
            yield Problem(f"rewards.{name}.query_filter_config.type", rule, None, " ".join(hint.split()))
        yield from _thresholds(f"rewards.{name}.query_filter_config.filter_args", reward.query_filter_config)
        yield from _options(name, reward)
    yield from judges.problems(config)
    data = config.actor_train.data_args
    if data is not None and data.domain_interleave_probs is not None:
        yield from _shares(config, data.domain_interleave_probs)


def is_published(reward: RewardConfig) -> bool:
    """Whether a domain names a class of published configs: one that is not here is on no other machine either."""
    return reward.worker_cls is not None and reward.worker_cls.startswith("roll.pipeline.")


def reward_name_problems(name: str, reward: RewardConfig) -> Iterator[Problem]:
    """What keeps a domain's reward from being found.

    A published class that is not built is no fault of the config; a misspelt one is.
    """
    spec = reward.worker_cls or name
    wrong = spec_problem(spec, BUILTIN_REWARDS, "reward")
    if wrong is not None:
        key = f"rewards.{name}.worker_cls" if reward.worker_cls else f"rewards.{name}"
        rule, _, rest = wrong.partition("\n")
        hint = "; ".join(line.strip() for line in rest.splitlines())
        is_elsewhere = is_published(reward) and published_path_meant(spec) is None
        yield Problem(key, rule, None, hint, is_not_built=is_elsewhere)


def _thresholds(path: str, given: FilterConfig) -> Iterator[Problem]:
    """Arguments of a built-in filter that it does not have, and those that are no numbers."""
    known = THRESHOLDS.get(given.type)
    if known is None:
        return
    for key, value in given.filter_args.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
            hint = f"did you mean '{close[0]}'?" if close else f"it has: {', '.join(known)}"
            yield Problem(f"{path}.{key}", f"{given.type} has no such argument", value, hint)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            yield Problem(f"{path}.{key}", "must be a number", value)


def _options(name: str, reward: RewardConfig) -> Iterator[Problem]:
    """Options that a built-in reward refuses, and those that were given twice."""
    if not is_builtin(name, reward) or has_own_engine(reward):
        return
    builtin = reward_name(name, reward)
    for key, option in OPTION_KEYS.get(builtin, {}).items():
        if getattr(reward, key) is not None and option in reward.reward_args:
            rule = f"says what rewards.{name}.{key} says too"
            yield Problem(f"rewards.{name}.reward_args.{option}", rule, None, "leave one of the two out")
    try:
        make_reward(builtin, reward_options(name, reward))
    except ObjectError as error:
        yield Problem(f"rewards.{name}", str(error))


def _shares(config: RLVRConfig, shares: dict[str, float]) -> Iterator[Problem]:
    for domain, share in shares.items():
        if domain not in config.rewards:
            close = difflib.get_close_matches(domain, config.rewards, n=1, cutoff=0.6)
            hint = f"did you mean '{close[0]}'?" if close else f"the rewards are: {', '.join(config.rewards)}"
            yield Problem(f"{_SHARES}.{domain}", "is no domain under rewards", share, hint)
        if share < 0:
            yield Problem(f"{_SHARES}.{domain}", "must not be negative", share)
    total = sum(shares.values())
    if not shares or abs(total - 1) > 1e-6:
        rule = f"the shares must add up to 1, these add up to {total:g}"
        yield Problem(_SHARES, rule, dict(shares), _scaled(shares, total))
        return
    last = list(shares)[-1]
    for domain, share in shares.items():
        if domain != last and share > 0 and int(share * config.rollout_batch_size + 1e-9) == 0:
            rule = f"{share:g} of rollout_batch_size {config.rollout_batch_size} is not one prompt"
            hint = "a larger share or batch, or 0 to leave the domain out"
            yield Problem(f"{_SHARES}.{domain}", rule, share, hint)


def _scaled(shares: dict[str, float], total: float) -> str:
    if total <= 0 or any(share < 0 for share in shares.values()):
        return ""
    return ", ".join(f"{domain}: {share / total:.4g}" for domain, share in shares.items())
