"""What a model says about response tokens: their log-probabilities, entropies and values.

Shapes: b rows, w input columns, r response columns, V words in the vocabulary, N tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from roll_core.training.microbatch import ModelInput
from roll_core.training.shared_prompts import has_shared_prompts, response_logits
from roll_core.training.vision import positions, with_blank_row

# Entries of the [N, V] table that are turned to float32 at a time. A 150k vocabulary at 4k tokens is 2.4 GB in
# float32, several times over in backward; below this size one piece is fastest.
PIECE_ENTRIES = 1 << 26


@dataclass(frozen=True)
class TokenScores:
    """Per response token, float32 [b, r], 0 at padding."""

    log_probs: torch.Tensor
    entropy: torch.Tensor | None


def token_scores(
    model: nn.Module, given: ModelInput, *, temperature: float, entropy: bool, shares_prompts: bool = False
) -> TokenScores:
    """Log-probability (and entropy) of each response token under logits / temperature.

    The vocabulary projection, the widest matrix of small models, runs at the response positions only. With
    `shares_prompts` a prompt that several rows have is read once for all of them.
    """
    if shares_prompts and given.images is None and has_shared_prompts(given):
        logits_BRV = response_logits(model, given)
    else:
        logits_BRV = _outputs(model, given, logits_to_keep=given.targets.shape[1])
    log_probs, entropies = pieces(logits_BRV.flatten(0, 1), given.targets.flatten(), temperature, entropy)
    return TokenScores(
        _zero_padding(log_probs.view_as(given.targets), given),
        None if entropies is None else _zero_padding(entropies.view_as(given.targets), given),
    )


def token_values(model: nn.Module, given: ModelInput) -> torch.Tensor:
    """The critic's value of the state before each response token: float32 [b, r], 0 at padding.

    Critics read text alone: the tokens of an image, and not what is on it.
    """
    values_BW1 = _outputs(model, replace(given, images=None))
    return _zero_padding(values_BW1[:, -given.targets.shape[1] :, 0].float(), given)


def _outputs(model: Any, given: ModelInput, **options: int) -> torch.Tensor:
    if given.blank is not None:
        return _beside_blank(model, given, given.blank, options)
    where = given.position_ids
    if given.images is not None:
        where = positions(model.config, given.input_ids, given.attention_mask, given.images)
    outputs = model(
        input_ids=given.input_ids,
        attention_mask=given.attention_mask,
        position_ids=where,
        use_cache=False,
        **options,
        **(given.images or {}),
    )
    logits = outputs.logits
    assert isinstance(logits, torch.Tensor)
    return logits


def _beside_blank(
    model: Any, given: ModelInput, blank: Mapping[str, torch.Tensor], options: Mapping[str, int]
) -> torch.Tensor:
    """Outputs of rows without images, read together with a row of nothing but a blank one.

    Weights that are split over ranks are gathered, and their gradients summed, by all ranks at the same time: what
    reads images must run on each. Its output is added to the others' times zero, so that backward comes by too.
    """
    ids, mask = with_blank_row(model.config, given.input_ids, given.attention_mask)
    outputs = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions(model.config, ids, mask, blank),
        use_cache=False,
        **options,
        **blank,
    )
    logits: torch.Tensor = outputs.logits
    return logits[:-1] + 0.0 * logits[-1, -1].sum()


def _zero_padding(per_token: torch.Tensor, given: ModelInput) -> torch.Tensor:
    return per_token if given.attended is None else per_token.masked_fill(~given.attended, 0.0)


def pieces(
    logits_NV: torch.Tensor, targets_N: torch.Tensor, temperature: float, entropy: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`log_softmax` of N tokens in float32, a bounded number of them at a time.

    With several pieces, backward computes each one again instead of keeping N x V float32 numbers.
    """
    size = max(1, PIECE_ENTRIES // logits_NV.shape[1])
    if len(targets_N) <= size:
        return _score(logits_NV, targets_N, temperature, entropy)
    results = []
    for start in range(0, len(targets_N), size):
        arguments = (logits_NV[start : start + size], targets_N[start : start + size], temperature, entropy)
        if torch.is_grad_enabled():
            results.append(checkpoint(_score, *arguments, use_reentrant=False, preserve_rng_state=False))
        else:
            results.append(_score(*arguments))
    log_probs = torch.cat([result[0] for result in results])
    return log_probs, torch.cat([result[1] for result in results]) if entropy else None


def _score(
    logits_NV: torch.Tensor, targets_N: torch.Tensor, temperature: float, entropy: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    scaled_NV = logits_NV.float() if temperature == 1.0 else logits_NV.float() / temperature
    all_NV = scaled_NV.log_softmax(dim=-1)
    log_probs = all_NV.gather(1, targets_N[:, None]).squeeze(1)
    return log_probs, -(all_NV.exp() * all_NV).sum(dim=-1) if entropy else None
