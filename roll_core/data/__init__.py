"""Batches, and the data files they come from."""

from roll_core.data.data_proto import DataProto

__all__ = ["DataProto"]
