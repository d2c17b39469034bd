"""Moving batches between processes of one node: pickled torch tensors, the transport `ray`, TransferQueue.

Every consumer is another process and reads every byte of what it asked for; times are wall-clock milliseconds with
one actor call, medians of one run. Beside them: a copy of the batch's bytes by one thread into memory that was used
before, for puts as for reads; and what is simplest in Ray, numpy arrays in one object. About three minutes on two
cores, most of them TransferQueue's start.

Before anything is measured, the object store is written once, and read by every consumer: memory that nobody touched
yet costs ten times a copy, and a run has touched all of it after some steps.

    python benchmarks/transport.py [--repeats 8] [--units 1,2,8] [--payloads rlvr,images,dialogues]
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
import torch
from machine import busy_cores, write_record

from roll_core.transport import RowHandle, Transport
from roll_core.transport.ray_store import RayTransport, RayTransportConfig

STORE_BYTES = 3 * 2**30
COLD_REPEATS = 2
"""The first touch of memory costs ten times a copy, and is not what a long run sees."""
NUM_SHARDS = 4
PATTERNS = ("put", "all fields", "2 fields", "a quarter each")

Columns = dict[str, Any]


@dataclass(frozen=True)
class Payload:
    """A batch, and the two fields that one of its consumers needs."""

    columns: Columns
    num_rows: int
    two: tuple[str, str]

    @property
    def num_bytes(self) -> int:
        """Bytes of its values."""
        return sum(_num_bytes(column) for column in self.columns.values())


def rlvr() -> Payload:
    """256 rows of 4096 tokens: four fields of int64 and four of float32, 48 MiB."""
    generator = torch.Generator().manual_seed(0)
    columns: Columns = {f"ids_{n}": torch.randint(0, 50_000, (256, 1024), generator=generator) for n in range(4)}
    columns = {name: column.repeat(1, 4) for name, column in columns.items()}
    columns |= {f"values_{n}": torch.rand(256, 4096, generator=generator) for n in range(4)}
    return Payload(columns, 256, ("ids_0", "values_0"))


def images() -> Payload:
    """64 rows with an image of 3 x 512 x 512 in float32 each, 197 MiB."""
    generator = torch.Generator().manual_seed(0)
    columns: Columns = {"pixels": torch.rand(64, 3, 512, 512, generator=generator)}
    columns |= {f"ids_{n}": torch.randint(0, 50_000, (64, 2048), generator=generator) for n in range(3)}
    columns |= {f"mask_{n}": torch.ones(64, 2048, dtype=torch.uint8) for n in range(3)}
    columns["prompt"] = _objects([f"What is in picture {row}? " * 20 for row in range(64)])
    return Payload(columns, 64, ("ids_0", "ids_1"))


def dialogues() -> Payload:
    """512 rows with a dialogue of 20 messages and a log of 48 kB each, 48 MiB."""
    rows = range(512)
    said = [[{"role": "user", "content": f"{row} {turn} " * 300} for turn in range(20)] for row in rows]
    columns: Columns = {"messages": _objects(said), "log": _objects([f"{row:06d} " * 7000 for row in rows])}
    columns |= {f"score_{n}": torch.rand(512, 2) for n in range(6)}
    return Payload(columns, 512, ("score_0", "score_1"))


PAYLOADS: dict[str, Callable[[], Payload]] = {"rlvr": rlvr, "images": images, "dialogues": dialogues}


class Pickled:
    """What is compared with: the whole batch, torch tensors and all, in one object of Ray."""

    name = "ray.put of the batch"

    def put(self, columns: Columns, num_rows: int) -> Any:
        """A reference, in a list so that Ray does not fetch it for an argument."""
        return [ray.put(columns)]

    def read(self, token: Any, fields: Sequence[str] | None, rows: slice) -> Columns:
        """The fields' rows."""
        columns = ray.get(token[0])
        return {name: columns[name][rows] for name in fields or columns}

    def clear(self, token: Any) -> None:
        """Ray frees it with the last reference."""
        token.clear()


class Plain(Pickled):
    """Numpy arrays in one object: no tensor is pickled, and there are no rows to look up, to free or to wait for."""

    name = "ray.put of numpy arrays"

    def put(self, columns: Columns, num_rows: int) -> Any:
        """As of `Pickled`."""
        return super().put({name: _as_numpy(column) for name, column in columns.items()}, num_rows)


