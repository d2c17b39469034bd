"""The transports of core keep the contract."""

import pytest

from roll_core.testing.transport_contract import TransportContract
from roll_core.transport.local import LocalTransport
from roll_core.transport.ray_store import RayTransport


class TestLocalTransport(TransportContract):
    transport_class = LocalTransport


@pytest.mark.usefixtures("session")
class TestRayTransport(TransportContract):
    transport_class = RayTransport


@pytest.mark.usefixtures("session")
class TestRayTransportThatCopies(TransportContract):
    transport_class = RayTransport
    config = {"ownership": "copied", "split_mb": 1}
