"""A request in vLLM's words, which requests it can serve, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roll_core.errors import BadRequest
from roll_core.inference.base import GenerationRequest
from roll_core.inference.request_rules import check_request

COLDEST = 0.01
"""vLLM raises temperatures below this to it, except 0; then its log-probs are not those of the temperature asked."""


@dataclass(frozen=True)
class RequestRules:
    """What a model and its engine allow.

    Args:
        max_length: the longest text, in tokens, prompt included.
        has_plain_sampling_only: log-probs would be those of what top-k, top-p and penalties leave.
    """

    vocab_size: int
    max_length: int
    has_tokenizer: bool
    has_plain_sampling_only: bool

    def check(self, request: GenerationRequest) -> None:
        """Refuse what cannot be served.

        Raises:
            BadRequest: names the request and what is wrong.
        """
        check_request(request, self.vocab_size, [(self.max_length, "the engine reads")])
        who, params = f"request '{request.request_id}'", request.params
        if params.stop and not self.has_tokenizer:
            raise BadRequest(f"{who} has stop strings, and the model's folder has no tokenizer")
        if 0 < params.temperature < COLDEST:
            raise BadRequest(f"{who}: temperature is {params.temperature}\n  allowed by vLLM: 0, or {COLDEST} and more")
        if self.has_plain_sampling_only and (params.top_k or params.top_p < 1 or params.repetition_penalty != 1):
            raise BadRequest(
                f"{who}: with this vLLM's model runner, log-probs are right only without top_k, top_p and penalties"
                "\n  try: VLLM_USE_V2_MODEL_RUNNER=0"
            )


def sampling_of(request: GenerationRequest, eos_ids: tuple[int, ...]) -> Any:
    """vLLM's sampling parameters: one completion, given back once it is whole, with its tokens' log-probs."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = request.params
    return SamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        repetition_penalty=params.repetition_penalty,
        seed=request.seed % 2**63,
        stop=list(params.stop) or None,
        # Tokens that end a completion are ours to say, for every engine alike; they are part of it.
        stop_token_ids=sorted({*params.stop_token_ids, *eos_ids}) or None,
        ignore_eos=True,
        max_tokens=params.max_new_tokens,
        logprobs=0,
        detokenize=bool(params.stop),
        skip_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def log_probs_of(output: Any) -> tuple[float, ...]:
    """The log-prob of each token of a completion output."""
    positions = output.logprobs or ()
    return tuple(float(position[token].logprob) for token, position in zip(output.token_ids, positions, strict=True))
