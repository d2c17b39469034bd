"""How a step's rows reach the roles that train and score: inside the calls, or by reference through a transport."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.config.schema import PPOConfig
from roll_core.data import DataProto
from roll_core.data.answers import RowStore
from roll_core.data.remote_batch import BatchReader, Lease, RowRemoteBatch
from roll_core.errors import ConfigError, Problem, RollError
from roll_core.pipelines.minibatches import Rows
from roll_core.plugins import Registry
from roll_core.resolve import resolve_backend
from roll_core.transport import Transport

Delivered = DataProto | RowRemoteBatch
"""Rows for a worker, or a reference with which it reads them."""


@dataclass(frozen=True)
class TransportChoice:
    """The transport that a config asks for, not started yet."""

    transport_class: type[Transport]
    settings: BaseModel

    @property
    def num_cpus(self) -> int:
        """Logical CPUs of Ray that its processes ask for."""
        return self.transport_class.num_cpus(self.settings)

    def start(self) -> Transport:
        """Start it, in a session of Ray."""
        make: Any = self.transport_class
        transport: Transport = make(self.settings)
        return transport


def choose_transport(config: PPOConfig, registry: Registry, platform: str) -> TransportChoice | None:
    """The transport that a config names; None where it names none, and rows travel inside the calls.

    Raises:
        ConfigError: its `backend_config` cannot be used.
    """
    asked = config.transfer_backend
    if asked is None or asked.backend_name is None:
        return None
    transport_class = resolve_backend(registry, "transport", asked.backend_name, platform).load()
    try:
        settings = transport_class.Config.model_validate(asked.backend_config)
    except ValidationError as error:
        problems = []
        for one in error.errors():
            path = ".".join(["transfer_backend", "backend_config", *map(str, one["loc"])])
            problems.append(Problem(path, one["msg"], one["input"] if isinstance(one["input"], str | int) else None))
        raise ConfigError(problems, config.source) from error
    return TransportChoice(transport_class, settings)


@contextmanager
def opened(choice: TransportChoice | None, trainers: Sequence[WorkerGroup], waiter: Waiter) -> Iterator[Delivery]:
    """Start the transport that was chosen, make every trainer a client of it, and end it."""
    if choice is None:
        yield Delivery()
        return
    transport = choice.start()
    try:
        if transport.reaches_workers:
            waiter.wait([call for group in trainers for call in group.submit("attach", transport)])
        yield Delivery(transport)
    except BaseException as error:
        try:
            transport.close()
        except RollError as failure:
            error.add_note(f"the transport could not be closed: {failure}")
        raise
    transport.close()


class Delivery:
    """Brings rows to workers. Without a transport they are arguments of calls.

    With one that reaches workers, these put a step's rows themselves: `store` says where, and the driver has references
    only. With another, the driver puts columns that every role reads once per step, and others once per mini-batch, and
    reads each worker's share for it. Everything is freed when the step ends.
    """

    def __init__(self, transport: Transport | None = None) -> None:
        self.transport = transport
        self._lease: Lease | None = None
        self._client: bytes | None = None
        self._shared: tuple[DataProto, RowRemoteBatch] | None = None

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """What is delivered within is freed at the end, however the step ends."""
        if self.transport is None:
            yield
            return
        with Lease(self.transport, f"step-{step}") as self._lease:
            try:
                yield
            finally:
                self._lease, self._shared = None, None

    @property
    def reaches_workers(self) -> bool:
        """Whether workers can put rows themselves, so that a step's need not pass through the driver."""
        return self.transport is not None and self.transport.reaches_workers

    def store(self) -> RowStore:
        """Where workers put rows of the step that has begun."""
        assert self._lease is not None, "workers put rows within a step, which frees them"
        if self._client is None:
            self._client = pickle.dumps(self.transport)
        return RowStore(self._client, self._lease.name)

    def put(self, batch: DataProto, like: RowRemoteBatch) -> RowRemoteBatch:
        """The rows with further columns, which the driver has and which are small."""
        assert self._lease is not None, "rows are put within a step, which frees them"
        return like.union(self._lease.put(batch, like=like))

    def at_end(self, free: Callable[[], None]) -> None:
        """Have something freed when the step that has begun ends, however it ends."""
        assert self._lease is not None, "what ends with a step begins within it"
        self._lease.at_end(free)

    def whole(self, batch: DataProto) -> Delivered:
        """The rows of a step, with the columns that several roles read."""
        if self._lease is None:
            return batch
        if self._shared is None or not _same_columns(self._shared[0], batch):
            self._shared = batch, self._lease.put(batch)
        return self._shared[1]

    def part(self, whole: Delivered, rows: Rows, batch: DataProto) -> Delivered:
        """Some rows of a step, with further columns: of `batch` only those are put that `whole` does not have."""
        if self._lease is None or isinstance(whole, DataProto):
            return batch
        there = whole.index(rows)
        more = batch.select([name for name in batch.columns if name not in there])
        return replace(there.union(self._lease.put(more, like=there)), meta_info=batch.meta_info)

    def shares(self, delivered: Delivered, shares: Sequence[Rows]) -> list[Delivered]:
        """Each rank's rows."""
        parts: list[Delivered] = [delivered.index(rows) for rows in shares]
        if self.transport is None or self.reaches_workers:
            return parts
        reader = BatchReader(self.transport)
        return [reader.materialize(part) if isinstance(part, RowRemoteBatch) else part for part in parts]

    def metrics(self) -> dict[str, float]:
        """Rows and bytes that the transport still holds: after a step, none."""
        if self.transport is None:
            return {}
        stats = self.transport.stats()
        return {"system/transport_rows": float(stats.rows), "system/transport_bytes": float(stats.num_bytes)}


def _same_columns(one: DataProto, other: DataProto) -> bool:
    return one.columns == other.columns and all(one[name] is other[name] for name in one.columns)
