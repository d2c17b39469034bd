"""Contracts: tests that plugins, rewards and environments run on themselves."""
