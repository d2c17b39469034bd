"""Rows in Ray's object store: few large objects of plain bytes, and a directory that knows which rows live."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from roll_core.errors import RollError
from roll_core.transport.base import (
    CapacityError,
    DataLost,
    FieldSchema,
    RowHandle,
    RowsGone,
    Transport,
    TransportStats,
    TransportTimeout,
)
from roll_core.transport.codec import Encoded, Piece, Rows, decode, encode
from roll_core.transport.directory import Directory, Found, Manifest, Missing
from roll_core.transport.layout import StoredColumn
from roll_core.transport.row_ids import locate, narrowed

if TYPE_CHECKING:
    from roll_core.transport.base import Column
    from roll_core.transport.frozen import Bytes

SHARE_OF_STORE = 0.6
"""Beyond this part of Ray's object store it spills to disk, which stalls everyone for seconds."""
SMALL_SHARE = 1 / 32
"""Up to this part of the limit, room is asked for together with the put itself: a question before it costs a
millisecond, as much as copying 5 MiB, and the object store has more to spare than a few useless copies."""
START_S = 60.0
"""The directory is a process that may have to start first."""
PAUSE_S = 0.02
"""Between two questions for room."""


class RayTransportConfig(BaseModel):
    """How rows are cut into objects, and what is waited for."""

    model_config = ConfigDict(extra="forbid")

    timeout_s: float = Field(default=60.0, gt=0)
    """The most that one operation waits, for room as for data."""
    split_mb: int | None = Field(default=None, gt=0)
    """A field at least this large is an object of its own, the others share one. None: 32 on one node, where an
    object costs a millisecond and mapping it nothing; 4 on several, where readers fetch whole objects."""
    max_bytes: int | None = Field(default=None, gt=0)
    """Puts wait beyond this. None: 60 % of the cluster's object store."""
    ownership: Literal["producer", "copied"] = "producer"
    """`producer`: rows are lost with the process that put them. `copied`: they survive it, for one more copy."""


