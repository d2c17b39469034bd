from typing import Any

import pytest

from roll_core.cluster.nodes import Node, _too_few, place
from roll_core.errors import RollError
from roll_core.platforms import Platform

TWO_BY_FOUR = [Node("a", "10.0.0.1", ("4", "5", "6", "7")), Node("b", "10.0.0.2", ("0", "1", "2", "3"))]


class Demo(Platform):
    name, device_type, ray_resource, collective_backend = "demo", "demo", "DEMO", "gloo"
    visible_devices_env = "DEMO_VISIBLE"


def test_device_numbers_are_indices_into_what_nodes_offer() -> None:
    places = place([0, 3, 4, 7], 1, TWO_BY_FOUR)
    assert [(one.node.node_id, one.device_ids) for one in places] == [
        ("a", ("4",)), ("a", ("7",)), ("b", ("0",)), ("b", ("3",)),
    ]  # fmt: skip


def test_a_worker_gets_its_devices_in_the_order_of_the_mapping() -> None:
    assert [one.device_ids for one in place([3, 0, 6, 5], 2, TWO_BY_FOUR)] == [("7", "4"), ("2", "1")]


def test_a_worker_on_two_nodes_is_refused() -> None:
    with pytest.raises(RollError, match=r"devices \[3, 4\] of one worker are on 2 nodes of 4 devices"):
        place([3, 4], 2, TWO_BY_FOUR)


def test_a_device_that_no_node_has_is_refused() -> None:
    with pytest.raises(RollError, match="device 8 asked for, but 2 x 4 devices are there"):
        place([8], 1, TWO_BY_FOUR)


def test_too_few_nodes_lists_what_each_has() -> None:
    alive: list[dict[str, Any]] = [
        {"NodeManagerAddress": "10.0.0.1", "Resources": {"DEMO": 8.0}},
        {"NodeManagerAddress": "10.0.0.2", "Resources": {"CPU": 64.0}},
    ]
    message = _too_few(Demo(), alive, 2, 16)
    assert "need 2 nodes with 16 DEMO each" in message
    assert "10.0.0.1: DEMO 8 (8 < 16)" in message and "10.0.0.2: DEMO 0 (0 < 16)" in message
