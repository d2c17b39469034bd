"""From logits to tokens, for a whole batch at once.

Shapes: N rows (running requests), V vocabulary entries, K candidates that survive top-k.

A row's token is the inverse of its cumulative distribution, in vocabulary order, at a number drawn beforehand
from the request's own seed. So neither the other rows nor the order of requests change what a request draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch

from roll_core.errors import BadRequest
from roll_core.inference.base import GenerationRequest, SamplingParams

DRAWS_AT_ONCE = 128
LARGEST_DRAW = 1.0 - 2.0**-22
"""A draw of nearly 1 times the sum of all probabilities must stay below that sum in float32, or it finds no token."""


def draws(seed: int) -> Iterator[float]:
    """The numbers in [0, 1) that decide a request's tokens, one for each token sampled."""
    generator = np.random.Generator(np.random.PCG64(seed % 2**64))
    while True:
        numbers = generator.random(DRAWS_AT_ONCE, dtype=np.float32)
        yield from np.minimum(numbers, np.float32(LARGEST_DRAW)).tolist()


def check_params(request: GenerationRequest) -> None:
    """Refuse parameters that no engine can sample with.

    Raises:
        BadRequest: names the request, the parameter and its range.
    """
    params = request.params
    ranges = {
        "max_new_tokens": (params.max_new_tokens >= 1, "at least 1"),
        "temperature": (0 <= params.temperature < float("inf"), "0 (greedy) or more"),
        "top_p": (0 < params.top_p <= 1, "above 0 and at most 1 (every token)"),
        "top_k": (params.top_k >= 0, "0 (every token) or more"),
        "repetition_penalty": (0 < params.repetition_penalty < float("inf"), "above 0; 1 is no penalty"),
    }
    for name, (holds, rule) in ranges.items():
        if not holds:
            given = getattr(params, name)
            raise BadRequest(f"request '{request.request_id}': {name} is {given}\n  allowed: {rule}")
    if "" in params.stop:
        raise BadRequest(f"request '{request.request_id}': an empty stop string would end every completion at once")


class SampledRow(Protocol):
    """What sampling needs to know of a running request."""

    params: SamplingParams
    draws: Iterator[float]
    seen: torch.Tensor | None
    """bool [V]: tokens of prompt and completion; only where there is a repetition penalty."""


