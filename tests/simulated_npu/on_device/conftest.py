"""Tests in this folder need the device: `tests/simulated_npu/test_on_device.py` runs them where it is."""

import sys

if not getattr(sys.modules.get("torch_npu"), "IS_SIMULATED", False):
    collect_ignore_glob = ["test_*.py"]
