"""All planted mistakes, in the order of the table."""

from importlib import import_module

from tests.testing.planted_registry import FAULTS, Edit, Fault

__all__ = ["FAULTS", "Edit", "Fault"]

for kind in ("plugins", "platforms", "trainers", "engines", "transports", "patches"):
    import_module(f"tests.testing.planted_{kind}")