class Sampler:
    """Draws one token for each row of a batch. Made anew when the batch changes; most steps are none."""

    def __init__(self, rows: Sequence[SampledRow], vocab_size: int, device: torch.device) -> None:
        self.rows, self.device = rows, device
        params = [row.params for row in rows]
        self.greedy = _column([p.temperature == 0 for p in params], device)
        self.is_all_greedy = all(p.temperature == 0 for p in params)
        self.has_greedy = any(p.temperature == 0 for p in params)
        # Greedy rows are not scaled: their log-probs are those of the logits as they are.
        temperatures = [p.temperature or 1.0 for p in params]
        self.temperature = None if all(t == 1.0 for t in temperatures) else _column(temperatures, device)
        penalties = [p.repetition_penalty for p in params]
        self.penalty = None if all(p == 1.0 for p in penalties) else _column(penalties, device)
        self.excluded_NV = _excluded(params, vocab_size, device)
        self.limits = None
        if any((p.top_k or p.top_p < 1) and p.temperature != 0 for p in params):
            self.limits = _Limits(params, vocab_size, device)

    def draw(self, logits_NV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The tokens, int64 [N], and their log-probs under softmax(logits / temperature), float32 [N]."""
        logits_NV = logits_NV.float()
        if self.is_all_greedy and self.penalty is None and self.excluded_NV is None:
            best = logits_NV.max(dim=-1)
            return best.indices, best.values - logits_NV.logsumexp(dim=-1)
        scaled_NV = logits_NV if self.temperature is None else logits_NV / self.temperature
        probs_NV = torch.softmax(scaled_NV, dim=-1)
        allowed_NV = probs_NV
        if self.penalty is not None or self.limits is not None or self.excluded_NV is not None:
            shaped_NV = scaled_NV if self.penalty is None else self._penalised(logits_NV)
            if self.excluded_NV is not None:
                shaped_NV = shaped_NV.masked_fill(self.excluded_NV, float("-inf"))
            if self.limits is not None:
                shaped_NV = shaped_NV.masked_fill(~self.limits.allowed(shaped_NV), float("-inf"))
            allowed_NV = torch.softmax(shaped_NV, dim=-1)
        tokens_N1 = self._invert(allowed_NV)
        if self.has_greedy:
            tokens_N1 = torch.where(self.greedy, allowed_NV.argmax(dim=-1, keepdim=True), tokens_N1)
        return tokens_N1.squeeze(1), self._log_probs(probs_NV, scaled_NV, tokens_N1)

    def _invert(self, probs_NV: torch.Tensor) -> torch.Tensor:
        cumulative_NV = probs_NV.cumsum(dim=-1)
        # Greedy rows draw nothing, so that a request's draws stay in step with its tokens.
        numbers = [0.5 if row.params.temperature == 0 else next(row.draws) for row in self.rows]
        targets_N1 = torch.tensor(numbers, device=self.device).unsqueeze(1) * cumulative_NV[:, -1:]
        # The first entry strictly above the target has a probability above 0: an excluded token is never found.
        return torch.searchsorted(cumulative_NV, targets_N1, right=True)

    def _log_probs(self, probs_NV: torch.Tensor, scaled_NV: torch.Tensor, tokens_N1: torch.Tensor) -> torch.Tensor:
        if self.penalty is None:
            return probs_NV.gather(1, tokens_N1).squeeze(1).log()
        # A penalty can favour a token whose own probability is 0 in float32.
        return torch.log_softmax(scaled_NV, dim=-1).gather(1, tokens_N1).squeeze(1)

    def _penalised(self, logits_NV: torch.Tensor) -> torch.Tensor:
        # Keskar et al. 2019 (CTRL), in the form of transformers: positive logits of tokens that have occurred
        # are divided by the penalty, negative ones multiplied.
        assert self.penalty is not None
        nothing = torch.zeros(logits_NV.shape[1], dtype=torch.bool, device=self.device)
        seen_NV = torch.stack([nothing if row.seen is None else row.seen for row in self.rows])
        punished_NV = torch.where(logits_NV < 0, logits_NV * self.penalty, logits_NV / self.penalty)
        changed_NV = torch.where(seen_NV, punished_NV, logits_NV)
        return changed_NV if self.temperature is None else changed_NV / self.temperature


def _excluded(params: Sequence[SamplingParams], vocab_size: int, device: torch.device) -> torch.Tensor | None:
    """Which tokens may not be drawn, bool [N, V], or [1, V] where it is the same for all rows; None for none."""
    different = list(dict.fromkeys(p.excluded_token_ids for p in params))
    if different == [()]:
        return None
    table = torch.zeros(len(different), vocab_size, dtype=torch.bool)
    for row, tokens in enumerate(different):
        table[row, list(tokens)] = True
    if len(different) > 1:
        table = table[[different.index(p.excluded_token_ids) for p in params]]
    return table.to(device)


class _Limits:
    """Top-k and top-p of every row: top-k first, top-p over what it leaves, as transformers does."""

    def __init__(self, params: Sequence[SamplingParams], vocab_size: int, device: torch.device) -> None:
        top_k = [min(p.top_k or vocab_size, vocab_size) for p in params]
        self.num_candidates = max(top_k)
        self.top_k = _column(top_k, device)
        # Sums of probabilities exceed 1 by rounding, so "every token" must be a number that they never reach.
        self.top_p = _column([p.top_p if p.top_p < 1 else 2.0 for p in params], device)
        self.has_top_p = any(p.top_p < 1 for p in params)

    def allowed(self, scaled_NV: torch.Tensor) -> torch.Tensor:
        """Which tokens may be drawn, bool [N, V]. The most likely one always may."""
        values_NK = scaled_NV.topk(self.num_candidates, dim=-1).values
        kept_NK = torch.arange(self.num_candidates, device=scaled_NV.device) < self.top_k
        if self.has_top_p:
            probs_NK = torch.softmax(values_NK.masked_fill(~kept_NK, float("-inf")), dim=-1)
            kept_NK &= probs_NK.cumsum(dim=-1) - probs_NK < self.top_p
        # Tokens as likely as the last one kept are kept too, so that what is allowed never hangs on how ties are
        # sorted, which may change with the other rows.
        return scaled_NV >= values_NK.gather(1, kept_NK.sum(dim=-1, keepdim=True) - 1)


def _column(values: Sequence[float] | Sequence[int] | Sequence[bool], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, device=device).unsqueeze(1)
