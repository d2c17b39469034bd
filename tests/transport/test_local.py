"""The transport within one process: what its contract does not say."""

import pickle

import numpy as np
import pytest
import torch

from roll_core.errors import RollError
from roll_core.transport import TransportStats
from roll_core.transport.local import LocalTransport


def test_a_cleared_row_is_freed_at_once() -> None:
    transport = LocalTransport()
    handle = transport.put({"x": torch.zeros(4, 10, dtype=torch.bfloat16), "y": np.zeros(4, np.int64)}, 4)
    assert transport.stats() == TransportStats(rows=4, num_bytes=4 * 10 * 2 + 4 * 8)
    transport.clear(type(handle)(handle.row_ids[:1], handle.schema))
    assert transport.stats() == TransportStats(rows=3, num_bytes=3 * 28)


def test_it_cannot_be_sent_to_another_process() -> None:
    with pytest.raises(RollError, match="'local' is the memory of one process"):
        pickle.dumps(LocalTransport())
