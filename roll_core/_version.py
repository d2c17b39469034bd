"""The version of roll-core and the integer that plugins compare against."""

__version__ = "0.1.0"

PLUGIN_API = 1
"""Raised when a hook or the contract of one of its targets changes incompatibly."""
