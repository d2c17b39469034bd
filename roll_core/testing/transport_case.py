"""What tests of a transport start from: one transport for all of a class, and rows that are cleared after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch

from roll_core.testing.contract import Contract, within
from roll_core.transport import RowHandle, Transport

if TYPE_CHECKING:
    from roll_core.transport.base import Column


class TransportCase(Contract):
    """A transport under test."""

    transport_class: ClassVar[type[Transport]]
    config: ClassVar[Mapping[str, Any]] = {}
    """Keys of `backend_config`."""
    ray_cpus: ClassVar[int] = 4
    """Logical CPUs of the private Ray that is started where the transport reaches workers and none runs yet."""
    deadline_s: ClassVar[float] = 60.0
    """No single call may take longer."""

    def make(self) -> Transport:
        """A new, empty transport, as the driver of a run makes it."""
        given = type(self).transport_class
        return given(given.Config(**self.config))  # type: ignore[call-arg]

    @pytest.fixture(scope="class")
    @classmethod
    def shelf(cls) -> Iterator[Shelf]:
        """The transport of a class's tests, made when first needed and closed at the end."""
        starts_ray = cls.transport_class.reaches_workers and _start_ray(cls.ray_cpus)
        shelf = Shelf(cls().make)
        yield shelf
        shelf.close()
        if starts_ray:
            import ray

            ray.shutdown()

    @pytest.fixture
    def transport(self, shelf: Shelf) -> Transport:
        """The transport under test; other tests use it too."""
        return shelf.transport()

    @pytest.fixture
    def put(self, transport: Transport) -> Iterator[Callable[..., RowHandle]]:
        """Puts rows that are cleared when the test ends."""
        handles: list[RowHandle] = []

        def put_rows(columns: Mapping[str, Column], num_rows: int, **options: Any) -> RowHandle:
            handle = within(self.deadline_s, "put", lambda: transport.put(columns, num_rows, **options))
            handles.append(handle)
            return handle

        yield put_rows
        for handle in handles:
            transport.clear(handle)

    def _get(self, transport: Transport, handle: RowHandle, fields: Sequence[str] | None = None) -> dict[str, Column]:
        return within(self.deadline_s, "get", lambda: transport.get(handle, fields))

    def _skip_unless_it_reaches_workers(self) -> None:
        if not type(self).transport_class.reaches_workers:
            pytest.skip(f"{type(self).transport_class.__name__} serves one process only (reaches_workers is False)")

    def _in_worker(self, function: Callable[..., Any], *arguments: Any) -> Any:
        import ray

        return ray.get(ray.remote(num_cpus=0)(function).remote(*arguments), timeout=self.deadline_s)


class Shelf:
    """One transport for many tests, as making one may take a while; made anew after it was closed."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self._make = make
        self._transport: Transport | None = None

    def transport(self) -> Transport:
        """The transport."""
        if self._transport is None:
            self._transport = self._make()
        return self._transport

    def close(self) -> None:
        """Close it; the next test gets a new one."""
        transport, self._transport = self._transport, None
        if transport is not None:
            within(60.0, "close", transport.close)


def _start_ray(num_cpus: int) -> bool:
    import ray

    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=num_cpus, **options)
    return True


def picked(handle: RowHandle, rows: Sequence[int]) -> RowHandle:
    """Some rows of a handle, in this order."""
    return replace(handle, row_ids=tuple(handle.row_ids[row] for row in rows))


def objects(*values: Any) -> Any:
    """An object column of these values."""
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        column[row] = value
    return column


def tensor(columns: Mapping[str, Column], name: str) -> torch.Tensor:
    """A column that must have come back as a tensor."""
    column = columns[name]
    assert isinstance(column, torch.Tensor), f"the tensor column '{name}' came back as a {type(column).__name__}"
    return column


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit, NaNs included."""
    return torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))
