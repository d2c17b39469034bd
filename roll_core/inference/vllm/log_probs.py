"""Makes vLLM's sampler report log-probs under softmax(logits / temperature), whatever else restricts sampling.

vLLM has two modes: `raw_logprobs` are of the logits without the temperature, `processed_logprobs` of what is left
after penalties, top-k and top-p. Training scores an answer at its temperature over all tokens. The second mode says
the same where nothing restricts sampling; where something does, or where a platform's sampler knows only the first
mode whatever it is told, the sampled token's log-prob is computed anew.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

GREEDY_BELOW = 1e-5
"""vLLM's own bound: colder rows are greedy, and their logits are not scaled."""


class ScaledLogProbs:
    """Hooks around a sampler: the first keeps the logits as they come, the second replaces log-probs."""

    def __init__(self, sampler: nn.Module) -> None:
        self._is_scaled = getattr(sampler, "logprobs_mode", None) == "processed_logprobs"
        self._scaled_NV: torch.Tensor | None = None
        sampler.register_forward_pre_hook(self._before, with_kwargs=True)
        sampler.register_forward_hook(self._after, with_kwargs=True)

    def _before(self, _sampler: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._scaled_NV = None
        logits_NV, sampling = (*args, *(kwargs[name] for name in ("logits", "sampling_metadata") if name in kwargs))[:2]
        is_plain = sampling.top_k is None and sampling.top_p is None and sampling.no_penalties
        is_plain = is_plain and not any(getattr(one, "biases", None) for one in _processors(sampling))
        if sampling.max_num_logprobs is None or (is_plain and self._is_scaled):
            return
        # A copy: the sampler writes into the logits it is given.
        scaled_NV = logits_NV.to(torch.float32, copy=True)
        if sampling.temperature is not None:
            temperature_N = sampling.temperature
            scaled_NV /= torch.where(temperature_N < GREEDY_BELOW, 1.0, temperature_N)[:, None]
        self._scaled_NV = scaled_NV

    def _after(self, _sampler: nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
        scaled_NV, self._scaled_NV = self._scaled_NV, None
        tensors = output.logprobs_tensors
        if scaled_NV is None or tensors is None:
            return
        tokens_N1 = output.sampled_token_ids[:, :1].long()
        values_N1 = scaled_NV.gather(1, tokens_N1) - scaled_NV.logsumexp(dim=1, keepdim=True)
        # The first column is the sampled token's.
        tensors.logprobs[:, :1] = values_N1


def _processors(sampling: Any) -> list[Any]:
    """What changes logits so that another token may be the most likely: among them the biases of requests."""
    return list(getattr(getattr(sampling, "logitsprocs", None), "non_argmax_invariant", ()))