class RayTransport(Transport):
    """Puts encode columns as bytes and hand Ray one object per large field; gets read them where they lie.

    Needs Ray to be initialised. Pickled, it finds the same directory from another process of the cluster.
    """

    Config: ClassVar[type[BaseModel]] = RayTransportConfig

    def __init__(self, config: BaseModel | None = None) -> None:
        self.config = RayTransportConfig.model_validate((config or RayTransportConfig()).model_dump())
        ray = _initialised_ray()
        self._name = f"roll-transport-{uuid.uuid4().hex[:8]}"
        self._namespace = ray.get_runtime_context().namespace
        max_bytes = self.config.max_bytes or int(SHARE_OF_STORE * ray.cluster_resources()["object_store_memory"])
        # A small number of threads: none of its methods waits, but copying takes a moment.
        remote = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=4)(Directory)
        directory = remote.options(name=self._name).remote(max_bytes)
        self._attach(directory, is_owner=True)

    def _attach(self, directory: Any, *, is_owner: bool) -> None:
        self._directory, self._is_owner, self._process = directory, is_owner, os.getpid()
        self._prefix = uuid.uuid4().hex[:12]
        self._puts = itertools.count()  # Threads may put at once.
        started_by = time.monotonic() + max(START_S, self.config.timeout_s)
        self._max_bytes: int = self._call("limit", deadline=started_by)
        self._split_bytes = (self.config.split_mb or (32 if _num_nodes() == 1 else 4)) * 2**20

    def put(self, columns: Mapping[str, Column], num_rows: int, *, partition: str = "") -> RowHandle:
        """Store a snapshot; Ray's object store is the only place it is copied to."""
        deadline = self._deadline()
        manifest, groups = self._pack(columns, num_rows, partition)
        if num_rows:
            ray = self._ray()
            if manifest.num_bytes > SMALL_SHARE * self._max_bytes:
                self._reserve(manifest, deadline)
            references = [ray.put(group) for group in groups]
            self._add(manifest, references, deadline, copied=self.config.ownership == "copied")
        return _handle(manifest)

    def pack(self, columns: Mapping[str, Column], num_rows: int, *, partition: str = "") -> Iterator[Any]:
        """What a remote method yields, each an object of its own, so that its caller owns the rows.

        The method has `num_returns="streaming"`, and the caller gives the references to `adopt`. The rows then
        survive the process that made them, without a further copy.
        """
        manifest, groups = self._pack(columns, num_rows, partition)
        for group in groups:  # noqa: UP028, Ray sends values into generators, which a list does not take
            yield group
        yield manifest

    def adopt(self, references: Sequence[Any]) -> RowHandle:
        """Hold what a remote method packed and yielded. The payload is not fetched.

        Raises:
            RollError: the method failed; its own error.
        """
        deadline = self._deadline()
        # The manifest comes last, and a method that fails yields its error last.
        manifest: Manifest = self._fetch([references[-1]], deadline)[0]
        if manifest.num_rows:
            self._add(manifest, list(references[:-1]), deadline)
        return _handle(manifest)

    def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> dict[str, Column]:
        """The fields' columns; only objects that hold one of them are touched."""
        wanted, deadline = handle.wanted(fields), self._deadline()
        if not wanted:
            return {}
        if not len(handle):
            return {field.name: decode(field, (), 0) for field in wanted}
        located = locate(handle.row_ids)
        asked = {name: rows for name, (rows, _positions) in located.items()}
        found = self._call("find", asked, [field.name for field in wanted], deadline=deadline)
        if isinstance(found, Missing):
            raise RowsGone(
                f"{found.count} of {len(set(handle.row_ids))} rows are not here, the first is {found.first}\n"
                "  they were cleared, or put into another transport"
            )
        buffers = self._buffers(found, deadline)
        pieces = {name: (narrowed(rows), narrowed(positions)) for name, (rows, positions) in located.items()}
        return {field.name: _column(field, found, buffers, pieces, len(handle), copy=copy) for field in wanted}

    def clear(self, handle: RowHandle) -> None:
        """Forget rows; a chunk's memory is freed with its last row."""
        if len(handle):
            asked = {name: rows for name, (rows, _positions) in locate(handle.row_ids).items()}
            self._call("clear", asked, deadline=self._deadline())

    def clear_partition(self, partition: str) -> None:
        """Forget the rows of a partition."""
        self._call("clear_partition", partition, deadline=self._deadline())

    def stats(self) -> TransportStats:
        """Rows that live anywhere in the cluster, and the bytes of chunks with such."""
        stats: TransportStats = self._call("stats", deadline=self._deadline())
        return stats

    def close(self) -> None:
        """End the directory, and with it all rows, where this process started it."""
        if self._is_owner and self._process == os.getpid():
            ray = self._ray()
            if ray.is_initialized():
                ray.kill(self._directory)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (type(self), self._name, self._namespace, self.config)

    def _pack(self, columns: Mapping[str, Column], num_rows: int, partition: str) -> tuple[Manifest, list[list[Bytes]]]:
        encoded = [encode(name, column, num_rows) for name, column in columns.items()]
        shared = [one for one in encoded if one.num_bytes < self._split_bytes]
        large = [one for one in encoded if one.num_bytes >= self._split_bytes]
        stored: dict[str, StoredColumn] = {}
        groups: list[list[Bytes]] = []
        for members in ([shared] if shared else []) + [[one] for one in large]:
            buffers: list[Bytes] = []
            for one in members:
                end = len(buffers) + len(one.buffers)
                stored[one.field.name] = StoredColumn(one.field, one.layout, len(groups), len(buffers), end)
                buffers += one.buffers
            groups.append(buffers)
        chunk = f"{self._prefix}.{next(self._puts)}"
        in_order = {one.field.name: stored[one.field.name] for one in encoded}
        return Manifest(chunk, partition, num_rows, _total(encoded), in_order), groups

    def _reserve(self, manifest: Manifest, deadline: float) -> None:
        """Set room aside before large objects are made."""
        arguments = (manifest.chunk, manifest.num_bytes, 2 * self.config.timeout_s)
        self._wait_for_room(manifest, lambda: self._call("reserve", *arguments, deadline=deadline), deadline)

    def _add(self, manifest: Manifest, references: list[Any], deadline: float, *, copied: bool = False) -> None:
        self._wait_for_room(
            manifest, lambda: self._call("add", manifest, references, copied=copied, deadline=deadline), deadline
        )

    def _wait_for_room(self, manifest: Manifest, is_done: Callable[[], bool], deadline: float) -> None:
        needed = manifest.num_bytes
        if needed > self._max_bytes:
            raise CapacityError(
                f"a put of {_mib(needed)} MiB, and the transport holds at most {_mib(self._max_bytes)} MiB"
                "\n  try: smaller puts, a larger max_bytes in transfer_backend.backend_config, or a larger object store"
            )
        was_full = False
        while not was_full or time.monotonic() + PAUSE_S < deadline:
            try:
                if is_done():
                    return
            except TransportTimeout:
                if not was_full:
                    raise
                break  # It did answer before, and there was no room.
            was_full = True
            time.sleep(PAUSE_S)
        raise CapacityError(
            f"no room for {_mib(needed)} MiB within {self.config.timeout_s:g} s: "
            f"{_mib(self.stats().num_bytes)} of {_mib(self._max_bytes)} MiB are held"
            "\n  try: rows that are no longer needed are to be cleared, or a larger max_bytes"
        )

    def _buffers(self, found: Mapping[str, Found], deadline: float) -> dict[str, dict[int, list[Bytes]]]:
        keys = [(name, group) for name, one in found.items() for group in one.groups]
        values = self._fetch([found[name].groups[group] for name, group in keys], deadline)
        buffers: dict[str, dict[int, list[Bytes]]] = {name: {} for name in found}
        for (name, group), value in zip(keys, values):
            buffers[name][group] = value
        return buffers

    def _deadline(self) -> float:
        return time.monotonic() + self.config.timeout_s

    def _call(self, method: str, *arguments: Any, deadline: float, **options: Any) -> Any:
        ray = self._ray()
        return self._fetch([getattr(self._directory, method).remote(*arguments, **options)], deadline, ray)[0]

    def _fetch(self, references: list[Any], deadline: float, ray: Any = None) -> list[Any]:
        ray = ray or self._ray()
        exceptions = ray.exceptions
        try:
            fetched: list[Any] = ray.get(references, timeout=max(0.0, deadline - time.monotonic()))
            return fetched
        except exceptions.GetTimeoutError as error:
            raise TransportTimeout(
                f"the ray transport did not answer within {self.config.timeout_s:g} s"
                "\n  try: `ray status` and the logs of the nodes; a larger timeout_s in transfer_backend.backend_config"
            ) from error
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, RollError):
                raise error.cause from error
            raise RollError(f"a remote method of the ray transport failed\n{error}") from error
        except exceptions.RayActorError as error:
            raise _directory_lost(error) from error
        except exceptions.ObjectLostError as error:
            raise DataLost(
                f"rows are lost with the process that put them\n  cause: {str(error).splitlines()[0]}"
                "\n  try: ownership: copied in transfer_backend.backend_config, which keeps them, for one more copy"
            ) from error

    def _ray(self) -> Any:
        if self._process != os.getpid():
            _refuse_fork(self._process)
        import ray

        return ray


