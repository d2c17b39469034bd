"""Python objects as bytes: pickles, and beside them the arrays and tensors inside the objects, as they are.

A frozen object is: its number of buffers and where each begins and ends, int64 (the pickle counts as the first);
then the buffers, each beginning at a multiple of ALIGNMENT. Frozen cells are many objects at once, for one reader: all
their pickles, and all their buffers, follow each other. Thawed without copying, tensors are views.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

ALIGNMENT = 64
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def freeze(value: Any) -> list[Bytes]:
    """Pieces of bytes that make up the object, one after another.

    Raises:
        PicklingError, AttributeError, TypeError: what pickle says about objects that cannot travel.
    """
    buffers: list[Bytes] = []
    stream = io.BytesIO()
    _Freezer(stream, lambda buffer: buffers.append(np.frombuffer(buffer.raw(), np.uint8))).dump(value)
    parts = [np.frombuffer(stream.getbuffer(), np.uint8), *buffers]
    table = np.empty(1 + 2 * len(parts), np.int64)
    table[0] = len(parts)
    pieces, position = [table.view(np.uint8)], table.nbytes
    for index, part in enumerate(parts):
        padding = -position % ALIGNMENT
        pieces += [np.zeros(padding, np.uint8), part]
        table[1 + 2 * index] = position + padding
        position += padding + len(part)
        table[2 + 2 * index] = position
    return pieces


def thaw(data: Bytes, *, copy: bool = True) -> Any:
    """The object of these bytes; its arrays and tensors are private, or views of them."""
    count = int(data[:8].view(np.int64)[0])
    bounds = data[8 : 8 + 16 * count].view(np.int64).reshape(count, 2).tolist()
    parts = [data[start:end] for start, end in bounds]
    buffers = [bytearray(part.data) if copy else part.data for part in parts[1:]]
    return pickle.loads(parts[0].data, buffers=buffers)


def freeze_cells(cells: Sequence[Any]) -> list[Bytes]:
    """Objects as: pickles | where each begins, int64[n+1] | the arrays and tensors inside them | which of those are
    each object's, int64[n+1] | where each of those begins and ends, int64[m, 2].

    Raises:
        PicklingError, AttributeError, TypeError: as of `freeze`.
    """
    stream, arrays = io.BytesIO(), list[Bytes]()
    freezer = _Freezer(stream, lambda buffer: arrays.append(np.frombuffer(buffer.raw(), np.uint8)))
    starts, firsts = [0], [0]
    for cell in cells:
        freezer.dump(cell)
        # Each object is thawed alone, and equal parts of two must not become one.
        freezer.clear_memo()
        starts.append(stream.tell())
        firsts.append(len(arrays))
    bounds = np.zeros((len(arrays), 2), np.int64)
    pieces, position = [np.empty(0, np.uint8)], 0
    for index, array in enumerate(arrays):
        padding = -position % ALIGNMENT
        pieces += [np.zeros(padding, np.uint8), array]
        bounds[index] = position + padding, position + padding + len(array)
        position += padding + len(array)
    tables = [np.array(starts, np.int64), np.array(firsts, np.int64), bounds.reshape(-1)]
    offsets, owners, places = (table.view(np.uint8) for table in tables)
    return [np.frombuffer(stream.getbuffer(), np.uint8), offsets, np.concatenate(pieces), owners, places]


def thaw_cells(buffers: Sequence[Bytes], rows: Iterable[int], *, copy: bool = True) -> list[Any]:
    """Some of the objects that `freeze_cells` made bytes of."""
    pickles, arrays = buffers[0].data, buffers[2].data
    offsets, owners = (buffers[index].view(np.int64).tolist() for index in (1, 3))
    bounds = buffers[4].view(np.int64).reshape(-1, 2).tolist()
    cells = []
    for row in rows:
        mine = [arrays[start:end] for start, end in bounds[owners[row] : owners[row + 1]]]
        given = [bytearray(one) for one in mine] if copy else mine
        cells.append(pickle.loads(pickles[offsets[row] : offsets[row + 1]], buffers=given))
    return cells


def tensor_bytes(tensor: torch.Tensor) -> Bytes:
    """A tensor's values as bytes, sharing memory with it where it is contiguous and on the processor."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    array: Bytes = plain.view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
    return array


def tensor_of(data: Bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor of these bytes, sharing their memory."""
    if data.size == 0:
        return torch.empty(shape, dtype=dtype)
    if data.ctypes.data % dtype.itemsize:
        data = data.copy()
    return torch.from_numpy(data if data.flags.writeable else np.asarray(_Unlocked(data))).view(dtype).reshape(shape)


class _Unlocked:
    """Says that read-only memory is writable. torch knows no read-only tensors and would warn about each."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        interface = data.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


class _Freezer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, keep: Callable[[pickle.PickleBuffer], None]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=keep)

    def reducer_override(self, value: Any) -> Any:
        # torch's own way pickles the whole storage that a tensor is a view of, and in the stream.
        if type(value) is torch.Tensor and value.layout == torch.strided and not value.is_quantized:
            return _thaw_tensor, (pickle.PickleBuffer(tensor_bytes(value).data), str(value.dtype), tuple(value.shape))
        return NotImplemented


def _thaw_tensor(buffer: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    return tensor_of(np.frombuffer(buffer, np.uint8), getattr(torch, dtype.removeprefix("torch.")), shape)
