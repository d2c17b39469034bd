"""The transport that core brings for one process keeps the contract of transports."""

from roll_core.testing.transport_contract import TransportContract
from roll_core.transport.local import LocalTransport


class TestLocalTransport(TransportContract):
    transport_class = LocalTransport
