"""Keys and values of all running requests in one block of memory, aligned at their right ends.

Columns: every row's last token is in column `end - 1`, its first in `starts[row]`. So all rows write the same
column at each step, and what attention reads is no wider than the longest row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from roll_core.inference.decoder import Compaction

SPARE_COLUMNS = 64
"""The least room added when the block is full; beyond it the room grows with the width."""

LARGE_BYTES = 4 << 20
"""With so much room or more, plain processors keep rows without spare columns between them: see `_num_columns`."""

DENSE_COLUMNS = 4
"""Columns for which rows that are kept without spare ones have room, so that not every step moves them."""

LARGEST_DENSE_COLUMN = 256
"""Bytes of a head's column beyond which even one spare column is a gap."""

ALIGNMENT = 16
"""Entries to which the parts of the memory are aligned, so that results do not depend on how large it is."""


@dataclass(frozen=True)
class Columns:
    """One step's views: where the new keys and values go, and all of them to read.

    `write` holds 2 * layers tensors [N, H, D], `read` as many of [N, H, W, D]; keys and values alternate.
    """

    write: tuple[torch.Tensor, ...]
    read: tuple[torch.Tensor, ...]


class KeyValueCache:
    """Rows that enter, grow by one column at a time, and leave.

    Padding columns always hold finite numbers: attention gives them weight 0, and 0 times NaN is NaN.
    """

    def __init__(self, num_layers: int, num_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device):
        self.num_layers, self.num_heads, self.head_dim = num_layers, num_heads, head_dim
        self.is_plain_processor = device.type == "cpu"
        # One part for the keys and one for the values of each layer. Rows move in memory from part to part, for which
        # one more is free.
        num_parts = 2 * num_layers + (1 if self.is_plain_processor else 0)
        self.memory = torch.empty(num_parts, 0, dtype=dtype, device=device)
        self.clear()

    def clear(self) -> None:
        """Forget all rows; the memory stays for the next ones, laid out as if it were new."""
        self.first_part = 0
        self.data = self._view(0, 0)
        self.starts: list[int] = []
        self.first = self.end = 0
        self.columns_changed()

    def empty(self) -> KeyValueCache:
        """Another cache of this kind, which holds no memory."""
        memory = self.memory
        return KeyValueCache(self.num_layers, self.num_heads, self.head_dim, memory.dtype, memory.device)

    def columns_changed(self) -> None:
        """Rows came or went, so positions and mask must be made again."""
        self._positions: torch.Tensor | None = None
        self._positions_end = 0
        self._mask: torch.Tensor | None = None

    @property
    def num_rows(self) -> int:
        """Running rows."""
        return len(self.starts)

    def enter(self, prompts: Sequence[torch.Tensor]) -> None:
        """Add a row for each prompt's keys and values [2 * layers, H, P, D]; equal neighbours are copied at once."""
        old_rows, longest = self.num_rows, max(prompt.shape[2] for prompt in prompts)
        if not old_rows:
            self.first = self.end = 0
        self._reserve(old_rows + len(prompts), longest, 1)
        first = min(self.first, self.end - longest) if old_rows else self.end - longest
        self.data[:, :old_rows, :, first : self.first] = 0
        self.first = first
        start = 0
        while start < len(prompts):
            prompt, stop = prompts[start], start + 1
            while stop < len(prompts) and prompts[stop] is prompt:
                stop += 1
            rows, column = slice(old_rows + start, old_rows + stop), self.end - prompt.shape[2]
            self.data[:, rows, :, first:column] = 0
            self.data[:, rows, :, column : self.end] = prompt.unsqueeze(1)
            self.starts += [column] * (stop - start)
            start = stop
        self.columns_changed()

    def leave(self, compaction: Compaction) -> None:
        """Close the gaps of rows that ended."""
        if compaction.targets:
            targets, sources = list(compaction.targets), list(compaction.sources)
            live = self.data[:, :, :, self.first : self.end]
            live[:, targets] = live[:, sources]
        self.starts = [self.starts[row] for row in compaction.order()]
        self.first = min(self.starts, default=self.end)
        self.columns_changed()

    def next_columns(self) -> Columns:
        """Room for one more token of every row."""
        if self.end == self.data.shape[3]:
            self._reserve(self.num_rows, 0, 1)
        self.end += 1
        rows = self.data[:, : self.num_rows]
        return Columns(rows[:, :, :, self.end - 1].unbind(0), rows[:, :, :, self.first : self.end].unbind(0))

    def positions(self) -> torch.Tensor:
        """Position of the newest token of every row, int64 [N]; valid until the next call."""
        if self._positions is None:
            starts = torch.tensor(self.starts, device=self.memory.device)
            self._positions = self.end - 1 - starts
            self._positions_end = self.end
        elif self._positions_end != self.end:
            self._positions += self.end - self._positions_end
            self._positions_end = self.end
        return self._positions

    def mask(self) -> torch.Tensor | None:
        """What to add to attention scores, [N, 1, 1, W]: -inf before a row's start. None where none is padded."""
        if self.first == max(self.starts):
            return None
        width = self.end - self.first
        if self._mask is None or self._mask.shape[1] < width:
            device = self.memory.device
            columns = torch.arange(self.first, self.end + SPARE_COLUMNS, device=device)
            padded = columns < torch.tensor(self.starts, device=device).unsqueeze(1)
            self._mask = torch.zeros(padded.shape, dtype=self.memory.dtype, device=device)
            self._mask.masked_fill_(padded, float("-inf"))
        return self._mask[:, None, None, :width]

    def _reserve(self, num_rows: int, left: int, right: int) -> None:
        """Make room for rows, for prompts of `left` columns, and for `right` columns beyond the end."""
        if num_rows <= self.data.shape[1] and left <= self.end and self.end + right <= self.data.shape[3]:
            return
        width = self.end - self.first
        end = max(width, left)
        old = self.data[:, : self.num_rows, :, self.first : self.end]
        self._lay_out(num_rows, end, right)
        order = range(2 * self.num_layers if self.num_rows else 0)
        # The part beside the free one moves first.
        for index in reversed(order) if self.first_part else order:
            self.data[index, : self.num_rows, :, end - width : end] = old[index]
        shift = end - self.end
        self.starts = [start + shift for start in self.starts]
        self._positions_end += shift
        self.first, self.end = end - width, end

    def _lay_out(self, num_rows: int, end: int, right: int) -> None:
        """Point `data` at other memory: at the neighbouring parts where these are free and large enough."""
        column = num_rows * self.num_heads * self.head_dim
        roomy = end + right + max(SPARE_COLUMNS, end)
        num_columns = self._num_columns(column, roomy, end + right)
        has_place = self.is_plain_processor or not self.num_rows
        if has_place and column * num_columns <= self.memory.shape[1]:
            self.first_part = 1 - self.first_part if self.num_rows else 0
        else:
            self.memory = self.memory.new_empty(len(self.memory), -(-column * roomy // ALIGNMENT) * ALIGNMENT)
            self.first_part = 0
        self.data = self._view(num_rows, num_columns)

    def _num_columns(self, column: int, roomy: int, needed: int) -> int:
        """Columns of the next layout, of `column` entries each.

        Once a step's keys and values come from main memory, plain processors fetch them ahead only where they follow
        one another: 256 bytes between the rows of heads do no harm, with 512 attention takes up to three times as
        long (410 and 1,170 microseconds for 256 rows of 2 heads of 32, 48 columns). Moving all rows every few steps
        costs a quarter of what it saves.
        """
        entry_bytes = self.memory.element_size()
        is_small = 2 * self.num_layers * column * roomy * entry_bytes < LARGE_BYTES
        if not self.is_plain_processor or is_small or self.head_dim * entry_bytes > LARGEST_DENSE_COLUMN:
            return roomy
        # Longer rows are dearer to move, and a gap costs them less.
        return needed - 1 + max(DENSE_COLUMNS, needed // 16)

    def _view(self, num_rows: int, num_columns: int) -> torch.Tensor:
        """The parts in use, [2 * layers, num_rows, H, num_columns, D]."""
        parts = self.memory[self.first_part : self.first_part + 2 * self.num_layers]
        shape = (num_rows, self.num_heads, num_columns, self.head_dim)
        return parts[:, : torch.Size(shape).numel()].view(len(parts), *shape)
