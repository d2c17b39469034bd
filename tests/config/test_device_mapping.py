"""Device numbers: what may be written, and what is never evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roll_core.config.device_mapping import GRAMMAR, DeviceMappingError, parse_device_mapping


@pytest.mark.parametrize(
    ("written", "devices"),
    [
        ("list(range(0,16))", list(range(16))),
        ("list(range(0,4)) + list(range(8,12))", [0, 1, 2, 3, 8, 9, 10, 11]),
        ("list([0,1,2,3,8,9,10,11])", [0, 1, 2, 3, 8, 9, 10, 11]),
        ("[6, 7]", [6, 7]),
        ("range(3)", [0, 1, 2]),
        ("list(range(0, 8)) + [12]", [0, 1, 2, 3, 4, 5, 6, 7, 12]),
        ("list(range(6, -1, -2))", [6, 4, 2, 0]),
        ("(list(range(2)) + [4])", [0, 1, 4]),
        ("(3, 1)", [3, 1]),
        ("  [0,\n 1]  ", [0, 1]),
        ("5", [5]),
        ([2, 0, 1], [2, 0, 1]),
        (3, [3]),
    ],
)
def test_devices_come_in_the_order_written(written: Any, devices: list[int]) -> None:
    assert parse_device_mapping(written) == devices


@pytest.mark.parametrize(
    "written",
    [
        "__import__('os').system('true')",
        "open('x')",
        "[x for x in range(3)]",
        "list(map(int, '12'))",
        "range(3).__class__",
        "[0] * 8",
        "list(range(0, 2)) - [1]",
        "range(n)",
        "[1.5]",
        "['0']",
        "[True]",
        "range(0, 4, step=2)",
        "range(1, 2, 3, 4)",
        "",
        "list(range(0, 4)",
        "+" * 5000 + "1",
    ],
)
def test_anything_outside_the_grammar_is_refused_and_the_grammar_shown(written: str) -> None:
    with pytest.raises(DeviceMappingError) as caught:
        parse_device_mapping(written)
    assert GRAMMAR in str(caught.value)


def test_code_in_a_mapping_never_runs(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with pytest.raises(DeviceMappingError):
        parse_device_mapping(f"__import__('pathlib').Path({str(target)!r}).touch() or [0]")
    assert not target.exists()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("list(range(0, 4)) + [2, 3]", "named more than once: 2, 3"),
        ([1, 1], "named more than once: 1"),
        ("[-1, 0]", "device numbers start at 0, -1 is negative"),
        ("[]", "no device is named; leave device_mapping out for a role without devices"),
        ("range(4, 4)", "no device is named; leave device_mapping out for a role without devices"),
        ("range(0, 4, 0)", "the step of a range in 'range(0, 4, 0)' is 0"),
        ("list(range(0, 10**9))", None),
        ("list(range(0, 1000000000))", "'list(range(0, 1000000000))' names more devices than any cluster has"),
        (True, None),
        ({"a": 1}, None),
        ([0.0], None),
    ],
)
def test_a_mapping_that_names_no_sensible_devices_is_refused(written: Any, message: str | None) -> None:
    with pytest.raises(DeviceMappingError) as caught:
        parse_device_mapping(written)
    if message is not None:
        assert str(caught.value) == message
