"""The seam for generation: an engine that takes requests, yields completions and accepts new weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel

from roll_core.context import WorkerContext
from roll_core.errors import IllegalOrder, Problem

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.data.vision import PromptImages
    from roll_core.platforms import Platform
    from roll_core.weights import WeightReceiver

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True)
class SamplingParams:
    """How to sample. `top_k` 0 and `top_p` 1.0 keep every token; `temperature` 0 is greedy.

    `stop_token_ids` end a completion and are part of it; `stop` strings end it too, and their tokens are kept.
    `excluded_token_ids` are never sampled; log-probabilities are over all tokens all the same.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    excluded_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt to be completed once. `seed` alone decides the random draws, whatever else runs beside it.

    `group` is equal for requests with the same prompt, so that an engine may share its prefill. `images` are those that
    the image tokens among `prompt_ids` stand for.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    group: str = ""
    images: PromptImages | None = None


@dataclass(frozen=True)
class Completion:
    """What an engine made of a request. Exactly one is returned for each.

    `log_probs[t]` is the log-probability of `token_ids[t]` under softmax(logits / temperature), before top-k
    and top-p. `weight_version` is that of the weights that sampled the last token.
    """

    request_id: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason
    weight_version: int

    @property
    def num_tokens(self) -> int:
        """How many tokens were sampled."""
        return len(self.token_ids)


class EngineState(Enum):
    """Where an engine is in its life."""

    NEW = "new"
    EMPTY = "started without weights"
    READY = "ready"
    ASLEEP = "asleep"
    STOPPED = "stopped"


class Lifecycle:
    """Refuses calls out of order, for every engine alike.

    An engine that starts with dummy weights, or that dropped them in its sleep, is EMPTY and generates
    nothing until weights have arrived.
    """

    def __init__(self) -> None:
        self.state = EngineState.NEW

    def require(self, action: str, *allowed: EngineState) -> None:
        """Raise IllegalOrder unless the engine is in one of the allowed states."""
        if self.state not in allowed:
            names = ", ".join(state.value for state in allowed)
            raise IllegalOrder(f"cannot {action} while the engine is {self.state.value}\n  allowed when: {names}")


class InferStrategy(ABC):
    """One engine. `start`, then any number of the others; `generate` may run in several threads at once."""

    Config: ClassVar[type[BaseModel]]
    """Validates the role's `strategy_config`; unknown keys are errors."""

    def __init__(self, role: WorkerConfig, platform: Platform, context: WorkerContext) -> None:
        self.role, self.platform, self.context = role, platform, context
        self.lifecycle = Lifecycle()

    @classmethod
    def problems(cls, role: WorkerConfig, platform: Platform) -> list[Problem]:
        """What in this role's config can't work here; called on the driver, imports nothing heavy."""
        return []

    @abstractmethod
    def start(self) -> None:
        """Load the model, or make room for it where `load_format` is `dummy`."""

    @abstractmethod
    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        """Complete requests; yields as they finish, in any order, each request exactly once.

        Raises:
            IllegalOrder: asleep, without weights, or stopped.
        """

    @abstractmethod
    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """Stop requests (None means all); each still yields its completion, reason `abort`, partial output kept.

        Returns the ids that were running and are now being aborted.
        """

    @abstractmethod
    def update_weights(self, receiver: WeightReceiver) -> str:
        """Take the weights that `receiver` yields, drop what was cached under the old ones.

        Returns the digest of the names and shapes taken, which must equal the sender's.
        """

    def sleep(self) -> None:
        """Free device memory; the weights must be sent again unless the engine kept them."""

    def wake(self) -> None:
        """Undo `sleep`."""

    @abstractmethod
    def stop(self) -> None:
        """End the engine; running requests are aborted."""
