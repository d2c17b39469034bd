"""Batches, and the data files they come from.

`DataProto` is imported when it is first asked for: data files are checked by commands that must not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roll_core.data.data_proto import DataProto

__all__ = ["DataProto"]


def __getattr__(name: str) -> object:
    if name == "DataProto":
        from roll_core.data.data_proto import DataProto

        return DataProto
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
