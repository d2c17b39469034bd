"""Which requests engines cannot serve, whichever they are."""

from __future__ import annotations

from collections.abc import Iterable

from roll_core.errors import BadRequest
from roll_core.inference.base import GenerationRequest
from roll_core.inference.sampling import check_params


def check_request(request: GenerationRequest, vocab_size: int, limits: Iterable[tuple[int | None, str]]) -> None:
    """Refuse a prompt that is empty or has unknown tokens, parameters out of their ranges, and texts too long.

    Args:
        limits: the most tokens, prompt included, and who has that bound; None where it has none.

    Raises:
        BadRequest: names the request and what is wrong.
    """
    check_params(request)
    who, prompt = f"request '{request.request_id}'", request.prompt_ids
    if not prompt:
        raise BadRequest(f"{who} has an empty prompt")
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        wrong = next(token for token in prompt if not 0 <= token < vocab_size)
        raise BadRequest(f"{who}: prompt token {wrong} is outside the vocabulary (0..{vocab_size - 1})")
    outside = [token for token in request.params.excluded_token_ids if not 0 <= token < vocab_size]
    if outside:
        raise BadRequest(f"{who}: excluded token {outside[0]} is outside the vocabulary (0..{vocab_size - 1})")
    longest = len(prompt) + request.params.max_new_tokens
    for limit, reader in limits:
        if limit is not None and longest > limit:
            raise BadRequest(
                f"{who}: prompt of {len(prompt)} and max_new_tokens {request.params.max_new_tokens} make {longest} "
                f"tokens; {reader} at most {limit}"
            )


def check_package_request(
    request: GenerationRequest, engine: str, vocab_size: int, max_length: int, has_tokenizer: bool, coldest: float
) -> None:
    """Refuse what `check_request` does, and what engines that are packages of their own cannot serve.

    Args:
        engine: its name, for messages.
        max_length: the most tokens that it reads, prompt included.
        coldest: at lower temperatures, except 0, it samples at another one than was asked.

    Raises:
        BadRequest: names the request and what is wrong.
    """
    check_request(request, vocab_size, [(max_length, "the engine reads")])
    who, params = f"request '{request.request_id}'", request.params
    if params.stop and not has_tokenizer:
        raise BadRequest(f"{who} has stop strings, and the model's folder has no tokenizer")
    if 0 < params.temperature < coldest:
        raise BadRequest(f"{who}: temperature is {params.temperature}\n  allowed by {engine}: 0, or {coldest} and more")