def _column(
    field: FieldSchema,
    found: Mapping[str, Found],
    buffers: Mapping[str, Mapping[int, list[Bytes]]],
    pieces: Mapping[str, tuple[Rows, Rows]],
    num_rows: int,
    *,
    copy: bool,
) -> Column:
    parts = []
    for name, (rows, positions) in pieces.items():
        stored = found[name].columns[field.name]
        parts.append(Piece(stored.layout, buffers[name][stored.group][stored.first : stored.end], rows, positions))
    return decode(field, parts, num_rows, copy=copy)


def _handle(manifest: Manifest) -> RowHandle:
    schema = tuple(stored.field for stored in manifest.columns.values())
    return RowHandle(tuple(f"{manifest.chunk}.{row}" for row in range(manifest.num_rows)), schema)


def _attached(cls: type[RayTransport], name: str, namespace: str, config: RayTransportConfig) -> RayTransport:
    ray = _initialised_ray()
    transport = cls.__new__(cls)
    transport.config, transport._name, transport._namespace = config, name, namespace
    try:
        directory = ray.get_actor(name, namespace=namespace)
    except ValueError as error:
        raise _directory_lost(error) from error
    transport._attach(directory, is_owner=False)
    return transport


def _initialised_ray() -> Any:
    import ray

    if not ray.is_initialized():
        raise RollError("the ray transport needs Ray, and Ray has not been started\n  try: ray.init() before")
    return ray


def _directory_lost(error: Exception) -> DataLost:
    return DataLost(
        "the directory of the ray transport has ended, and with it all rows"
        f"\n  cause: {str(error).splitlines()[0]}\n  try: resume from the last checkpoint"
    )


def _refuse_fork(process: int) -> NoReturn:
    raise RollError(
        f"process {os.getpid()} was forked from process {process}, which uses Ray: Ray does not survive a fork"
        "\n  try: start the process with spawn, or make a Ray task of what it does"
    )


def _num_nodes() -> int:
    import ray

    return sum(bool(node["Alive"]) for node in ray.nodes())


def _total(encoded: Sequence[Encoded]) -> int:
    return sum(one.num_bytes for one in encoded)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f}"
