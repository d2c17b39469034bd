"""An episode being played: what the model is asked, what it answered, and the rows to train on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from roll_core.data.messages import Message
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.env_dialogue import Dialogue, TokenIds, fill
from roll_core.rollout.environments import Fault, Observed

End = Literal["terminated", "truncated", "max_steps", "max_length", "fault"]

AGENT_TEMPLATE = "{observation}"
STEP_TEMPLATE = "{env_instruction}{history}{current_observation}"
INVALID_HINT = "(this answer named no valid action)"


@dataclass(frozen=True)
class Style:
    """How a model plays in environments of one tag.

    Args:
        is_stepwise: each step is a row of its own, with what came before as text; else the trajectory is one row.
        max_tokens_per_step: of one answer.
        sequence_length: of a row, prompt included.
        history_length: earlier steps that a step's prompt shows.
    """

    tag: str
    is_stepwise: bool = False
    max_steps: int = 20
    max_tokens_per_step: int = 128
    sequence_length: int = 2048
    system_template: str | None = None
    agent_template: str | None = None
    history_length: int = 5


@dataclass(frozen=True)
class Plan:
    """Which episode is to be played: its number among the run's groups, its place in the group, and the start.

    `attempt` counts those that a fault of the environment ended.
    """

    group: int
    member: int
    tag: str
    env_group: int
    episode: int
    seed: int
    attempt: int = 0

    @property
    def traj_group_id(self) -> str:
        """Equal for the members of a group."""
        return f"{self.tag}_{self.env_group}_{self.episode}_{self.seed}"

    @property
    def traj_id(self) -> str:
        """A trajectory's own name."""
        return f"{self.traj_group_id}_{self.member}"


@dataclass
class Turn:
    """One step of an episode.

    `step` counts from 0; `start` and `end` are the answer's columns among its row's response tokens; `state_hash` is
    that of what the model saw before it answered.
    """

    observation: str
    state_hash: str
    step: int = 0
    start: int = 0
    end: int = 0
    answer: str = ""
    reward: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Row:
    """Tokens to train on: a prompt, and everything from the first sampled token to the last.

    `mask` is true for sampled tokens, whose log-probabilities are the engine's; others have 0.
    """

    prompt_ids: TokenIds
    response_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    is_clipped: bool = False

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    def read(self, ids: Sequence[int]) -> None:
        """Add tokens that the model is given."""
        self.response_ids += ids
        self.mask += [False] * len(ids)
        self.log_probs += [0.0] * len(ids)

    def say(self, completion: Completion) -> None:
        """Add tokens that the model sampled."""
        self.response_ids += completion.token_ids
        self.mask += [True] * len(completion.token_ids)
        self.log_probs += completion.log_probs


