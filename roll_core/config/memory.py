"""How much memory a role needs on one device, estimated from its config: nothing is loaded.

The sums follow what the strategies do: FSDP2's stored, gathered and summed tensors, what backward keeps of each layer,
the table of log-probabilities, and the engine's cache. `benchmarks/memory_plan.py` compares them with measured peaks.

Letters: b rows of a micro-batch, w its width in tokens, r response tokens of a row, V words of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roll_core.config.memory_shapes import ModelShape
from roll_core.config.memory_size import ModelSize

PIECE_ENTRIES = 1 << 26
"""Entries of the table of log-probabilities made at a time; the trainer's own bound."""
FP32 = 4
ADAM_BYTES = 8
"""Two moments in float32 per parameter."""


@dataclass(frozen=True)
class Need:
    """Bytes that a role needs on each of its devices, by what they are for; None where a size is not known.

    `peak` is less than the sum of the parts where these are not all there at one time. `host` is what each worker
    needs in its node's main memory.
    """

    weights: int | None = None
    gradients: int | None = None
    optimizer: int | None = None
    activations: int | None = None
    cache: int | None = None
    peak: int | None = None
    host: int = 0
    remarks: tuple[str, ...] = field(default=())

    @property
    def lasting(self) -> int:
        """What stays between steps: weights and optimiser."""
        return (self.weights or 0) + (self.optimizer or 0)


@dataclass(frozen=True)
class MicroBatch:
    """The largest micro-batch of a role: `rows` of `prompt` and `response` tokens, all as long as allowed."""

    rows: int
    prompt: int
    response: int

    @property
    def tokens(self) -> int:
        """Tokens that the model reads; the last one of a row is only predicted."""
        return self.rows * (self.prompt + max(1, self.response) - 1)

    @property
    def targets(self) -> int:
        """Response tokens whose log-probabilities are computed."""
        return self.rows * self.response


@dataclass(frozen=True)
class Sharding:
    """How FSDP2 splits a model: `ranks` share a copy, and forward and backward run in `compute_bytes` per number."""

    ranks: int
    compute_bytes: int
    reduce_bytes: int = FP32
    is_offloaded: bool = False
    is_sharded: bool = True
    wraps_embeddings: bool = False
    wraps_experts: bool = False


@dataclass(frozen=True)
class Training:
    """What else decides a trainer's need. `accumulation` is the number of micro-batches of a step."""

    recomputes: bool
    accumulation: int
    needs_entropy: bool = False
    has_values: bool = False
    tiles: int = 1


def training_need(size: ModelSize, split: Sharding, batch: MicroBatch, how: Training) -> Need:
    """A role that trains: float32 weights, gradients and moments, and what a step keeps for backward."""
    if size.parameters is None:
        return Need(remarks=(size.source,))
    stored = size.parameters * FP32 // split.ranks
    moments = size.parameters * ADAM_BYTES // split.ranks
    on_device, host = (0, 2 * stored + moments) if split.is_offloaded else (1, 0)
    shape = size.shape
    if shape is None:
        weights, gradients, optimizer = on_device * stored, on_device * stored, on_device * moments
        return Need(weights, gradients, optimizer, None, 0, None, host, (size.source,))
    weights = on_device * stored + _gathered(shape, split)
    gradients = on_device * stored
    kept, transient = _saved(shape, split.compute_bytes, batch, how)
    table = _values_table(batch) if how.has_values else _table(shape, split.compute_bytes, batch, how)
    earlier = gradients if how.accumulation > 1 else 0
    unsharded = _unsharded_gradients(shape, split)
    # Backward begins with everything kept and the table; it ends with all gradients and one layer's share.
    begins = earlier + kept + max(table, transient + unsharded)
    ends = gradients + transient + unsharded
    optimizer = on_device * moments
    peak = weights + optimizer + max(begins, ends)
    return Need(weights, gradients + unsharded, optimizer, kept + max(table, transient), 0, peak, host)


