"""How much memory an engine needs on each of its devices: weights, and the keys and values of what it runs."""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.config.memory import FP32, Need, cache_bytes, layer_bytes
from roll_core.config.memory_size import ModelSize

SPARE_COLUMNS = 64
"""The least room that hf_infer's cache has beyond what it holds."""


@dataclass(frozen=True)
class Load:
    """What an engine runs at a time: `rows` requests of `prompt` tokens that grow to `longest` tokens.

    `prefill_tokens` are read in one pass.
    """

    rows: int
    prompt: int
    longest: int
    prefill_tokens: int


def hf_need(size: ModelSize, compute_bytes: int, load: Load) -> Need:
    """hf_infer: one block of memory for all rows, which is copied to one of twice the width when it is full.

    On plain processors a block is larger by a part in 2 * layers, which is left out here.
    """
    if size.parameters is None:
        return Need(remarks=(size.source,))
    weights = size.parameters * compute_bytes
    if size.shape is None:
        return Need(weights, 0, 0, None, None, None, remarks=(size.source,))
    per_token = cache_bytes(size.shape, compute_bytes)
    blocks = _blocks(load)
    cache = load.rows * sum(blocks[-2:]) * per_token
    # Prompts are read, once by layer and once stacked, and copied into the first block, before that one is outgrown.
    prompts = min(load.prefill_tokens, load.rows * load.prompt)
    reading = prompts * (2 * per_token + layer_bytes(size.shape, compute_bytes))
    entering = prompts * per_token + load.rows * blocks[0] * per_token
    table = load.rows * size.shape.vocabulary * FP32 * 3
    peak = weights + max(reading, entering, cache) + table
    return Need(weights, 0, 0, max(reading, table), cache, peak)


def reserving_need(
    size: ModelSize, compute_bytes: int, width: int, longest: int, share: float, device_bytes: int | None
) -> Need:
    """Engines that take a share of the device at their start and fill it with cache, such as vllm.

    Args:
        width: devices that one engine spans.
        longest: tokens of the longest sequence, which must fit.
        share: of the device's memory.
    """
    if size.parameters is None:
        return Need(remarks=(size.source,))
    weights = size.parameters * compute_bytes // width
    if size.shape is None:
        return Need(weights, 0, 0, None, None, None, remarks=(size.source,))
    per_token = max(1, cache_bytes(size.shape, compute_bytes) // width)
    if device_bytes is None:
        sequence = longest * per_token
        remark = f"takes {share:.0%} of the device; shown is the cache of one sequence of {longest} tokens"
        return Need(weights, 0, 0, None, sequence, None, remarks=(remark,))
    taken = int(device_bytes * share)
    cache = taken - weights
    fitting = max(0, cache) // per_token
    remark = f"takes {share:.0%} of the device, so that at most {fitting} tokens fit into its cache"
    if fitting < longest:
        # What it would need to begin at all is what makes it fail.
        return Need(weights, 0, 0, 0, longest * per_token, weights + longest * per_token, remarks=(remark,))
    return Need(weights, 0, 0, 0, cache, taken, remarks=(remark,))


def _blocks(load: Load) -> list[int]:
    """Columns of each block of memory that the rows live in, one after another; the last one holds the longest."""
    blocks = [load.prompt + 1 + max(SPARE_COLUMNS, load.prompt)]
    while blocks[-1] < load.longest:
        blocks.append(blocks[-1] + 1 + max(SPARE_COLUMNS, blocks[-1]))
    return blocks
