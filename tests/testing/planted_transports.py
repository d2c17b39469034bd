"""Transports that do one thing wrong."""

import itertools
import time
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from roll_demo.transport import DemoTransport

from roll_core.testing.transport_contract import TransportContract
from roll_core.transport import RowHandle, RowsGone, TransportStats
from tests.testing.planted_registry import planted


@planted("a dtype changed on the way", TransportContract, "test_every_dtype_comes_back_bit_for_bit")
class Widens(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        columns = super().get(handle, fields, **options)
        return {name: one.float() if one.dtype == torch.bfloat16 else one for name, one in columns.items()}


@planted("arrays that become tensors", TransportContract, "test_arrays_keep_their_dtype")
class Tensors(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        columns = super().get(handle, fields, **options)
        is_number = lambda one: isinstance(one, np.ndarray) and one.dtype.kind in "iuf"  # noqa: E731
        return {name: torch.from_numpy(one) if is_number(one) else one for name, one in columns.items()}


@planted("tuples that become lists", TransportContract, "test_objects_keep_value_and_type")
class Lists(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        columns = super().get(handle, fields, **options)
        for column in columns.values():
            for row, cell in enumerate(column):
                if isinstance(cell, tuple):
                    column[row] = list(cell)
        return columns


@planted("ragged rows padded to the longest", TransportContract, "test_ragged_rows_keep_lengths_and_dtypes")
class Pads(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        columns = super().get(handle, fields, **options)
        for column in columns.values():
            flat = [cell.flatten() for cell in column]
            for row, cell in enumerate(flat):
                column[row] = torch.nn.functional.pad(cell, (0, max(map(len, flat)) - len(cell)))
        return columns


@planted("rows in the order they were put", TransportContract, "test_rows_come_back_in_the_order_asked")
class Reorders(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        return super().get(RowHandle(tuple(sorted(handle.row_ids)), handle.schema), fields, **options)


@planted("a row asked twice that comes once", TransportContract, "test_any_choice_of_rows_is_that_of_a_list")
class Dedupes(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        return super().get(RowHandle(tuple(dict.fromkeys(handle.row_ids)), handle.schema), fields, **options)


@planted("a snapshot that is none", TransportContract, "test_a_put_is_a_snapshot")
class Aliases(DemoTransport):
    def put(self, columns: Any, num_rows: int, **options: Any) -> RowHandle:
        self.given = columns
        return super().put(columns, num_rows, **options)

    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        super().get(handle, fields, **options)
        return self.given


@planted("readers that share memory", TransportContract, "test_readers_do_not_see_each_others_changes")
class Caches(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        self.cache = getattr(self, "cache", {})
        if handle.row_ids not in self.cache:
            self.cache[handle.row_ids] = super().get(handle, fields, **options)
        return self.cache[handle.row_ids]


@planted("rows that stay after clear", TransportContract, "test_cleared_rows_are_gone_and_the_others_stay")
class Keeps(DemoTransport):
    def clear(self, handle: Any) -> None:
        pass


@planted("fewer rows than asked, without a word", TransportContract, "test_cleared_rows_are_gone_and_the_others_stay")
class ShortReads(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        there = tuple(row_id for row_id in handle.row_ids if row_id in self._rows)
        return super().get(RowHandle(there, handle.schema), fields, **options)


@planted("leaked rows", TransportContract, "test_nothing_leaks")
class Leaks(DemoTransport):
    def stats(self) -> TransportStats:
        found = super().stats()
        return TransportStats(found.rows + self.lost, found.num_bytes + self.lost)

    lost = 0

    def clear(self, handle: Any) -> None:
        super().clear(handle)
        self.lost += 1


@planted("an unknown field left out", TransportContract, "test_an_unknown_field_is_an_error")
class LeavesOut(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        known = None if fields is None else [name for name in fields if name in handle.fields]
        return super().get(handle, known, **options)


@planted("a refused put that leaves rows behind", TransportContract, "test_a_bad_column_stores_nothing")
class HalfPuts(DemoTransport):
    def put(self, columns: Any, num_rows: int, **options: Any) -> RowHandle:
        try:
            return super().put(columns, num_rows, **options)
        except ValueError:
            super().put({"good": columns["good"]}, num_rows, **options)
            raise


@planted("a handle that carries its rows", TransportContract, "test_a_handle_is_small_and_survives_pickling")
class FatHandles(DemoTransport):
    def put(self, columns: Any, num_rows: int, **options: Any) -> RowHandle:
        handle = super().put(columns, num_rows, **options)
        self._rows |= {f"{row_id}/{'x' * 100}": self._rows[row_id] for row_id in handle.row_ids}
        return RowHandle(tuple(f"{row_id}/{'x' * 100}" for row_id in handle.row_ids), handle.schema)


@planted("keys that are used again", TransportContract, "test_clearing_again_harms_nobody")
class ReusesKeys(DemoTransport):
    def put(self, columns: Any, num_rows: int, **options: Any) -> RowHandle:
        self._puts = itertools.count()
        return super().put(columns, num_rows, **options)


@planted("a partition that outlives its end", TransportContract, "test_a_partition_is_cleared_as_a_whole")
class KeepsPartitions(DemoTransport):
    def clear_partition(self, partition: str) -> None:
        pass


@planted("a get that never ends", TransportContract, "test_rows_come_back_in_the_order_asked", deadline_s=0.5)
class Hangs(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        time.sleep(3600)


@planted("rows that survive close", TransportContract, "test_close_frees_everything")
class StaysOpen(DemoTransport):
    def close(self) -> None:
        pass


@planted("rows that were never put made up", TransportContract, "test_rows_that_were_never_put_are_gone")
class MakesUp(DemoTransport):
    def get(self, handle: Any, fields: Any = None, **options: Any) -> Any:
        try:
            return super().get(handle, fields, **options)
        except RowsGone:
            return {field.name: torch.zeros(len(handle)) for field in handle.schema}


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


@planted("settings that nobody reads accepted", TransportContract, "test_it_is_a_transport_with_a_config")
class AcceptsAnything(DemoTransport):
    Config = Anything