def scoring_need(size: ModelSize, split: Sharding, batch: MicroBatch, how: Training) -> Need:
    """A role that scores: weights in the precision it computes in, one layer at a time, and the table."""
    if size.parameters is None:
        return Need(remarks=(size.source,))
    stored = size.parameters * split.compute_bytes // split.ranks
    host = stored if split.is_offloaded else 0
    kept = 0 if split.is_offloaded else stored
    if size.shape is None:
        return Need(kept, 0, 0, None, 0, None, host, (size.source,))
    weights = kept + _gathered(size.shape, split)
    _saved_bytes, transient = _saved(size.shape, split.compute_bytes, batch, how)
    rows = batch.targets * size.shape.vocabulary
    piece = min(rows, PIECE_ENTRIES)
    # Logits, the same divided by the temperature in float32, and their log-softmax; entropies need two more.
    table = 0 if how.has_values else rows * split.compute_bytes + piece * FP32 * (4 if how.needs_entropy else 2)
    activations = batch.tokens * size.shape.hidden * split.compute_bytes + max(transient, table)
    return Need(weights, 0, 0, activations, 0, weights + activations, host)


def layer_bytes(shape: ModelShape, compute_bytes: int, tiles: int = 1) -> int:
    """What backward needs of one layer, per token.

    A norm keeps its input in float32, and what it gives before and after its scale. Attention keeps queries, keys and
    values of every head and its output; a gated MLP keeps both projections, the activation and their product.
    """
    norms = 2 * shape.hidden * (FP32 + 2 * compute_bytes)
    query_norm = (shape.query_width + shape.key_width) * (FP32 + compute_bytes) if shape.has_query_norm else 0
    attention = 4 * shape.query_width * compute_bytes
    if shape.experts:
        routed = shape.experts_per_token * (4 * shape.expert_intermediate + 2 * shape.hidden)
        mlp = (routed + 4 * shape.shared_intermediate) * compute_bytes + 2 * shape.experts * FP32
    else:
        mlp = 4 * shape.intermediate * compute_bytes
    return norms + query_norm + attention + (mlp if tiles <= 1 else 0)


def cache_bytes(shape: ModelShape, compute_bytes: int) -> int:
    """Keys and values of one token in all layers."""
    return 2 * shape.layers * shape.key_width * compute_bytes


def _saved(shape: ModelShape, compute_bytes: int, batch: MicroBatch, how: Training) -> tuple[int, int]:
    """What all layers keep until backward, and what one layer needs while it is computed or differentiated."""
    per_layer = layer_bytes(shape, compute_bytes, how.tiles) * batch.tokens
    width = batch.tokens // max(1, batch.rows)
    mask = batch.rows * width * width * (1 + compute_bytes)
    widest = max(shape.intermediate if not shape.experts else 0, shape.experts_per_token * shape.expert_intermediate)
    differentiated = batch.tokens * (3 * widest // max(1, how.tiles) + 2 * shape.hidden) * compute_bytes
    if how.recomputes:
        return shape.layers * shape.hidden * compute_bytes * batch.tokens + mask, per_layer + differentiated
    return shape.layers * per_layer + mask, differentiated


def _table(shape: ModelShape, compute_bytes: int, batch: MicroBatch, how: Training) -> int:
    """Logits and log-probabilities at the beginning of backward, where they need most."""
    entries = batch.targets * shape.vocabulary
    final_norm = batch.tokens * shape.hidden * (FP32 + 2 * compute_bytes)
    extra = 2 if how.needs_entropy else 0
    if entries <= PIECE_ENTRIES:
        # log-softmax, its gradient, and the gradient of what it was taken of
        return final_norm + entries * FP32 * (3 + extra)
    # Whole logits and two gradients of theirs while the pieces' are added up.
    return final_norm + 3 * entries * compute_bytes + PIECE_ENTRIES * FP32 * (3 + extra)


def _values_table(batch: MicroBatch) -> int:
    return batch.tokens * FP32


def _gathered(shape: ModelShape, split: Sharding) -> int:
    """Whole weights of the units that are in use, in the precision of the computation."""
    if not split.is_sharded:
        return 0
    root = 0 if split.wraps_embeddings else shape.embedding_parameters
    return (root + 2 * _unit(shape, split)) * split.compute_bytes


def _unsharded_gradients(shape: ModelShape, split: Sharding) -> int:
    if not split.is_sharded:
        return 0
    root = 0 if split.wraps_embeddings else shape.embedding_parameters
    return max(root, _unit(shape, split)) * (split.compute_bytes + split.reduce_bytes)


def _unit(shape: ModelShape, split: Sharding) -> int:
    """Parameters of the largest module that is gathered as one."""
    unit = shape.expert_parameters if split.wraps_experts and shape.experts else shape.layer_parameters
    if split.wraps_embeddings:
        unit = max(unit, shape.vocabulary * shape.hidden)
    return unit
