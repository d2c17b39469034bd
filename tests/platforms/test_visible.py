"""From device ids to indices: the id is what the node calls a device, the index is what torch takes."""

import pytest

from roll_core.errors import RollError
from roll_core.platforms.visible import logical_index


def test_an_id_becomes_its_position_among_the_visible_ones() -> None:
    visible = ["4", "5", "6", "7"]
    assert [logical_index(visible, device) for device in ("4", "5", "7")] == [0, 1, 3]


def test_a_device_that_is_not_visible_is_refused_with_the_visible_ones() -> None:
    with pytest.raises(RollError) as error:
        logical_index(["4", "5", "6", "7"], "3", "DEMO_VISIBLE_DEVICES")
    assert str(error.value) == ("device '3' is not visible to this process\n  visible: 4,5,6,7 (DEMO_VISIBLE_DEVICES)")


def test_order_counts_and_numbers_are_compared_as_text() -> None:
    assert logical_index(["7", "5"], 5) == 1
    with pytest.raises(RollError, match="device '05' is not visible"):
        logical_index(["5"], "05")


def test_ids_are_opaque() -> None:
    assert logical_index(["GPU-8c1e", "MIG-7a1b/1/0"], "MIG-7a1b/1/0") == 1


def test_without_a_list_an_id_is_its_own_index() -> None:
    assert logical_index(None, "5") == 5
    with pytest.raises(RollError, match="device 'GPU-8c1e' has no index\n  visible: all, because DEMO is unset"):
        logical_index(None, "GPU-8c1e", "DEMO")


def test_nothing_is_visible_through_an_empty_list() -> None:
    with pytest.raises(RollError, match="not visible"):
        logical_index([], "0")
