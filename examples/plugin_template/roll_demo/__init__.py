"""A pretend device, and one of each other kind, for roll-core."""
