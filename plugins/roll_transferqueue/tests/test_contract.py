"""TransferQueue keeps the contract of transports."""

from roll_transferqueue.transport import TransferQueueTransport

from roll_core.testing.transport_contract import TransportContract


class TestTransferQueueTransport(TransportContract):
    transport_class = TransferQueueTransport
    config = {"backend": {"SimpleStorage": {"num_data_storage_units": 2}}}
