"""Boards of Sokoban that can be solved, drawn by playing backwards from the solved board.

Backwards, the player walks away from a box and may pull it along: the exact reverse of pushing it. So the way back is
a solution, and no search has to prove that there is one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

Cell = tuple[int, int]
"""Row and column."""

MOVES: Mapping[str, Cell] = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
_OPPOSITE = {"Up": "Down", "Down": "Up", "Left": "Right", "Right": "Left"}

WALL_SHARE = 0.2
"""Of the inner cells, before those that cannot be reached are filled."""
MAX_ROOMS = 300
WALKS_PER_ROOM = 8


@dataclass(frozen=True)
class Board:
    """Where everything is at the start, and moves by their names that solve it."""

    floor: frozenset[Cell]
    targets: frozenset[Cell]
    boxes: frozenset[Cell]
    player: Cell
    solution: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """A position that a walk backwards came by; `boxes` are in the order of their targets."""

    player: Cell
    boxes: tuple[Cell, ...]
    way_back: tuple[str, ...]

    def distances(self, targets: tuple[Cell, ...]) -> tuple[int, int]:
        """How many boxes have left all targets, and how far they have come together."""
        far = sum(abs(box[0] - home[0]) + abs(box[1] - home[1]) for box, home in zip(self.boxes, targets))
        return sum(box not in targets for box in self.boxes), far


def add(cell: Cell, move: Cell) -> Cell:
    """The cell that a move leads to."""
    return cell[0] + move[0], cell[1] + move[1]


def check_size(size: Cell, num_boxes: int, search_depth: int) -> None:
    """Raises ValueError where there can be no such board."""
    rows, columns = size
    if num_boxes < 1 or search_depth < 1:
        raise ValueError(f"a board has at least one box and a search_depth of 1, not {num_boxes} and {search_depth}")
    if rows < 3 or columns < 3 or (rows - 2) * (columns - 2) < 2 * num_boxes + 1:
        raise ValueError(
            f"{rows} x {columns} cells, walls included, have no room for a player, {num_boxes} boxes and their targets"
        )


def draw_board(source: random.Random, size: Cell, num_boxes: int, search_depth: int) -> Board:
    """A board that can be solved in at most `search_depth` moves.

    Every box starts off the targets, where one of `MAX_ROOMS` rooms allows it; else as many as do.

    Args:
        size: rows and columns, with the walls around them.

    Raises:
        ValueError: there can be no such board, or none was found.
    """
    check_size(size, num_boxes, search_depth)
    best: tuple[tuple[int, int], Board] | None = None
    for _ in range(MAX_ROOMS):
        floor = _draw_floor(source, size)
        if len(floor) < 2 * num_boxes + 1:
            continue
        targets = tuple(source.sample(sorted(floor), num_boxes))
        for _ in range(WALKS_PER_ROOM):
            found = _walk_backwards(source, floor, targets, search_depth)
            distances = found.distances(targets)
            if distances[0] and (best is None or distances > best[0]):
                boxes = frozenset(found.boxes)
                best = distances, Board(floor, frozenset(targets), boxes, found.player, found.way_back)
        if best is not None and best[0][0] == num_boxes:
            return best[1]
    if best is None:
        raise ValueError(
            f"no board of {size[0]} x {size[1]} cells with {num_boxes} boxes was found in {MAX_ROOMS} rooms\n"
            "  try: a larger dim_room, fewer num_boxes, or a larger search_depth"
        )
    return best[1]


def _draw_floor(source: random.Random, size: Cell) -> frozenset[Cell]:
    """The largest connected part of a room with walls strewn in it."""
    rows, columns = size
    inner = [(row, column) for row in range(1, rows - 1) for column in range(1, columns - 1)]
    free = {cell for cell in inner if source.random() >= WALL_SHARE}
    parts: list[set[Cell]] = []
    while free:
        part: set[Cell] = set()
        edge = [min(free)]
        while edge:
            cell = edge.pop()
            if cell in free:
                free.remove(cell)
                part.add(cell)
                edge += [add(cell, move) for move in MOVES.values()]
        parts.append(part)
    largest = max(parts, key=len) if parts else set[Cell]()
    return frozenset(largest)


def _walk_backwards(
    source: random.Random, floor: frozenset[Cell], targets: tuple[Cell, ...], search_depth: int
) -> _Found:
    """The position, of those that a walk comes by, whose boxes are furthest from their targets."""
    player = source.choice(sorted(floor.difference(targets)))
    boxes = list(targets)
    way: list[str] = []
    seen = {(player, tuple(boxes)): 0}
    best = _Found(player, tuple(boxes), ())
    for _ in range(search_depth):
        possible = [name for name, move in MOVES.items() if _is_free(add(player, move), floor, boxes)]
        if not possible:
            break
        # Moves that can pull come up more often, or a box would seldom leave its place.
        pulling = [name for name in possible if add(player, MOVES[_OPPOSITE[name]]) in boxes]
        name = source.choice(possible + 2 * pulling)
        behind = add(player, MOVES[_OPPOSITE[name]])
        if behind in boxes and source.random() < 0.8:
            boxes[boxes.index(behind)] = player
        player = add(player, MOVES[name])
        way.append(_OPPOSITE[name])
        # A position that was there before makes what lay between a detour.
        position = (player, tuple(boxes))
        if position in seen:
            del way[seen[position] :]
            seen = {known: length for known, length in seen.items() if length <= len(way)}
        seen[position] = len(way)
        found = _Found(player, tuple(boxes), tuple(reversed(way)))
        if found.distances(targets) > best.distances(targets):
            best = found
    return best


def _is_free(cell: Cell, floor: frozenset[Cell], boxes: list[Cell]) -> bool:
    return cell in floor and cell not in boxes
