"""The platform contract: facts without a device, and typing errors found when the class is made."""

import pytest

from roll_core.errors import RollError
from roll_core.platforms import EngineDefaults, Platform


class BoardPlatform(Platform):
    """A device nobody has."""

    name = "board"
    device_type = "cpu"
    ray_resource = "BOARD"
    visible_devices_env = "BOARD_VISIBLE"
    visible_devices_aliases = ("BOARDS",)
    collective_backend = "gloo"


@pytest.mark.parametrize(
    ("member", "hint"),
    [("device_cuont", "device_count"), ("colective_backend", "collective_backend"), ("ray_resources", "ray_resource")],
)
def test_a_misspelt_member_is_refused_when_the_class_is_made(member: str, hint: str) -> None:
    with pytest.raises(TypeError) as error:
        type("Board", (Platform,), {member: None})
    assert str(error.value) == f"Board.{member} is not part of the Platform contract; did you mean '{hint}'?"


def test_an_unknown_public_name_is_refused_and_a_private_one_is_not() -> None:
    with pytest.raises(TypeError, match=r"^Board\.warp is not part of the Platform contract$"):
        type("Board", (Platform,), {"warp": None})
    assert type("Board", (Platform,), {"_warp": None})


def test_an_unknown_attribute_is_an_error_and_not_none() -> None:
    with pytest.raises(AttributeError, match="synchronise"):
        BoardPlatform().synchronise  # noqa: B018


def test_defaults_change_nothing() -> None:
    board = BoardPlatform()
    assert board.worker_env("actor_train") == {}
    assert board.engine_defaults("vllm") == EngineDefaults({}, {})
    assert board.problems(None) == []
    assert board.abilities() == frozenset()


def test_devices_are_asked_of_ray_by_the_platforms_resource() -> None:
    assert BoardPlatform().ray_options(3) == {"num_cpus": 0, "resources": {"BOARD": 3}}


def test_a_worker_is_shown_its_devices_by_every_variable_and_ray_keeps_away() -> None:
    assert BoardPlatform().visible(["b", "a"]) == {
        "BOARD_VISIBLE": "b,a",
        "BOARDS": "b,a",
        "RAY_EXPERIMENTAL_NOSET_BOARD_VISIBLE": "1",
        "RAY_EXPERIMENTAL_NOSET_BOARDS": "1",
    }


def test_one_variable_is_enough_to_know_what_is_visible() -> None:
    board = BoardPlatform()
    assert board.visible_ids({"BOARDS": "7, 5"}) == ["7", "5"]
    assert board.visible_ids({"BOARD_VISIBLE": ""}) == []
    assert board.visible_ids({}) is None
    with pytest.raises(RollError, match="two lists of visible devices differ: BOARD_VISIBLE=1 and BOARDS=2"):
        board.visible_ids({"BOARD_VISIBLE": "1", "BOARDS": "2"})


def test_a_device_is_known_by_its_id_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOARD_VISIBLE", "7,5")
    assert BoardPlatform().device_uid(1) == "5"
    monkeypatch.delenv("BOARD_VISIBLE")
    assert BoardPlatform().device_uid(1) == "1"
