"""What GPUs refuse of a config for NPUs, and that both vendors say it alike."""

from __future__ import annotations

from roll_cuda.cuda import CudaPlatform
from roll_cuda.migration import MIGRATION
from roll_cuda.rocm import RocmPlatform


def test_both_platforms_say_the_same() -> None:
    assert CudaPlatform().migration() is MIGRATION
    assert RocmPlatform().migration() is MIGRATION


def test_only_what_belongs_to_other_devices_is_refused() -> None:
    refused = {one.key: one for one in MIGRATION.options}
    assert refused["online_quantization"].refuses("ascend_mxfp8")
    assert not refused["online_quantization"].refuses("fp8")
    assert all(one.reason for one in MIGRATION.options)
    assert not MIGRATION.strategies
    assert MIGRATION.attention is None