class Through:
    """A transport, read without copies where it can be."""

    def __init__(self, name: str, transport: Transport, *, copy: bool) -> None:
        self.name, self.transport, self.copy = name, transport, copy

    def put(self, columns: Columns, num_rows: int) -> Any:
        """A handle."""
        return self.transport.put(columns, num_rows)

    def read(self, token: RowHandle, fields: Sequence[str] | None, rows: slice) -> Mapping[str, Any]:
        """The fields' rows."""
        return self.transport.get(replace(token, row_ids=token.row_ids[rows]), fields, copy=self.copy)

    def clear(self, token: RowHandle) -> None:
        """Free the rows."""
        self.transport.clear(token)


@ray.remote(num_cpus=0)
class Consumer:
    """Another process."""

    def take(self, method: Any) -> None:
        """What to read with."""
        self.method = method

    def look(self, array: np.ndarray[Any, Any]) -> int:
        """Read one byte of every page."""
        return int(array[::4096].sum())

    def read(self, token: Any, fields: Sequence[str] | None, start: int, stop: int) -> int:
        """Read every byte."""
        return touch(self.method.read(token, fields, slice(start, stop)))


def touch(columns: Mapping[str, Any]) -> int:
    """A sum over all bytes of tensors, and the length of everything else."""
    return sum(_sum(column) for column in columns.values())


def measure(method: Any, payload: Payload, consumers: Sequence[Any], repeats: int) -> dict[str, float]:
    """Median milliseconds of each pattern."""
    ray.get([consumer.take.remote(method) for consumer in consumers])
    times: dict[str, list[float]] = {pattern: [] for pattern in PATTERNS}
    count = payload.num_rows
    for _ in range(repeats + COLD_REPEATS):
        start = time.perf_counter()
        token = method.put(payload.columns, count)
        times["put"].append(time.perf_counter() - start)
        calls: dict[str, Callable[[], Any]] = {
            "all fields": lambda: [consumers[0].read.remote(token, None, 0, count)],  # noqa: B023
            "2 fields": lambda: [consumers[1].read.remote(token, list(payload.two), 0, count)],  # noqa: B023
            "a quarter each": lambda: [
                consumer.read.remote(token, None, n * count // NUM_SHARDS, (n + 1) * count // NUM_SHARDS)  # noqa: B023
                for n, consumer in enumerate(consumers)
            ],
        }
        for pattern, call in calls.items():
            start = time.perf_counter()
            ray.get(call())
            times[pattern].append(time.perf_counter() - start)
        method.clear(token)
    return {pattern: 1000 * statistics.median(found[COLD_REPEATS:]) for pattern, found in times.items()}


def limits(payload: Payload, repeats: int) -> dict[str, float]:
    """Milliseconds of one copy of all bytes, and of those of the two fields, into memory that was used before."""
    every, two = (
        _copying(payload.columns.values(), repeats),
        _copying([payload.columns[n] for n in payload.two], repeats),
    )
    return {"put": every, "all fields": every, "2 fields": two, "a quarter each": every}


def _copying(columns: Iterable[Any], repeats: int) -> float:
    sources = [np.ones(_num_bytes(column), np.uint8) for column in columns]
    targets = [np.ones_like(source) for source in sources]
    times = []
    for _ in range(repeats + COLD_REPEATS):
        start = time.perf_counter()
        for source, target in zip(sources, targets):
            np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times[COLD_REPEATS:])


