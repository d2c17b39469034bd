"""A frozen lake as text: walk from a start to a goal, around holes.

Maps, start and goal are drawn from the seed, until there is a way. Rules, symbols and actions are those of gymnasium's
FrozenLake and of ROLL's.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any

from roll_core.envs.base import ActionParser, Environment, StepResult

Cell = tuple[int, int]
"""Row and column."""

ACTIONS: Mapping[int, str] = {0: "Left", 1: "Down", 2: "Right", 3: "Up"}
_MOVES: Mapping[int, Cell] = {0: (0, -1), 1: (1, 0), 2: (0, 1), 3: (-1, 0)}
SYMBOLS: Mapping[str, str] = {
    "player": "P",
    "frozen": "_",
    "hole": "O",
    "goal": "G",
    "player in hole": "X",
    "player on goal": "\u221a",
}
INSTRUCTION = (
    "You walk on a frozen lake, from where you are to the goal, and must not fall into a hole.\n"
    "Symbols: {symbols}.\n"
    "Actions: {actions}.\n"
    "Answer with one action, such as <answer>Right</answer>.\n"
)


class FrozenLake(Environment):
    """Reward 1 on the goal, else 0; falling into a hole ends the episode. An answer without an action does not move.

    Args:
        size: rows and columns.
        p: how likely a cell is frozen rather than a hole.
        is_slippery: whether a third of the moves each go to the left and to the right of where they should.
        min_distance: fewest moves from start to goal.
        max_steps: moves after which the episode is truncated.
        format_penalty: reward of an answer without an action.
        action_pattern: see `ActionParser`.
        observation: "grid", the whole map as symbols; or "near", where the goal lies and what the four neighbours
            are, for models too small to read a map.
        env_instruction: text before the first observation; by default the rules.
        grid_vocab: other symbols, by the names of `SYMBOLS`.
    """

    def __init__(
        self,
        *,
        size: int = 4,
        p: float = 0.8,
        is_slippery: bool = True,
        min_distance: int = 1,
        max_steps: int = 20,
        format_penalty: float = 0.0,
        action_pattern: str = r"<answer>(.*?)</answer>",
        special_token_list: tuple[str, ...] = ("<|im_start|>", "<|im_end|>"),
        observation: str = "grid",
        env_instruction: str | None = None,
        action_lookup: Mapping[int, str] | None = None,
        grid_vocab: Mapping[str, str] | None = None,
    ) -> None:
        if size < 2:
            raise ValueError(f"a lake has at least 2 rows, not {size}")
        if not 0 < p <= 1:
            raise ValueError(f"p is how likely a cell is frozen, in (0, 1], not {p}")
        if not 1 <= min_distance <= 2 * (size - 1):
            raise ValueError(f"min_distance is from 1 to {2 * (size - 1)} on a lake of {size} rows, not {min_distance}")
        if observation not in ("grid", "near"):
            raise ValueError(f"observation is grid or near, not '{observation}'")
        unknown = set(grid_vocab or {}) - set(SYMBOLS)
        if unknown:
            raise ValueError(f"no symbol named {sorted(unknown)}; there are: {', '.join(SYMBOLS)}")
        self.size, self.p, self.is_slippery, self.min_distance = size, p, is_slippery, min_distance
        self.max_steps, self.format_penalty, self.observation = max_steps, format_penalty, observation
        self.actions = {int(number): name for number, name in (action_lookup or ACTIONS).items()}
        self.parser = ActionParser(action_pattern, self.actions, tuple(special_token_list))
        self.symbols = {**SYMBOLS, **(grid_vocab or {})}
        self.instruction = env_instruction if env_instruction is not None else self._rules()
        self.random = random.Random(0)
        self.holes: frozenset[Cell] = frozenset()
        self.player: Cell = (0, 0)
        self.goal: Cell = (size - 1, size - 1)
        self.num_steps = 0

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """A new lake; the same for the same seed, in any process."""
        self.random = random.Random(seed)
        self.holes, self.player, self.goal = self._draw()
        self.num_steps = 0
        return self.render(), {"env_instruction": self.instruction}

    def step(self, action: str) -> StepResult:
        """Move, if the answer names an action."""
        parsed = self.parser(action)
        self.num_steps += 1
        before, is_valid = self.player, isinstance(parsed.action, int)
        if isinstance(parsed.action, int):
            self._move(parsed.action)
        is_there, has_fallen = self.player == self.goal, self.player in self.holes
        penalty = 0.0 if is_valid else self.format_penalty
        info = {
            "metrics": {
                "action_is_effective": float(self.player != before),
                "action_is_valid": float(is_valid),
                "success": float(is_there),
                "format_penalty": penalty,
            },
            "metrics_agg_mode": {"success": "last"},
            "action_desc": f"{parsed.content or 'no action'}: from {before} to {self.player}",
            "action": parsed.action,
            "think_content": parsed.thought,
        }
        is_over = is_there or has_fallen
        is_late = not is_over and self.num_steps >= self.max_steps
        return self.render(), float(is_there) + penalty, is_over, is_late, info

    def sample_random_action(self) -> str:
        """One of the four."""
        return f"<answer>{self.random.choice(list(self.actions.values()))}</answer>"

    def render(self) -> str:
        """What is seen now."""
        return self._grid() if self.observation == "grid" else self._near()

    def distance(self) -> int | None:
        """Fewest moves from the player to the goal; None where there is no way."""
        return _distance(self.player, self.goal, self.holes, self.size)

    def _draw(self) -> tuple[frozenset[Cell], Cell, Cell]:
        cells = [(row, column) for row in range(self.size) for column in range(self.size)]
        while True:
            start, goal = self.random.sample(cells, 2)
            holes = frozenset(c for c in cells if self.random.random() >= self.p and c not in (start, goal))
            distance = _distance(start, goal, holes, self.size)
            if distance is not None and distance >= self.min_distance:
                return holes, start, goal

    def _move(self, action: int) -> None:
        if self.is_slippery:
            # To the left of where it should, there, or to the right of it, each a third of the time.
            action = (action + self.random.choice((-1, 0, 1))) % 4
        self.player = self._beside(action)

    def _beside(self, action: int) -> Cell:
        rows, columns = _MOVES[action]
        row, column = self.player[0] + rows, self.player[1] + columns
        return (row, column) if 0 <= row < self.size and 0 <= column < self.size else self.player

    def _grid(self) -> str:
        return "\n".join("".join(self._symbol((r, c)) for c in range(self.size)) for r in range(self.size))

    def _symbol(self, cell: Cell) -> str:
        if cell == self.player:
            name = "player in hole" if cell in self.holes else "player on goal" if cell == self.goal else "player"
        else:
            name = "hole" if cell in self.holes else "goal" if cell == self.goal else "frozen"
        return self.symbols[name]

    def _near(self) -> str:
        rows, columns = self.goal[0] - self.player[0], self.goal[1] - self.player[1]
        directions = ["down" if rows > 0 else "up"] * bool(rows) + ["right" if columns > 0 else "left"] * bool(columns)
        seen = [f"{name} {self._kind(number)}" for number, name in self.actions.items()]
        return f"goal {' '.join(directions) or 'here'}\n{' '.join(seen)}"

    def _kind(self, action: int) -> str:
        cell = self._beside(action)
        if cell == self.player:
            return "wall"
        return "hole" if cell in self.holes else "goal" if cell == self.goal else "free"

    def _rules(self) -> str:
        symbols = ", ".join(f"{symbol} {name}" for name, symbol in self.symbols.items())
        return INSTRUCTION.format(symbols=symbols, actions=", ".join(self.actions.values()))


def _distance(start: Cell, goal: Cell, holes: frozenset[Cell], size: int) -> int | None:
    """Fewest moves, by breadth-first search."""
    distances, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        if cell == goal:
            return distances[cell]
        for rows, columns in _MOVES.values():
            beside = (cell[0] + rows, cell[1] + columns)
            inside = 0 <= beside[0] < size and 0 <= beside[1] < size
            if inside and beside not in holes and beside not in distances:
                distances[beside] = distances[cell] + 1
                queue.append(beside)
    return None
