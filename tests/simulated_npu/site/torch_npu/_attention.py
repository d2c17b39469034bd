"""The fused attention operator through which transformers does flash attention on NPUs, in plain torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

UNMASKED, CAUSAL_FROM_TOP_LEFT, CAUSAL_FROM_BOTTOM_RIGHT = 0, 2, 3
BLOCK = 2048
"""Side of the mask that stands for a causal one of any size."""


def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> tuple[Any, ...]:
    """Attention over [B, S, N, D] ("BSND") or over sequences laid end to end, [T, N, D] ("TND")."""
    if pse is not None or padding_mask is not None or prefix is not None:
        raise NotImplementedError("pse, padding_mask and prefix are not simulated")
    if sparse_mode not in (UNMASKED, CAUSAL_FROM_TOP_LEFT, CAUSAL_FROM_BOTTOM_RIGHT):
        raise NotImplementedError(f"sparse_mode {sparse_mode} is not simulated")
    if sparse_mode == UNMASKED and atten_mask is not None:
        raise NotImplementedError("a mask with sparse_mode 0 is not simulated")
    if sparse_mode != UNMASKED and (atten_mask is None or tuple(atten_mask.shape) != (BLOCK, BLOCK)):
        raise RuntimeError(f"sparse_mode {sparse_mode} needs an atten_mask of {BLOCK} x {BLOCK}")
    if query.shape[-2] != head_num:
        raise RuntimeError(f"head_num is {head_num}, and the query has {query.shape[-2]} heads")
    if input_layout == "BSND":
        result = _attend(query, key, value, scale, keep_prob, sparse_mode)
    elif input_layout == "TND":
        if actual_seq_qlen is None or actual_seq_kvlen is None:
            raise RuntimeError("layout TND needs actual_seq_qlen and actual_seq_kvlen")
        parts = zip(itertools.pairwise([0, *actual_seq_qlen]), itertools.pairwise([0, *actual_seq_kvlen]), strict=True)
        rows = [
            _attend(query[None, a:b], key[None, c:d], value[None, c:d], scale, keep_prob, sparse_mode)[0]
            for (a, b), (c, d) in parts
        ]
        result = torch.cat(rows)
    else:
        raise NotImplementedError(f"layout {input_layout} is not simulated")
    empty = torch.empty(0, device=query.device)
    return result, empty, empty, empty, 0, 0, 0


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, keep_prob: float, sparse_mode: int
) -> torch.Tensor:
    num_queries, num_keys = query.shape[1], key.shape[1]
    mask = None
    if sparse_mode != UNMASKED:
        shift = num_keys - num_queries if sparse_mode == CAUSAL_FROM_BOTTOM_RIGHT else 0
        mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device).tril(shift)
    heads_first = (tensor.transpose(1, 2) for tensor in (query, key, value))
    result = functional.scaled_dot_product_attention(
        *heads_first, attn_mask=mask, dropout_p=1.0 - keep_prob, scale=scale, enable_gqa=query.shape[2] != key.shape[2]
    )
    return result.transpose(1, 2)
