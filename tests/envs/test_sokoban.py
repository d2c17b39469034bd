"""Sokoban: its boards, its moves, its rewards."""

from __future__ import annotations

import random

import pytest

from roll_core.envs import make_environment
from roll_core.envs.sokoban import Sokoban
from roll_core.envs.sokoban_board import Board, draw_board
from roll_core.errors import RollError


def answer(name: str) -> str:
    return f"<answer>{name}</answer>"


def corridor(**options: object) -> Sokoban:
    """A player, a box and a target in a row of five, and a box on a target below."""
    made = make_environment("sokoban", {"num_boxes": 2, **options})
    assert isinstance(made, Sokoban)
    made.size = (4, 7)
    floor = frozenset((row, column) for row in (1, 2) for column in range(1, 6))
    made.board = Board(floor, frozenset({(1, 3), (2, 5)}), frozenset({(1, 2), (2, 5)}), (1, 1), ("Right",))
    made.player, made.boxes, made.num_steps = made.board.player, set(made.board.boxes), 0
    return made


@pytest.mark.parametrize(
    ("size", "num_boxes", "search_depth"), [((6, 6), 1, 30), ((10, 10), 2, 10), ((10, 10), 4, 300), ((4, 9), 1, 100)]
)
def test_every_board_is_solved_by_its_solution_within_the_search_depth(
    size: tuple[int, int], num_boxes: int, search_depth: int
) -> None:
    one = Sokoban(dim_room=size, num_boxes=num_boxes, search_depth=search_depth, max_steps=1000)
    for seed in range(15):
        one.reset(seed)
        assert 0 < len(one.board.solution) <= search_depth
        ends = [one.step(answer(move))[2] for move in one.board.solution]
        assert ends[-1]


def test_boxes_and_player_stand_on_floor_and_no_box_on_a_target() -> None:
    for seed in range(50):
        board = draw_board(random.Random(seed), (8, 8), 2, 100)
        assert len(board.boxes) == len(board.targets) == 2
        assert board.boxes | board.targets | {board.player} <= board.floor
        assert not board.boxes & board.targets and board.player not in board.boxes


def test_a_walls_border_surrounds_the_room_that_was_asked_for() -> None:
    lines = Sokoban(dim_room=(5, 8), num_boxes=1).reset(0)[0].splitlines()
    assert [len(line) for line in lines] == [8] * 5
    assert {lines[0], lines[-1]} == {"#" * 8} and all(line[0] == line[-1] == "#" for line in lines)


def test_seeds_give_different_boards() -> None:
    one = Sokoban(dim_room=(6, 6), num_boxes=1)
    assert len({one.reset(seed)[0] for seed in range(60)}) > 50


def test_a_board_is_written_with_the_seven_symbols() -> None:
    one = corridor()
    assert one.render() == "#######\n#PXO__#\n#____\u221a#\n#######"
    one.player = (1, 3)
    assert one.render().splitlines()[1] == "#_XS__#"


def test_the_last_box_pushed_onto_its_target_solves_the_board() -> None:
    one = corridor()
    observation, reward, terminated, truncated, info = one.step(answer("Right"))
    assert reward == pytest.approx(-0.1 + 1 + 10)
    assert (terminated, truncated, info["metrics"]["success"]) == (True, False, 1.0)
    assert observation.splitlines()[1] == "#_P\u221a__#"


def test_pushing_a_box_off_its_target_costs_one() -> None:
    one = corridor()
    one.player = (1, 5)
    one.board = Board(one.board.floor | {(3, 5)}, one.board.targets, one.board.boxes, (1, 5), ())
    assert one.step(answer("Down"))[1] == pytest.approx(-0.1 - 1)


@pytest.mark.parametrize("move", ["Up", "Left"])
def test_walls_stop_the_player(move: str) -> None:
    one = corridor()
    _, reward, _, _, info = one.step(answer(move))
    assert reward == pytest.approx(-0.1)
    assert (info["metrics"]["action_is_valid"], info["metrics"]["action_is_effective"]) == (1.0, 0.0)
    assert one.player == (1, 1)


def test_a_box_is_stopped_by_a_wall_and_by_another_box() -> None:
    one = corridor()
    one.boxes = {(1, 2), (1, 3)}
    assert one.step(answer("Right"))[4]["metrics"]["action_is_effective"] == 0.0
    one.player, one.boxes = (1, 4), {(1, 5), (2, 5)}
    assert one.step(answer("Right"))[4]["metrics"]["action_is_effective"] == 0.0
    assert one.boxes == {(1, 5), (2, 5)}


def test_a_box_cannot_be_pulled() -> None:
    one = corridor()
    one.player, one.boxes = (1, 3), {(1, 2), (2, 5)}
    one.step(answer("Right"))
    assert (one.player, one.boxes) == ((1, 4), {(1, 2), (2, 5)})


@pytest.mark.parametrize("text", ["Right", answer("Jump"), answer(""), "", answer("4")])
def test_an_answer_without_an_action_moves_nothing_and_costs_a_step_and_the_penalty(text: str) -> None:
    one = corridor(format_penalty=-0.5)
    before = one.render()
    observation, reward, terminated, _, info = one.step(text)
    assert (observation, terminated) == (before, False)
    assert reward == pytest.approx(-0.6)
    assert info["metrics"] == {
        "action_is_effective": 0.0,
        "action_is_valid": 0.0,
        "success": 0.0,
        "format_penalty": -0.5,
    }


def test_an_episode_is_truncated_after_max_steps() -> None:
    one = corridor(max_steps=2)
    assert [one.step("nothing")[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_other_symbols_and_their_meanings_are_what_is_shown_and_explained() -> None:
    vocabulary = {"W": "wall", ".": "ice"}
    one = Sokoban(dim_room=[6, 6], num_boxes=1, grid_lookup={"0": "W", "1": "."}, grid_vocab=vocabulary)
    observation, info = one.reset(0)
    assert set(observation) <= set("W.O\u221aXPS\n") and "W" in observation
    assert "W wall, . ice, O target" in info["env_instruction"]


def test_options_that_cannot_be_are_told() -> None:
    with pytest.raises(RollError, match="environment 'sokoban' cannot be made with dim_x=6"):
        make_environment("sokoban", {"dim_x": 6})
    with pytest.raises(ValueError, match="4 x 4 cells, walls included, have no room for a player, 2 boxes"):
        Sokoban(dim_room=(4, 4), num_boxes=2)
    with pytest.raises(ValueError, match="7 different symbols, by 0 to 6"):
        Sokoban(grid_lookup={0: "_"})
    with pytest.raises(ValueError, match="actions are numbered 1 to 4, not"):
        Sokoban(action_lookup={0: "Up"})


def test_a_board_that_is_nowhere_to_be_found_is_an_error() -> None:
    # To pull a box takes three cells in a row.
    with pytest.raises(ValueError, match="no board of 4 x 4 cells with 1 boxes was found in 300 rooms"):
        draw_board(random.Random(0), (4, 4), 1, 100)
