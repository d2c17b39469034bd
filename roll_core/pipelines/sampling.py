"""How a config says to sample, as an engine is told."""

from __future__ import annotations

from collections.abc import Sequence

from roll_core.config.schema import GeneratingArgs
from roll_core.inference import SamplingParams


def sampling_params(
    arguments: GeneratingArgs, stop_token_ids: Sequence[int], excluded_token_ids: Sequence[int] = ()
) -> SamplingParams:
    """`generating_args` for an engine; without `do_sample`, greedy."""
    assert arguments.max_new_tokens is not None, "the config fills it in"
    return SamplingParams(
        max_new_tokens=arguments.max_new_tokens,
        temperature=arguments.temperature if arguments.do_sample else 0.0,
        top_p=arguments.top_p,
        top_k=max(0, arguments.top_k),
        repetition_penalty=arguments.repetition_penalty,
        stop=tuple(arguments.stop_strings or ()),
        stop_token_ids=tuple(stop_token_ids),
        excluded_token_ids=tuple(excluded_token_ids),
    )


def training_temperature(arguments: GeneratingArgs) -> float:
    """The temperature at which the trainer must score what was sampled; greedy samples are scored as they are."""
    return arguments.temperature if arguments.do_sample and arguments.temperature > 0 else 1.0
