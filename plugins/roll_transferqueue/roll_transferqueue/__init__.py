"""TransferQueue as a transport of roll-core."""
