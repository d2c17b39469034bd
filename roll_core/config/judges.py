"""Which rewards are judged by an engine of this run, and the section that describes the engine."""

from __future__ import annotations

from collections.abc import Iterator

from roll_core.config.reward_options import reward_name
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.role_sections import GeneratingArgs
from roll_core.config.roles import RewardConfig, WorkerConfig
from roll_core.data.templates import template_problems
from roll_core.errors import Problem
from roll_core.rewards.judge_prompts import prompt_text

DEFAULT_PROMPT = "equivalence"
MAX_NEW_TOKENS = 1024
"""Of a judge's reply, its thinking included, where the config does not say."""
KINDS = ("api", "inference", "cluster")
"""What `judge_model_type` may be: a server, an engine that the reward's own section describes, or `reward_model`."""


def judge_engine(config: RLVRConfig, domain: str) -> tuple[str, WorkerConfig] | None:
    """The section with the engine that judges a domain, and its path; None where no engine of this run does."""
    reward = config.rewards[domain]
    if reward_name(domain, reward) != "llm_judge":
        return None
    if reward.judge_model_type == "inference":
        return f"rewards.{domain}", _bounded(reward)
    if reward.judge_model_type == "cluster" and config.reward_model is not None:
        return "reward_model", _bounded(config.reward_model)
    return None


def _bounded(engine: WorkerConfig) -> WorkerConfig:
    """hf_infer judges `infer_batch_size` samples at once where that is written; others have bounds of their own."""
    strategy = engine.strategy_args
    is_written = "infer_batch_size" in engine.model_fields_set
    if strategy is None or strategy.strategy_name != "hf_infer" or not is_written:
        return engine
    options = {"max_running_requests": engine.infer_batch_size} | strategy.strategy_config
    return engine.model_copy(update={"strategy_args": strategy.model_copy(update={"strategy_config": options})})


def judge_engines(config: RLVRConfig) -> dict[str, WorkerConfig]:
    """All such sections by their paths."""
    found = (judge_engine(config, domain) for domain in config.rewards)
    return dict(engine for engine in found if engine is not None)


def judge_prompt(reward: RewardConfig) -> str:
    """The text that a judge is asked with.

    Raises:
        TypeError: there is no prompt of that name.
    """
    return prompt_text(str(reward.judge_prompt or reward.reward_args.get("prompt", DEFAULT_PROMPT)))


def judge_sampling(engine: WorkerConfig) -> GeneratingArgs:
    """How a judge's replies are sampled: as its section says, else the likeliest token each time."""
    given = engine.generating_args or GeneratingArgs(do_sample=False)
    return given.model_copy(update={"max_new_tokens": given.max_new_tokens or MAX_NEW_TOKENS})


def judge_template(engine: WorkerConfig) -> str:
    """The name of the judge's chat template."""
    return (engine.data_args.template if engine.data_args is not None else None) or "native"


def problems(config: RLVRConfig) -> Iterator[Problem]:
    """What is wrong with the sections of judges and their engines."""
    asking: dict[str, list[str]] = {}
    for domain, reward in config.rewards.items():
        path = f"rewards.{domain}"
        is_judge = reward_name(domain, reward) == "llm_judge"
        if reward.devices and not (is_judge and reward.judge_model_type == "inference"):
            rule = "only a judge with judge_model_type: inference has an engine; other rewards run on plain processes"
            hint = f"{path}.judge_model_type: inference" if is_judge else "world_size, which says how many workers"
            yield Problem(f"{path}.device_mapping", rule, None, hint)
        if not is_judge:
            continue
        if reward.judge_model_type not in (None, *KINDS):
            yield Problem(f"{path}.judge_model_type", f"must be one of: {', '.join(KINDS)}", reward.judge_model_type)
        if reward.judge_model_type == "cluster" and config.reward_model is None:
            rule = "cluster takes the engine that the section reward_model describes, and there is none"
            yield Problem(f"{path}.judge_model_type", rule, None, "judge_model_type: inference, or a reward_model")
        engine = judge_engine(config, domain)
        if engine is None:
            continue
        asking.setdefault(engine[0], []).append(domain)
        yield from _judge(path, reward)
        yield from _engine(*engine)
    for path, domains in asking.items():
        if len(domains) > 1:
            rule = f"judges one domain, and {' and '.join(f'rewards.{domain}' for domain in domains)} name it"
            yield Problem(path, rule, None, "one reward with all their tags in tag_included")


def _judge(path: str, reward: RewardConfig) -> Iterator[Problem]:
    try:
        judge_prompt(reward)
    except TypeError as error:
        yield Problem(f"{path}.judge_prompt", str(error))
    for name in reward.reward_args:
        if name != "prompt":
            rule = "a judge with an engine of its own has no such option"
            yield Problem(f"{path}.reward_args.{name}", rule, None, "generating_args says how its replies are sampled")


def _engine(path: str, engine: WorkerConfig) -> Iterator[Problem]:
    if engine.strategy_args is None:
        rule = "must name the engine that the judge's model runs in"
        yield Problem(f"{path}.strategy_args", rule, None, "strategy_args: {strategy_name: vllm}, or hf_infer")
    if not engine.devices:
        rule = "must name the judge's own devices"
        yield Problem(f"{path}.device_mapping", rule, None, "devices that no other role names")
    if engine.model_args.model_name_or_path is None:
        rule = "must be the folder of the judge's model"
        yield Problem(f"{path}.model_args.model_name_or_path", rule)
    if engine.strategy_config.get("load_format") == "dummy":
        rule = "nobody sends a judge its weights, so it must read them"
        yield Problem(f"{path}.strategy_args.strategy_config.load_format", rule, "dummy", "load_format: auto")
    yield from template_problems(f"{path}.data_args.template", judge_template(engine))
    sampling = engine.generating_args
    if sampling is not None and (sampling.num_return_sequences or 1) != 1:
        rule = "a judge is asked once about each response"
        yield Problem(f"{path}.generating_args.num_return_sequences", rule, sampling.num_return_sequences, "1")
