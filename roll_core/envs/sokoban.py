"""Sokoban as text: push boxes onto targets; they cannot be pulled.

Rules, symbols, actions and rewards are those of gym_sokoban and of ROLL's. Boards are drawn in `sokoban_board`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.envs.base import ActionParser, Environment, StepResult
from roll_core.envs.sokoban_board import MOVES, Board, Cell, add, check_size, draw_board

ACTIONS: Mapping[int, str] = {1: "Up", 2: "Down", 3: "Left", 4: "Right"}
KINDS = ("wall", "empty", "target", "box on target", "box", "player", "player on target")
"""What may be in a cell, by the numbers that `grid_lookup` has for them."""
SYMBOLS = ("#", "_", "O", "\u221a", "X", "P", "S")

STEP_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0
INSTRUCTION = (
    "You push boxes onto targets. You can push one box at a time, and pull none; walls stop you and the boxes.\n"
    "Symbols: {symbols}.\n"
    "Actions: {actions}.\n"
    "Answer with one action, such as <answer>Right</answer>.\n"
)


class Sokoban(Environment):
    """-0.1 a step, +1 for a box pushed onto a target, -1 for one pushed off, and +10 when all are placed.

    An answer without an action is a step in which nothing moves. Every board can be solved: `board.solution` does it,
    in at most `search_depth` moves.

    Args:
        dim_room: rows and columns, with the walls around them.
        num_boxes: boxes, and as many targets.
        max_steps: steps after which the episode is truncated.
        search_depth: moves that lead from the solved board back to the start; more make harder boards.
        format_penalty: added to the reward of an answer without an action.
        action_pattern: see `ActionParser`.
        env_instruction: text before the first observation; by default the rules.
        action_lookup: other names for the actions 1 to 4, which are `ACTIONS`.
        grid_lookup: other symbols, by the numbers of `KINDS`.
        grid_vocab: what the rules say of each symbol.
    """

    def __init__(
        self,
        *,
        dim_room: Sequence[int] = (10, 10),
        num_boxes: int = 4,
        max_steps: int = 20,
        search_depth: int = 300,
        format_penalty: float = 0.0,
        action_pattern: str = r"<answer>(.*?)</answer>",
        special_token_list: Sequence[str] = ("<|im_start|>", "<|im_end|>"),
        env_instruction: str | None = None,
        action_lookup: Mapping[int, str] | None = None,
        grid_lookup: Mapping[int, str] | None = None,
        grid_vocab: Mapping[str, str] | None = None,
    ) -> None:
        if len(dim_room) != 2:
            raise ValueError(f"dim_room is rows and columns, not {list(dim_room)}")
        # Where a config was written as JSON or composed, keys that are numbers may have become text.
        self.actions = {int(number): name for number, name in (action_lookup or ACTIONS).items()}
        if set(self.actions) - set(ACTIONS):
            raise ValueError(f"actions are numbered 1 to 4, not {sorted(self.actions)}")
        symbols = dict(enumerate(SYMBOLS)) | {int(number): symbol for number, symbol in (grid_lookup or {}).items()}
        if len(symbols) != len(KINDS) or len(set(symbols.values())) != len(KINDS):
            raise ValueError(f"grid_lookup gives {len(KINDS)} different symbols, by 0 to {len(KINDS) - 1}: {symbols}")
        self.size: Cell = (int(dim_room[0]), int(dim_room[1]))
        check_size(self.size, num_boxes, search_depth)
        self.num_boxes, self.max_steps, self.search_depth = num_boxes, max_steps, search_depth
        self.format_penalty = format_penalty
        self.parser = ActionParser(action_pattern, self.actions, tuple(special_token_list))
        self.symbols = {kind: symbols[number] for number, kind in enumerate(KINDS)}
        self.instruction = env_instruction if env_instruction is not None else self._rules(grid_vocab or {})
        self.random = random.Random(0)
        self.board = Board(frozenset(), frozenset(), frozenset(), (0, 0), ())
        self.player, self.boxes, self.num_steps = (0, 0), set[Cell](), 0

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """A new board; the same for the same seed, in any process."""
        self.random = random.Random(seed)
        self.board = draw_board(self.random, self.size, self.num_boxes, self.search_depth)
        self.player, self.boxes, self.num_steps = self.board.player, set(self.board.boxes), 0
        return self.render(), {"env_instruction": self.instruction}

    def step(self, action: str) -> StepResult:
        """Move or push, if the answer names an action."""
        parsed = self.parser(action)
        self.num_steps += 1
        before, placed_before = self.player, self._num_placed()
        is_valid = isinstance(parsed.action, int)
        if isinstance(parsed.action, int):
            self._move(MOVES[ACTIONS[parsed.action]])
        is_solved = self._num_placed() == self.num_boxes
        penalty = 0.0 if is_valid else self.format_penalty
        reward = STEP_REWARD + BOX_REWARD * (self._num_placed() - placed_before) + SOLVED_REWARD * is_solved + penalty
        info = {
            "metrics": {
                "action_is_effective": float(self.player != before),
                "action_is_valid": float(is_valid),
                "success": float(is_solved),
                "format_penalty": penalty,
            },
            "metrics_agg_mode": {"success": "last"},
            "action_desc": f"{parsed.content or 'no action'}: from {before} to {self.player}",
            "action": parsed.action,
            "think_content": parsed.thought,
        }
        is_late = not is_solved and self.num_steps >= self.max_steps
        return self.render(), reward, is_solved, is_late, info

    def sample_random_action(self) -> str:
        """One of the four."""
        return f"<answer>{self.random.choice(list(self.actions.values()))}</answer>"

    def render(self) -> str:
        """What is seen now: a line of symbols per row."""
        rows, columns = self.size
        return "\n".join("".join(self.symbols[self._kind((r, c))] for c in range(columns)) for r in range(rows))

    def _num_placed(self) -> int:
        return len(self.boxes & self.board.targets)

    def _move(self, move: Cell) -> None:
        ahead = add(self.player, move)
        if ahead not in self.board.floor:
            return
        if ahead in self.boxes:
            beyond = add(ahead, move)
            if beyond not in self.board.floor or beyond in self.boxes:
                return
            self.boxes.remove(ahead)
            self.boxes.add(beyond)
        self.player = ahead

    def _kind(self, cell: Cell) -> str:
        is_target = cell in self.board.targets
        if cell == self.player:
            return "player on target" if is_target else "player"
        if cell in self.boxes:
            return "box on target" if is_target else "box"
        if cell in self.board.floor:
            return "target" if is_target else "empty"
        return "wall"

    def _rules(self, meanings: Mapping[str, str]) -> str:
        symbols = ", ".join(f"{symbol} {meanings.get(symbol, kind)}" for kind, symbol in self.symbols.items())
        return INSTRUCTION.format(symbols=symbols, actions=", ".join(self.actions.values()))
