"""Which requests no engine can serve, whatever it is."""

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
