"""Lengths in tokens: prompts, responses, whole sequences, and what engines are told."""

from __future__ import annotations

from collections.abc import Iterator

from roll_core.config.rlvr import RLVRConfig
from roll_core.errors import Problem


def problems(config: RLVRConfig) -> Iterator[Problem]:
    """Lengths that are missing, contradict each other, or do not fit into an engine."""
    yield from _sequence(config)
    yield from _validation(config)
    yield from _sampling(config)
    yield from _engine(config)


def _sequence(config: RLVRConfig) -> Iterator[Problem]:
    if config.response_length is None and config.sequence_length is None:
        hint = "response_length: 1024 (the longest answer, in tokens)"
        yield Problem("response_length", "response_length or sequence_length must be given", None, hint)
    elif config.sequence_length is not None:
        needed = config.prompt_length + (config.response_length or 1)
        if config.sequence_length < needed:
            parts = f"prompt_length {config.prompt_length} + response_length {config.response_length or 1}"
            hint = f"at least {needed}, or leave it out: it follows from the other two"
            yield Problem("sequence_length", f"must be at least {parts} = {needed}", config.sequence_length, hint)


def _validation(config: RLVRConfig) -> Iterator[Problem]:
    given = {"val_prompt_length": config.val_prompt_length, "val_sequence_length": config.val_sequence_length}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        other = next(name for name in given if name not in missing)
        hint = f"give both, or leave out {other} to use the training lengths"
        yield Problem(missing[0], f"must be given together with {other}", None, hint)
        return
    prompt, sequence = config.val_prompt_length, config.val_sequence_length
    if prompt is not None and sequence is not None and sequence <= prompt:
        rule = f"must be more than val_prompt_length {prompt}, to leave room for an answer"
        yield Problem("val_sequence_length", rule, sequence)


def _sampling(config: RLVRConfig) -> Iterator[Problem]:
    sampling = config.actor_infer.generating_args
    assert sampling is not None
    path, n = "actor_infer.generating_args", config.num_return_sequences_in_group
    if sampling.num_return_sequences != n:
        rule = f"must equal num_return_sequences_in_group {n}"
        yield Problem(f"{path}.num_return_sequences", rule, sampling.num_return_sequences, "leave it out")
    yield from _new_tokens(f"{path}.max_new_tokens", sampling.max_new_tokens, config.response_window, "response_length")
    yield from _beams(path, sampling.num_beams)
    if n > 1 and (sampling.temperature == 0 or not sampling.do_sample):
        key = "temperature" if sampling.temperature == 0 else "do_sample"
        rule = f"all {n} responses of a prompt would be the same; num_return_sequences_in_group asks for sampling"
        yield Problem(f"{path}.{key}", rule, getattr(sampling, key), "temperature: 1.0")
    if config.validation is not None and config.validation.generating_args is not None:
        held_out, path = config.validation.generating_args, "validation.generating_args"
        limit, name = config.val_response_window, "the response length in validation"
        yield from _new_tokens(f"{path}.max_new_tokens", held_out.max_new_tokens, limit, name)
        yield from _beams(path, held_out.num_beams)


def _new_tokens(path: str, tokens: int | None, limit: int, name: str) -> Iterator[Problem]:
    if tokens is not None and tokens > limit:
        yield Problem(path, f"must not exceed {name} {limit}", tokens, f"at most {limit}, or leave it out")


def _beams(path: str, beams: int) -> Iterator[Problem]:
    if beams > 1:
        rule = "beam search gives no samples of the policy, which training needs"
        yield Problem(f"{path}.num_beams", rule, beams, "num_beams: 1")


def _engine(config: RLVRConfig) -> Iterator[Problem]:
    limit = config.actor_infer.strategy_config.get("max_model_len")
    if type(limit) is not int:
        return
    needed = config.prompt_length + config.response_window
    parts = f"prompt_length {config.prompt_length} + response_length {config.response_window}"
    if config.val_sequence_length is not None and config.val_sequence_length > needed:
        needed, parts = config.val_sequence_length, f"val_sequence_length {config.val_sequence_length}"
    if limit < needed:
        rule = f"must be at least {parts} = {needed}" if "+" in parts else f"must be at least {parts}"
        path = "actor_infer.strategy_args.strategy_config.max_model_len"
        yield Problem(path, rule, limit, f"at least {needed}, or shorter prompts or responses")
