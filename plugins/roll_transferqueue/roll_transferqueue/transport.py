"""TransferQueue behind roll-core's contract: rows in storage units, a controller that knows where.

Keys are private to each put, so that nothing is ever overwritten; a get that finds fewer rows or fields than asked is
an error, where TransferQueue itself gives what it has; clears name each key once (before 0.1.7 a key named twice was
freed twice, and two later rows shared one place).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pydantic import BaseModel

from roll_core.transport import CapacityError, RowHandle, RowsGone, Transport, TransportStats
from roll_transferqueue import service as processes
from roll_transferqueue.columns import column_of, num_rows_of, row_bytes, schema_and_fields
from roll_transferqueue.config import TransferQueueConfig
from roll_transferqueue.service import Service

if TYPE_CHECKING:
    from roll_core.transport.base import Column

MESSAGE_BYTES = 4 * 2**30 - 2**20
"""What one message to a storage unit can hold: lengths in it have 32 bits."""
DEFAULT_PARTITION = "roll"
"""TransferQueue knows no rows without a partition."""


class TransferQueueTransport(Transport):
    """Starts TransferQueue on the driver. Pickled, it is a client of it in another process, also in a forked one."""

    Config: ClassVar[type[BaseModel]] = TransferQueueConfig

    @classmethod
    def num_cpus(cls, config: BaseModel) -> int:
        """One per process of TransferQueue."""
        return TransferQueueConfig.model_validate(config.model_dump()).num_processes

    def __init__(self, config: BaseModel | None = None) -> None:
        settings = TransferQueueConfig.model_validate((config or TransferQueueConfig()).model_dump())
        self.service = processes.start(settings)
        self._owner = os.getpid()

    def put(self, columns: Mapping[str, Column], num_rows: int, *, partition: str = "") -> RowHandle:
        """Send each storage unit its rows; it keeps them in its own memory."""
        schema, fields, num_bytes = schema_and_fields(columns, num_rows)
        if not num_rows:
            return RowHandle((), schema)
        self._check_size(num_rows, num_bytes)
        partition = partition or DEFAULT_PARTITION
        prefix = uuid.uuid4().hex[:12]
        keys = [f"{prefix}.{row}" for row in range(num_rows)]
        try:
            self.service.call("put", lambda client: _put(client, keys, partition, fields, num_bytes))
        except RuntimeError as error:
            self.service.call("clear", lambda client: _clear(client, keys, partition))
            raise CapacityError(
                f"TransferQueue did not take {num_rows} rows of {num_bytes} bytes\n  cause: {error}"
                "\n  try: a larger total_storage_size, if that is the cause; smaller puts"
            ) from error
        return RowHandle(tuple(f"{partition}:{key}" for key in keys), schema)

    def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> dict[str, Column]:
        """The fields' rows, each fetched once. They are always private."""
        wanted = handle.wanted(fields)
        if not wanted:
            return {}
        if not len(handle):
            return {one.name: column_of(one, (), ()) for one in wanted}
        stored = [one.name for one in wanted if one.kind == "object" or row_bytes(one)]
        partitions, order = _by_partition(handle.row_ids)
        parts = []
        for partition, keys in partitions.items():
            found = self.service.call("get", lambda client: _get(client, keys, partition, stored))  # noqa: B023
            if found is None:
                raise RowsGone(
                    f"some of {len(set(handle.row_ids))} rows are not here, one of {partition}:{keys[0]} and others"
                    "\n  they were cleared, or put into another transport"
                )
            parts.append(found)
        return {one.name: column_of(one, _joined([part.get(one.name) for part in parts]), order) for one in wanted}

    def clear(self, handle: RowHandle) -> None:
        """Free rows. A storage unit frees memory when all rows of a put that it holds are cleared."""
        if len(handle):
            for partition, keys in _by_partition(handle.row_ids)[0].items():
                self.service.call("clear", lambda client: _clear(client, keys, partition))  # noqa: B023

    def clear_partition(self, partition: str) -> None:
        """Free the rows of a partition."""
        name = partition or DEFAULT_PARTITION
        self.service.call("clear", lambda client: _clear(client, list(_keys(client, name)), name))

    def stats(self) -> TransportStats:
        """Rows that live, and their bytes as they were put."""
        listed = self.service.call("stats", lambda client: client.kv_list(None))
        tags = [tag for partition in listed.values() for tag in partition.values()]
        return TransportStats(len(tags), sum(int(tag["bytes"]) for tag in tags))

    def close(self) -> None:
        """End its processes where this process started them."""
        if self._owner == os.getpid():
            processes.stop(self.service)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (type(self), self.service)

    def _check_size(self, num_rows: int, num_bytes: int) -> None:
        settings = self.service.settings.backend
        units = settings.SimpleStorage.num_data_storage_units if settings.storage_backend == "SimpleStorage" else 1
        share = num_bytes * -(-num_rows // units) // num_rows
        if share > MESSAGE_BYTES:
            raise CapacityError(
                f"a put of {num_bytes / 2**30:.1f} GiB is {share / 2**30:.1f} GiB per storage unit, "
                f"and a message of TransferQueue holds less than 4 GiB"
                "\n  try: a larger num_data_storage_units in transfer_backend.backend_config, or smaller puts"
            )


def _attached(cls: type[TransferQueueTransport], service: Service) -> TransferQueueTransport:
    transport = cls.__new__(cls)
    transport.service, transport._owner = service, -1
    return transport


def _put(client: Any, keys: list[str], partition: str, fields: dict[str, torch.Tensor], num_bytes: int) -> None:
    from tensordict import TensorDict

    meta = client.kv_retrieve_meta(keys=keys, partition_id=partition, create=True)
    each, rest = divmod(num_bytes, len(keys))
    meta.update_custom_meta([{"bytes": each + (row < rest)} for row in range(len(keys))])
    client.put(TensorDict(fields, batch_size=len(keys)), meta)


def _get(client: Any, keys: list[str], partition: str, names: list[str]) -> dict[str, Any] | None:
    """The fields' rows in the order of the keys; None where rows are missing."""
    try:
        meta = client.kv_retrieve_meta(keys=keys, partition_id=partition, create=False)
    except RuntimeError:
        # Before 0.1.7 an unknown key is an error that says no more than others do.
        alive = _keys(client, partition)
        if all(key in alive for key in keys):
            raise
        return None
    if meta.size != len(keys):
        return None
    if not names:
        return {}
    data = client.get_data(meta.select_fields(names))
    found = {name: data[name] for name in names if name in data.keys()}  # noqa: SIM118, a TensorDict iterates over rows
    if len(found) < len(names) or any(num_rows_of(one) != len(keys) for one in found.values()):
        return None
    return found


def _clear(client: Any, keys: list[str], partition: str) -> None:
    # Of keys of which one is unknown, 0.1.6 clears none.
    alive = _keys(client, partition)
    known = [key for key in keys if key in alive]
    if known:
        client.clear_samples(client.kv_retrieve_meta(keys=known, partition_id=partition, create=False))


def _keys(client: Any, partition: str) -> Mapping[str, Any]:
    keys: Mapping[str, Any] = client.kv_list(partition).get(partition) or {}
    return keys


def _by_partition(row_ids: Sequence[str]) -> tuple[dict[str, list[str]], list[int]]:
    """Keys of each partition, each once; and for each row asked, where it is among all of those."""
    partitions: dict[str, dict[str, int]] = {}
    places = []
    for row_id in row_ids:
        partition, _colon, key = row_id.rpartition(":")
        keys = partitions.setdefault(partition, {})
        places.append((partition, keys.setdefault(key, len(keys))))
    starts, position = {}, 0
    for partition, keys in partitions.items():
        starts[partition] = position
        position += len(keys)
    order = [starts[partition] + place for partition, place in places]
    return {partition: list(keys) for partition, keys in partitions.items()}, order


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if any(part is None for part in parts):
        return None
    return [row for part in parts for row in (part.unbind() if isinstance(part, torch.Tensor) else part)]
