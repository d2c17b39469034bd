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
        self.memory = torch.empty(0, dtype=dtype, device=device)
        self.clear()

    def clear(self) -> None:
        """Forget all rows; the memory stays for the next ones, laid out as if it were new."""
        self.data = self.memory[:0].view(2 * self.num_layers, 0, self.num_heads, 0, self.head_dim)
        self.starts: list[int] = []
        self.first = self.end = 0
        self.columns_changed()

    def empty(self) -> KeyValueCache:
        """Another cache of this kind, which holds no memory."""
        memory = self.memory
        return KeyValueCache(self.num_layers, self.num_heads, self.head_dim, memory.dtype, memory.device)

    def columns_changed(self) -> None:
        """Rows came, went or moved, so positions and mask must be made again."""
        self._positions: torch.Tensor | None = None
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
        if self._mask is None:
            device = self.memory.device
            columns = torch.arange(self.first, self.data.shape[3], device=device)
            padded = columns < torch.tensor(self.starts, device=device).unsqueeze(1)
            self._mask = torch.zeros(padded.shape, dtype=self.memory.dtype, device=device)
            self._mask.masked_fill_(padded, float("-inf"))
        return self._mask[:, None, None, : self.end - self.first]

    def _reserve(self, num_rows: int, left: int, right: int) -> None:
        """Make room for rows, for prompts of `left` columns, and for `right` columns beyond the end."""
        if num_rows <= self.data.shape[1] and left <= self.end and self.end + right <= self.data.shape[3]:
            return
        width = self.end - self.first
        end = max(width, left)
        num_columns = end + right + max(SPARE_COLUMNS, end)
        shape = (2 * self.num_layers, num_rows, self.num_heads, num_columns, self.head_dim)
        old = self.data[:, : self.num_rows, :, self.first : self.end]
        size = torch.Size(shape).numel()
        if self.num_rows or size > self.memory.numel():
            self.memory = self.memory.new_empty(size)
        self.data = self.memory[:size].view(shape)
        self.data[:, : self.num_rows, :, end - width : end] = old
        shift = end - self.end
        self.starts = [start + shift for start in self.starts]
        self.first, self.end = end - width, end
        self.columns_changed()
