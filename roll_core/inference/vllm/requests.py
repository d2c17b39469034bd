"""A request in vLLM's words, which requests it can serve, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roll_core.data.images import open_image
from roll_core.errors import BadRequest, EngineFailed
from roll_core.inference.base import GenerationRequest
from roll_core.inference.request_rules import check_package_request

COLDEST = 0.01
"""vLLM raises temperatures below this to it, except 0; then its log-probs are not those of the temperature asked."""

NEVER = -100.0


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
        check_package_request(request, "vLLM", self.vocab_size, self.max_length, self.has_tokenizer, COLDEST)
        who, params = f"request '{request.request_id}'", request.params
        is_restricted = params.top_k or params.top_p < 1 or params.repetition_penalty != 1 or params.excluded_token_ids
        if self.has_plain_sampling_only and is_restricted:
            raise BadRequest(
                f"{who}: with this vLLM's model runner, log-probs are right only without top_k, top_p and penalties, "
                "and with no token excluded"
                "\n  try: VLLM_USE_V2_MODEL_RUNNER=0"
            )


def prompt_of(request: GenerationRequest) -> dict[str, Any]:
    """vLLM's prompt. It reads images by itself, and makes as many tokens of each as it reads.

    Raises:
        OSError: an image is broken.
    """
    images = request.images
    if images is None:
        return {"prompt_token_ids": list(request.prompt_ids)}
    answered = request.prompt_ids[images.num_prompt_ids :]
    return {
        "prompt_token_ids": [*images.short_ids, *answered],
        "multi_modal_data": {"image": [open_image(encoded) for encoded in images.encoded]},
    }


def check_prompt(request: GenerationRequest, read: Sequence[int] | None) -> None:
    """Whether vLLM read a prompt with images as the trainer will read it.

    Raises:
        EngineFailed: it made other tokens of it.
    """
    if request.images is not None and tuple(read or ()) != request.prompt_ids:
        raise EngineFailed(
            f"vLLM made {len(read or ())} tokens of the prompt of request '{request.request_id}', and the trainer "
            f"reads {len(request.prompt_ids)}: it reads images in another way than the model's image processor"
            "\n  try: leave out mm_processor_kwargs, or hf_infer"
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
        # The lowest bias there is: e^-100 of the probability is left. Log-probs are taken without it (log_probs.py).
        logit_bias={token: NEVER for token in params.excluded_token_ids} or None,
        logprobs=0,
        detokenize=bool(params.stop),
        skip_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def log_probs_of(output: Any) -> tuple[float, ...]:
    """The log-prob of each token of a completion output."""
    positions = output.logprobs or ()
    return tuple(float(position[token].logprob) for token, position in zip(output.token_ids, positions, strict=True))