def touch_store(consumers: Sequence[Any]) -> None:
    """Write three quarters of the object store once, and let every consumer read it; Ray spills beyond four fifths."""
    part = np.ones(STORE_BYTES // 32, np.uint8)
    held = [ray.put(part) for _ in range(24)]
    for reference in held:
        ray.get([consumer.look.remote(reference) for consumer in consumers])


def transfer_queue(units: int) -> Transport:
    """A TransferQueue with this many storage units."""
    from roll_transferqueue.transport import TransferQueueTransport

    given = {"backend": {"SimpleStorage": {"num_data_storage_units": units}}}
    return TransferQueueTransport(TransferQueueTransport.Config.model_validate(given))


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--units", default="1,2,8")
    parser.add_argument("--payloads", default=",".join(PAYLOADS))
    given = parser.parse_args()
    print(f"{busy_cores():.1f} cores busy before the start; medians of {given.repeats} repeats")
    payloads = {name: PAYLOADS[name]() for name in given.payloads.split(",")}
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=16, object_store_memory=STORE_BYTES, **options)
    consumers = [Consumer.remote() for _ in range(NUM_SHARDS)]
    touch_store(consumers)
    tables: dict[str, dict[str, dict[str, float]]] = {name: {} for name in payloads}

    transport = RayTransport(RayTransportConfig())
    methods = [
        Pickled(),
        Plain(),
        Through("transport ray, views", transport, copy=False),
        Through("transport ray, private copies", transport, copy=True),
    ]
    shares = {}
    for name, payload in payloads.items():
        tables[name]["limit: memory"] = limits(payload, given.repeats)
        for method in methods:
            tables[name][method.name] = measure(method, payload, consumers, given.repeats)
        handle = transport.put(payload.columns, payload.num_rows)
        shares[name] = len(pickle.dumps(handle)) / payload.num_bytes
        transport.clear(handle)
    transport.close()
    for units in [int(text) for text in given.units.split(",") if text]:
        queue = transfer_queue(units)
        for name, payload in payloads.items():
            method = Through(f"TransferQueue, {units} units", queue, copy=True)
            tables[name][method.name] = measure(method, payload, consumers, given.repeats)
        queue.close()
    ray.shutdown()
    for name, table in tables.items():
        show(name, payloads[name], table, shares[name])
    print(f"\nrecord: {write_record('transport', ('torch', 'ray', 'TransferQueue', 'roll-core'), tables)}")


def show(name: str, payload: Payload, table: Mapping[str, Mapping[str, float]], share: float) -> None:
    """A payload's table, and its ratios beside what is wanted."""
    size = f"{payload.num_bytes / 2**20:.0f} MiB"
    print(f"\n{name}: {payload.num_rows} rows, {size}; milliseconds, put + all fields last")
    width = max(map(len, table))
    print(" " * width, *(f"{pattern:>15}" for pattern in (*PATTERNS, "put + all")))
    for method, times in table.items():
        shown = [*(times[pattern] for pattern in PATTERNS), times["put"] + times["all fields"]]
        print(method.ljust(width), *(f"{value:15.1f}" for value in shown))
    ours, private = table["transport ray, views"], table["transport ray, private copies"]
    limit = table["limit: memory"]
    pickled, plain = table[Pickled.name], table[Plain.name]
    queues = [times for method, times in table.items() if method.startswith("TransferQueue")]
    best = {pattern: min((times[pattern] for times in queues), default=float("nan")) for pattern in PATTERNS}
    for wanted, text, ratio in (
        (">= 5", "put + all, ray.put of the batch / ray", _both(pickled) / _both(ours)),
        (">= 5", "put + all, best TransferQueue / ray", _both(best) / _both(ours)),
        (">= 10", "2 fields, ray.put of the batch / ray", pickled["2 fields"] / ours["2 fields"]),
        (">= 10", "2 fields, best TransferQueue / ray", best["2 fields"] / ours["2 fields"]),
        ("<= 2", "all fields, ray / a copy of the batch", ours["all fields"] / limit["all fields"]),
        ("", "all fields, private copies / a copy", private["all fields"] / limit["all fields"]),
        ("", "put + all, ray / numpy arrays", _both(ours) / _both(plain)),
        ("", "2 fields, ray / numpy arrays", ours["2 fields"] / plain["2 fields"]),
    ):
        print(f"  {text:45} {ratio:8.1f}   {wanted and 'wanted ' + wanted}")
    print(f"  {'the handle, of the bytes':45} {share:8.2%}   wanted < 1%")


def _both(times: Mapping[str, float]) -> float:
    return times["put"] + times["all fields"]


def _sum(column: Any) -> int:
    column = _as_numpy(column)
    if column.dtype != object:
        raw = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
        return int(raw[: len(raw) // 8 * 8].view(np.uint64).sum()) + int(raw[len(raw) // 8 * 8 :].sum())
    return sum(_length(cell) for cell in column)


def _as_numpy(column: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = column.numpy() if isinstance(column, torch.Tensor) else column
    return array


def _length(cell: Any) -> int:
    return len(cell) if isinstance(cell, str) else sum(len(message["content"]) for message in cell)


def _num_bytes(column: Any) -> int:
    return column.nbytes if isinstance(column, torch.Tensor) else _sum(column)


def _objects(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        column[row] = value
    return column


if __name__ == "__main__":
    main()
