"""Rows in Ray's object store: few large objects of plain bytes, and a directory that knows which rows live."""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from roll_core.errors import RollError
from roll_core.transport.base import RowHandle, RowsGone, Transport, TransportStats
from roll_core.transport.codec import Piece, decode, encode
from roll_core.transport.directory import Directory, Found, Manifest, Missing
from roll_core.transport.directory_client import DirectoryClient, directory_lost
from roll_core.transport.layout import StoredColumn
from roll_core.transport.pieces import cut, joined
from roll_core.transport.row_ids import Places, locate, row_ids_of

if TYPE_CHECKING:
    from roll_core.transport.base import Column
    from roll_core.transport.frozen import Bytes

Group = list[list[Any]]
"""Buffers, each in pieces, in one object of Ray."""
SHARE_OF_STORE = 0.6
"""Beyond this part of Ray's object store it spills to disk, which stalls everyone for seconds."""
SMALL_SHARE = 1 / 32
"""Up to this part of the limit, room is asked for together with the put itself: a question before it costs a
millisecond, as much as copying 5 MiB, and the object store has more to spare than a few useless copies."""


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
        self._directory, self._is_owner = DirectoryClient(directory, self.config.timeout_s), is_owner
        self._prefix = uuid.uuid4().hex[:12]
        self._puts = itertools.count()  # Threads may put at once.
        self._split_bytes = (self.config.split_mb or (32 if _num_nodes() == 1 else 4)) * 2**20

    def put(self, columns: Mapping[str, Column], num_rows: int, *, partition: str = "") -> RowHandle:
        """Store a snapshot; Ray's object store is the only place it is copied to."""
        deadline = self._directory.deadline()
        manifest, groups = self._pack(columns, num_rows, partition)
        if num_rows:
            ray, directory = self._directory.ray(), self._directory
            if manifest.num_bytes > SMALL_SHARE * directory.max_bytes:
                directory.reserve(manifest, deadline)
            references = [ray.put(group) for group in groups]
            directory.add(manifest, references, deadline, copied=self.config.ownership == "copied")
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
        deadline = self._directory.deadline()
        # The manifest comes last, and a method that fails yields its error last.
        manifest: Manifest = self._directory.fetch([references[-1]], deadline)[0]
        if manifest.num_rows:
            self._directory.add(manifest, list(references[:-1]), deadline)
        return _handle(manifest)

    def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> dict[str, Column]:
        """The fields' columns; only objects that hold one of them are touched."""
        wanted, deadline = handle.wanted(fields), self._directory.deadline()
        if not wanted:
            return {}
        if not len(handle):
            return {field.name: decode(field, (), 0) for field in wanted}
        places = locate(handle.row_ids)
        names = [field.name for field in wanted]
        found = self._directory.ask("find", _rows_of(places), names, deadline=deadline)
        if isinstance(found, Missing):
            raise RowsGone(
                f"{found.count} of {len(set(handle.row_ids))} rows are not here, the first is {found.first}\n"
                "  they were cleared, or put into another transport"
            )
        chunks = self._chunks(found, places, deadline)
        return {
            field.name: decode(field, [chunk.piece(field.name) for chunk in chunks], len(handle), copy=copy)
            for field in wanted
        }

    def clear(self, handle: RowHandle) -> None:
        """Forget rows; a chunk's memory is freed with its last row."""
        if len(handle):
            self._ask("clear", _rows_of(locate(handle.row_ids)))

    def clear_partition(self, partition: str) -> None:
        """Forget the rows of a partition."""
        self._ask("clear_partition", partition)

    def stats(self) -> TransportStats:
        """Rows that live anywhere in the cluster, and the bytes of chunks with such."""
        stats: TransportStats = self._ask("stats")
        return stats

    def close(self) -> None:
        """End the directory, and with it all rows, where this process started it."""
        if self._is_owner and not self._directory.is_forked:
            ray = self._directory.ray()
            if ray.is_initialized():
                ray.kill(self._directory.actor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (type(self), self._name, self._namespace, self.config)

    def _pack(self, columns: Mapping[str, Column], num_rows: int, partition: str) -> tuple[Manifest, list[Group]]:
        encoded = [encode(name, column, num_rows) for name, column in columns.items()]
        sizes = [one.num_bytes for one in encoded]
        shared = [one for one, size in zip(encoded, sizes) if size < self._split_bytes]
        large = [one for one, size in zip(encoded, sizes) if size >= self._split_bytes]
        stored: dict[str, StoredColumn] = {}
        groups: list[Group] = []
        for members in ([shared] if shared else []) + [[one] for one in large]:
            buffers: list[Bytes] = []
            for one in members:
                end = len(buffers) + len(one.buffers)
                stored[one.field.name] = StoredColumn(one.field, one.layout, len(groups), len(buffers), end)
                buffers += one.buffers
            groups.append([cut(buffer) for buffer in buffers])
        chunk = f"{self._prefix}.{next(self._puts)}"
        in_order = {one.field.name: stored[one.field.name] for one in encoded}
        places = {name: column.group for name, column in in_order.items()}
        return Manifest(chunk, partition, num_rows, sum(sizes), places, pickle.dumps(in_order)), groups

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._directory.ask(method, *arguments, deadline=self._directory.deadline())

    def _chunks(self, found: Mapping[str, Found], places: Mapping[str, Places], deadline: float) -> list[_Chunk]:
        keys = [(name, group) for name, one in found.items() for group in one.groups]
        values = self._directory.fetch([found[name].groups[group] for name, group in keys], deadline)
        groups: dict[str, dict[int, Group]] = {name: {} for name in found}
        for (name, group), value in zip(keys, values):
            groups[name][group] = value
        return [_Chunk(pickle.loads(one.columns), groups[name], places[name]) for name, one in found.items()]


@dataclass(frozen=True)
class _Chunk:
    """What a reader has of a put: its columns, the buffers of groups it asked for, and which rows go where."""

    columns: Mapping[str, StoredColumn]
    groups: Mapping[int, Group]
    places: Places

    def piece(self, name: str) -> Piece:
        """A column's rows."""
        stored, places = self.columns[name], self.places
        buffers = [joined(pieces) for pieces in self.groups[stored.group][stored.first : stored.end]]
        return Piece(stored.layout, buffers, places.rows, places.positions)


def _rows_of(places: Mapping[str, Places]) -> dict[str, bytes]:
    return {name: one.row_bytes() for name, one in places.items()}


def _handle(manifest: Manifest) -> RowHandle:
    columns: Mapping[str, StoredColumn] = pickle.loads(manifest.columns)
    return RowHandle(row_ids_of(manifest.chunk, range(manifest.num_rows)), tuple(one.field for one in columns.values()))


def _attached(cls: type[RayTransport], name: str, namespace: str, config: RayTransportConfig) -> RayTransport:
    ray = _initialised_ray()
    transport = cls.__new__(cls)
    transport.config, transport._name, transport._namespace = config, name, namespace
    try:
        directory = ray.get_actor(name, namespace=namespace)
    except ValueError as error:
        raise directory_lost(error) from error
    transport._attach(directory, is_owner=False)
    return transport


def _initialised_ray() -> Any:
    import ray

    if not ray.is_initialized():
        raise RollError("the ray transport needs Ray, and Ray has not been started\n  try: ray.init() before")
    return ray


def _num_nodes() -> int:
    import ray

    return sum(bool(node["Alive"]) for node in ray.nodes())