class Episode:
    """Played by turns: `begin`, then `request`, `answered` and `observed` again and again, until `end` is set."""

    def __init__(self, plan: Plan, style: Style, dialogue: Dialogue) -> None:
        self.plan, self.style, self.dialogue = plan, style, dialogue
        self.rows: list[Row] = []
        self.turns: list[Turn] = []
        self.end: End | None = None
        self.fault: Fault | None = None
        self.aggregation: dict[str, str] = {}
        self._instruction = ""
        self._now = Observed("")

    @property
    def seen(self) -> str:
        """What the environment showed last."""
        return self._now.text

    @property
    def score(self) -> float:
        """The sum of its rewards."""
        return sum(turn.reward for turn in self.turns)

    @property
    def is_success(self) -> bool:
        """What the environment's metric `success` said last; where it has none, whether the score is above 0."""
        said = [turn.metrics["success"] for turn in self.turns if "success" in turn.metrics]
        return said[-1] > 0 if said else self.score > 0

    def begin(self, observed: Observed | Fault) -> None:
        """The environment was reset."""
        self._take(observed)
        self._instruction = self._now.instruction

    def request(self, params: SamplingParams, label: str, seed_of: Callable[[str], int]) -> GenerationRequest | None:
        """What the model is asked next; None where the sequence is full, which ends the episode.

        Args:
            label: of the request, such as "train/3".
            seed_of: a seed for a request's name.
        """
        row = self._row()
        if row is None or len(row) >= self.style.sequence_length:
            if not self.rows:
                reason = (
                    f"the first prompt leaves no token for an answer in sequence_length {self.style.sequence_length}"
                )
                self._take(Fault("too_long", reason))
            else:
                self.end = "max_length"
            return None
        if not self.rows or self.rows[-1] is not row:
            self.rows.append(row)
        return self.asked(params, label, seed_of)

    def asked(self, params: SamplingParams, label: str, seed_of: Callable[[str], int]) -> GenerationRequest:
        """What `request` returned last."""
        row, plan, number = self.rows[-1], self.plan, len(self.turns)
        ids = (*row.prompt_ids, *row.response_ids)
        tokens = min(params.max_new_tokens, self.style.max_tokens_per_step, self.style.sequence_length - len(row))
        name = f"{label}/{plan.group}/{plan.member}/{plan.attempt}/{number}"
        return GenerationRequest(
            request_id=name,
            prompt_ids=ids,
            params=replace(params, max_new_tokens=tokens),
            seed=seed_of(name),
            group=hashlib.blake2b(repr(ids).encode(), digest_size=12).hexdigest(),
        )

    def answered(self, completion: Completion) -> str:
        """The model's answer to the last request; returns its text, for the environment."""
        row, seen = self.rows[-1], self._now.text
        turn = Turn(seen, hashlib.sha256(seen.encode()).hexdigest(), len(self.turns), start=len(row.response_ids))
        row.say(completion)
        turn.end, turn.answer = len(row.response_ids), self.dialogue.text_of(completion.token_ids)
        row.is_clipped = completion.finish_reason == "length"
        row.turns.append(turn)
        self.turns.append(turn)
        return turn.answer

    def observed(self, observed: Observed | Fault) -> None:
        """The environment's answer to the last action."""
        self._take(observed)
        if isinstance(observed, Fault):
            return
        turn = self.turns[-1]
        turn.reward, turn.metrics = observed.reward, observed.metrics
        self.aggregation.update(observed.aggregation)
        if observed.terminated:
            self.end = "terminated"
        elif observed.truncated:
            self.end = "truncated"
        elif len(self.turns) >= self.style.max_steps:
            self.end = "max_steps"

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it, as JSON data; all but the plan."""
        return {
            "turns": [asdict(turn) for turn in self.turns],
            "rows": [
                asdict(replace(row, turns=[])) | {"steps": [turn.step for turn in row.turns]} for row in self.rows
            ],
            "end": self.end,
            "aggregation": dict(self.aggregation),
            "instruction": self._instruction,
            "now": asdict(self._now),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As it was when the state was taken."""
        self.turns = [Turn(**turn) for turn in state["turns"]]
        self.rows = []
        for row in state["rows"]:
            given = {name: value for name, value in row.items() if name != "steps"}
            given |= {"prompt_ids": tuple(row["prompt_ids"]), "turns": [self.turns[step] for step in row["steps"]]}
            self.rows.append(Row(**given))
        self.end, self.aggregation = state["end"], dict(state["aggregation"])
        self._instruction, self._now = state["instruction"], Observed(**state["now"])

    def metrics(self) -> dict[str, float]:
        """The environment's metrics over the episode, as it wants them aggregated."""
        values: dict[str, list[float]] = {}
        for turn in self.turns:
            for name, value in turn.metrics.items():
                values.setdefault(name, []).append(value)
        return {name: _AGGREGATIONS[self.aggregation.get(name, "mean")](found) for name, found in values.items()}

    def _take(self, observed: Observed | Fault) -> None:
        if isinstance(observed, Fault):
            self.end, self.fault = "fault", observed
        else:
            self._now = observed

    def _row(self) -> Row | None:
        """The row that the next answer belongs to, with all that comes before it; None where that does not fit."""
        if self.style.is_stepwise:
            return Row(self.dialogue.opening(self._messages(self._step_text())))
        if not self.rows:
            return Row(self.dialogue.opening(self._messages(self._instruction + self._turn_text())))
        row = self.rows[-1]
        role = "tool" if self._now.is_tool else "user"
        text = self._now.text if self._now.is_tool else self._turn_text()
        ids = self.dialogue.continuation({"role": role, "content": text}, row.response_ids[-1])
        # What does not fit is not added: the row ends with the last answer.
        if len(row) + len(ids) >= self.style.sequence_length:
            return None
        row.read(ids)
        return row

    def _messages(self, text: str) -> list[Message]:
        system = self.style.system_template
        first: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*first, {"role": "user", "content": text}]

    def _turn_text(self) -> str:
        return self._filled(self.style.agent_template or AGENT_TEMPLATE, "")

    def _step_text(self) -> str:
        number = self.style.history_length
        shown = self.turns[-number:] if number else []
        first = len(self.turns) - len(shown) + 1
        history = "".join(_told(step, turn) for step, turn in enumerate(shown, start=first))
        return self._filled(self.style.agent_template or STEP_TEMPLATE, history)

    def _filled(self, template: str, history: str) -> str:
        """A template of either kind: those of trajectories and of steps name the same things differently."""
        done = len(self.turns)
        values = {
            "turn_idx": done + 1,
            "current_step": done + 1,
            "observation": self._now.text,
            "current_observation": self._now.text,
            "actions_left": self.style.max_steps - done,
            "max_response_length": self.style.max_tokens_per_step,
            "env_instruction": self._instruction,
            "step_count": done,
            "history_length": min(done, self.style.history_length),
            "history": history,
        }
        return fill(template, values) + self._now.suffix


_AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: sum(values) / len(values),
    "sum": sum,
    "min": min,
    "max": max,
    "last": lambda values: values[-1],
    "first": lambda values: values[0],
}


def _told(step: int, turn: Turn) -> str:
    """An earlier step in a step's prompt."""
    hint = f" {INVALID_HINT}" if turn.metrics.get("action_is_valid", 1.0) == 0.0 else ""
    return f"{step}: {turn.observation}\n{turn.answer}{hint}\n"
