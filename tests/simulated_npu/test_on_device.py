"""Runs the folder `on_device` in a process that has simulated NPUs, which the process of the other tests has not."""

import re

from tests.simulated_npu.machine import run


def test_what_holds_on_a_device_holds_on_the_simulated_one() -> None:
    done = run("-c", RUN_FOLDER)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and passed is not None, done.stdout[-8000:] + done.stderr[-4000:]
    assert int(passed[1]) >= 60, "tests have gone missing"


# pytest's plugins may import torch late: what decides whether the folder is collected is there before it is asked.
RUN_FOLDER = """
import sys, torch, pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/simulated_npu/on_device"]))
"""
