"""Answers whose tokens and text are in a transport: what an engine hands over where rows travel by reference."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from roll_core.data.data_proto import DataProto
from roll_core.data.remote_batch import RowRemoteBatch, put_batch
from roll_core.data.vision import Vision, feature_columns
from roll_core.inference import Completion, GenerationRequest
from roll_core.transport import Transport

TEXT_COLUMN = "response_text"


@dataclass(frozen=True)
class RowStore:
    """Where workers put a step's rows and read them: a pickled client of a transport, and the step's partition.

    It goes with each call, so that a worker that was started again needs to be told nothing else.
    """

    client: bytes
    partition: str

    def open(self) -> Transport:
        """This process's client; it takes a moment, so workers keep it."""
        transport: Transport = pickle.loads(self.client)
        return transport


@dataclass(frozen=True)
class RemoteCompletion(Completion):
    """A completion without its tokens and log-probabilities: those, its prompt and its text are in `row`."""

    num_tokens: int = 0
    row: RowRemoteBatch = field(default_factory=lambda: RowRemoteBatch((), ()))


def put_completions(
    store: RowStore,
    transport: Transport,
    completions: Sequence[Completion],
    requests: Mapping[str, GenerationRequest],
    texts: Sequence[str],
    vision: Vision | None = None,
) -> list[Completion]:
    """Put completions with what they answer (by request id) and their texts; what is left of them is small.

    With `vision`, what a model reads of the requests' images is put too, also of requests that have none.
    """
    columns: dict[str, Any] = {
        "prompts": [torch.tensor(requests[one.request_id].prompt_ids) for one in completions],
        "responses": [torch.tensor(one.token_ids, dtype=torch.int64) for one in completions],
        "infer_log_probs": [torch.tensor(one.log_probs, dtype=torch.float32) for one in completions],
        TEXT_COLUMN: list(texts),
    }
    if vision is not None:
        images = [requests[one.request_id].images for one in completions]
        features = [None if one is None else vision.features(one.encoded) for one in images]
        columns |= feature_columns(vision, features)
    batch = DataProto(non_tensor_batch=columns)
    rows = put_batch(transport, batch, partition=store.partition)
    return [
        RemoteCompletion(
            one.request_id, (), (), one.finish_reason, one.weight_version, len(one.token_ids), rows.slice(n, n + 1)
        )
        for n, one in enumerate(completions)
    ]


def rows_of(completions: Sequence[Completion]) -> RowRemoteBatch:
    """The rows of completions, in order.

    Raises:
        TypeError: one whose tokens are not in a transport.
    """
    rows = []
    for one in completions:
        if not isinstance(one, RemoteCompletion):
            raise TypeError(f"the tokens of {one.request_id} came with it; they are in no transport")
        rows.append(one.row)
    return RowRemoteBatch.concat(rows)
