"""Answers whose tokens and text are in a transport: what an engine hands over where rows travel by reference."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from roll_core.data.data_proto import DataProto
from roll_core.data.remote_batch import BatchReader, RowRemoteBatch, put_batch
from roll_core.data.vision import Vision, feature_columns
from roll_core.inference import Completion, GenerationRequest
from roll_core.transport import Transport

TEXT_COLUMN = "response_text"
NO_ROWS = RowRemoteBatch((), ())


@dataclass(frozen=True)
class RowStore:
    """Where workers put a step's rows and read them: a pickled client of a transport, and a partition of it.

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
    row: RowRemoteBatch = field(default_factory=lambda: NO_ROWS)


@dataclass(frozen=True)
class ContinuedRequest(GenerationRequest):
    """A request to go on with an answer that was interrupted: what was sampled of it is in the row `so_far`."""

    so_far: RowRemoteBatch = field(default_factory=lambda: NO_ROWS)


def joined(earlier: Completion | None, later: Completion, max_new_tokens: int) -> Completion:
    """An answer so far, of what there was and what was sampled since; a remote one has all of it in its row.

    One that has `max_new_tokens` is cut by its length, though an abort came with the last of them.
    """
    whole = later
    if earlier is not None and not isinstance(later, RemoteCompletion):
        ids, log_probs = earlier.token_ids + later.token_ids, earlier.log_probs + later.log_probs
        whole = replace(later, token_ids=ids, log_probs=log_probs)
    if whole.finish_reason == "abort" and whole.num_tokens >= max_new_tokens:
        whole = replace(whole, finish_reason="length")
    return whole


def rest_of(earlier: Completion | None, request: GenerationRequest) -> GenerationRequest:
    """The request for what is missing of an answer to `request`."""
    if earlier is None or not earlier.num_tokens:
        return request
    left = replace(request.params, max_new_tokens=request.params.max_new_tokens - earlier.num_tokens)
    request = replace(request, params=left, group="")
    if isinstance(earlier, RemoteCompletion):
        return ContinuedRequest(**vars(request), so_far=earlier.row)
    return replace(request, prompt_ids=(*request.prompt_ids, *earlier.token_ids))


class Continuing:
    """Requests as a strategy is given them, and the answers of a strategy as they were asked for.

    What there is of interrupted answers is read from the transport; each becomes a whole answer again.
    """

    def __init__(self, requests: Sequence[GenerationRequest], transport: Transport) -> None:
        self.asked = {one.request_id: one for one in requests}
        continued = [one for one in requests if isinstance(one, ContinuedRequest)]
        read = read_tokens(transport, [one.so_far for one in continued])
        self._earlier = {
            one.request_id: Completion(one.request_id, found.token_ids, found.log_probs, "abort", 0)
            for one, found in zip(continued, read)
        }

    def requests(self) -> list[GenerationRequest]:
        """Prompts with what was sampled after them."""
        found = self._earlier
        return [
            replace(one, prompt_ids=(*one.prompt_ids, *found[name].token_ids)) if name in found else one
            for name, one in self.asked.items()
        ]

    def whole(self, part: Completion) -> Completion:
        """What was sampled, behind what there was."""
        earlier, left = self._earlier.get(part.request_id), self.asked[part.request_id].params.max_new_tokens
        return joined(earlier, part, left + (0 if earlier is None else earlier.num_tokens))


@dataclass(frozen=True)
class AnswerTokens:
    """An answer that was read: its tokens, their log-probabilities, and its text."""

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    text: str


def read_tokens(transport: Transport, rows: Sequence[RowRemoteBatch]) -> list[AnswerTokens]:
    """Read answers from a transport, each of them a row.

    Raises:
        DataLost, RowsGone, TransportTimeout: as `Transport.get`.
    """
    if not rows:
        return []
    columns = ("responses", "infer_log_probs", TEXT_COLUMN)
    read = BatchReader(transport).materialize(RowRemoteBatch.concat(rows), columns)
    return [
        AnswerTokens(tuple(ids.tolist()), tuple(log_probs.tolist()), text)
        for ids, log_probs, text in zip(*(read[name] for name in columns))
    ]


def put_completions(
    store: RowStore,
    transport: Transport,
    completions: Sequence[Completion],
    requests: Sequence[GenerationRequest],
    texts: Sequence[str],
    vision: Vision | None = None,
) -> list[RemoteCompletion]:
    """Put completions with what each of them answers and their texts; what is left of them is small.

    With `vision`, what a model reads of the requests' images is put too, also of requests that have none; of an
    answer that is to go on, only with the whole of it.
    """
    columns: dict[str, Any] = {
        "prompts": [torch.tensor(one.prompt_ids) for one in requests],
        "responses": [torch.tensor(one.token_ids, dtype=torch.int64) for one in completions],
        "infer_log_probs": [torch.tensor(one.log_probs, dtype=torch.float32) for one in completions],
        TEXT_COLUMN: list(texts),
    }
    if vision is not None:
        images = [
            None if answer.finish_reason == "abort" else request.images
            for answer, request in zip(completions, requests)
        ]
        features = [None if one is None else vision.features(one.encoded) for one in images]
        columns |= feature_columns(vision, features)
    batch = DataProto(non_tensor_batch=columns)
    rows = put_batch(transport, batch, partition=store.partition)
    return [
        RemoteCompletion(
            one.request_id, (), (), one.finish_reason, one.weight_version, one.num_tokens, rows.slice(n, n + 1)
        )
        for n, one in enumerate(completions)
    ]


def rows_of(completions: Iterable[Completion]) -> RowRemoteBatch:
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
