"""A request in SGLang's words, which requests it can serve, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.errors import BadRequest
from roll_core.inference.base import GenerationRequest
from roll_core.inference.request_rules import check_package_request
from roll_core.inference.sglang.messages import Output

COLDEST = 1e-6
"""Below this SGLang samples greedily and reports log-probs at temperature 1."""


@dataclass(frozen=True)
class RequestRules:
    """What a model and its engine allow; `max_length` in tokens, prompt included."""

    vocab_size: int
    max_length: int
    has_tokenizer: bool

    def check(self, request: GenerationRequest) -> None:
        """Refuse what cannot be served.

        Raises:
            BadRequest: names the request and what is wrong.
        """
        check_package_request(request, "SGLang", self.vocab_size, self.max_length, self.has_tokenizer, COLDEST)
        who, params = f"request '{request.request_id}'", request.params
        if request.images is not None:
            raise BadRequest(f"{who} has images, and SGLang is given none in this version\n  try: hf_infer or vllm")
        if params.excluded_token_ids:
            raise BadRequest(
                f"{who} excludes tokens, as a model that reads images needs it, and SGLang is not told of them in this "
                "version\n  try: hf_infer or vllm"
            )
        if params.repetition_penalty != 1:
            raise BadRequest(
                f"{who}: repetition_penalty is {params.repetition_penalty}; SGLang applies it before it takes the "
                "log-probs, which would then not be the model's\n  allowed: 1"
            )


def sampling_of(request: GenerationRequest, eos_ids: tuple[int, ...]) -> dict[str, Any]:
    """SGLang's sampling parameters."""
    params = request.params
    return {
        "max_new_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k or -1,
        "sampling_seed": request.seed % 2**63,
        "stop": list(params.stop) or None,
        # Not `ignore_eos`, with which SGLang heeds no stop token at all.
        "stop_token_ids": sorted({*params.stop_token_ids, *eos_ids}) or None,
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }


def output_of(rid: str, output: Mapping[str, Any]) -> Output:
    """What one of SGLang's outputs says, once its request has ended.

    Raises:
        ValueError: it has not one log-prob for each token.
    """
    about = output["meta_info"]
    token_ids = tuple(int(token) for token in output["output_ids"])
    # One (log-prob, token, text) for each token; none at all where a request was aborted before its first.
    triples = about.get("output_token_logprobs") or ()
    if tuple(token for _value, token, *_text in triples) != token_ids:
        raise ValueError(f"SGLang gave {len(token_ids)} tokens, and log-probs of {len(triples)} that are not the same")
    reason = about["finish_reason"]
    log_probs = tuple(float(value) for value, *_rest in triples)
    return Output(rid, token_ids, log_probs, str(reason["type"]), str(reason.get("message") or ""))
