"""The sizes of a transformer that decide its memory, and how many parameters they make."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only transformer with gated MLPs; with `experts`, its layers are mixtures of them.

    `dense_layers` of a mixture are plain ones of `intermediate`; `shared_intermediate` is the width of experts that
    every token passes.
    """

    hidden: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    is_tied: bool = False
    has_bias: bool = False
    has_query_norm: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    dense_layers: int = 0
    shared_intermediate: int = 0

    @property
    def query_width(self) -> int:
        """Width of the queries of all heads."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Width of the keys, and of the values, of all heads that have their own."""
        return self.key_heads * self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Projections of a layer's attention, with their biases and norms."""
        projections = 2 * self.hidden * self.query_width + 2 * self.hidden * self.key_width
        biases = self.query_width + 2 * self.key_width if self.has_bias else 0
        norms = 2 * self.head_dim if self.has_query_norm else 0
        return projections + biases + norms

    @property
    def expert_parameters(self) -> int:
        """One expert."""
        return 3 * self.hidden * self.expert_intermediate

    @property
    def layer_parameters(self) -> int:
        """The largest layer: a mixture of experts, where there is one."""
        norms = 2 * self.hidden
        if self.experts:
            router = self.hidden * self.experts
            shared = 3 * self.hidden * self.shared_intermediate
            return self.attention_parameters + norms + router + shared + self.experts * self.expert_parameters
        return self._dense_layer

    @property
    def embedding_parameters(self) -> int:
        """Input embeddings, and the output projection where it is a tensor of its own."""
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def parameters(self) -> int:
        """All of the model."""
        dense = self.dense_layers if self.experts else 0
        layers = dense * self._dense_layer + (self.layers - dense) * self.layer_parameters
        return self.embedding_parameters + layers + self.hidden

    @property
    def _dense_layer(self) -> int:
        return self.attention_parameters + 2 * self.hidden + 3 * self.hidden * self.intermediate
