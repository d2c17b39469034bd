"""The part of AscendCL's Python module that Ray asks for a node's devices, so that it finds the simulated ones."""

from acl import rt

__all__ = ["get_soc_name", "rt"]


def get_soc_name() -> str:
    return "Ascend910B3"
