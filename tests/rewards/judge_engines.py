"""Stand-in engines for judges: they answer by a rule, hang, refuse or break down, as a test asks."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.errors import BadRequest
from roll_core.inference import Completion, GenerationRequest, InferStrategy
from roll_core.platforms.cpu import CpuPlatform


class NoOptions(BaseModel):
    """An engine without options."""


@dataclass(frozen=True)
class Characters:
    """A tokenizer of characters; 0 ends a reply."""

    stop_token_ids: tuple[int, ...] = (0,)

    def encode(self, question: str) -> tuple[int, ...]:
        return tuple(map(ord, question))

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(token) for token in token_ids if token)


@dataclass
class Scene:
    """What engines of a test do and did. `say` gives a reply; None hangs until aborted."""

    say: Callable[[str], str | None]
    longest: int = 10**6
    heeds_aborts: bool = True
    failures: int = 0
    made: int = 0
    stopped: int = 0
    calls: list[list[GenerationRequest]] = field(default_factory=list)

    def make(self) -> StandIn:
        self.made += 1
        return StandIn(self)


class StandIn(InferStrategy):
    """An engine that answers as its scene says, all requests of a call in the reverse of their order."""

    Config = NoOptions

    def __init__(self, scene: Scene) -> None:
        super().__init__(WorkerConfig(), CpuPlatform(), WorkerContext("reward-llm_judge", 0, 1))
        self.scene, self.aborted = scene, threading.Event()

    def start(self) -> None:
        """Nothing to load."""

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        self.scene.calls.append(list(requests))
        too_long = [one for one in requests if len(one.prompt_ids) > self.scene.longest]
        if too_long:
            raise BadRequest(f"request '{too_long[0].request_id}' is longer than {self.scene.longest} tokens")
        for request in reversed(requests):
            if self.scene.failures:
                self.scene.failures -= 1
                raise RuntimeError("the device fell off")
            reply = self.scene.say(Characters().decode(request.prompt_ids))
            if reply is None:
                self.aborted.wait(60)
                yield Completion(request.request_id, (), (), "abort", 0)
                continue
            token_ids = (*map(ord, reply), 0)[: request.params.max_new_tokens]
            reason: Any = "stop" if token_ids[-1] == 0 else "length"
            yield Completion(request.request_id, token_ids, (0.0,) * len(token_ids), reason, 0)

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        if self.scene.heeds_aborts:
            self.aborted.set()
        return list(request_ids or ())

    def update_weights(self, receiver: Any) -> str:
        raise AssertionError("nobody sends a judge weights")

    def stop(self) -> None:
        self.scene.stopped += 1


class ByLength(InferStrategy):
    """An engine for worker processes, with the tokenizer of the role's folder: a response of one letter is right."""

    Config = NoOptions

    def start(self) -> None:
        from roll_core.rewards.judge_text import TokenizerText

        self.text = TokenizerText(str(self.role.model_args.model_name_or_path), "base")

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        for request in requests:
            asked = self.text.decode(request.prompt_ids)
            mark = re.search(r"^[0-9a-f]{16}$", asked, re.MULTILINE)
            assert mark is not None
            response = asked.split(mark.group())[1].strip()
            verdict = "YES" if self.is_right(response) else "NO"
            token_ids = tuple(self.text.tokenizer(verdict, add_special_tokens=False)["input_ids"])
            yield Completion(request.request_id, token_ids, (0.0,) * len(token_ids), "stop", 0)

    def is_right(self, response: str) -> bool:
        return len(response) == 1

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        return []

    def update_weights(self, receiver: Any) -> str:
        raise AssertionError("nobody sends a judge weights")

    def stop(self) -> None:
        """Nothing runs."""


class BySum(ByLength):
    """Knows what 2 + 2 is, and finds half of what an untrained model says right."""

    def is_right(self, response: str) -> bool:
        return response == "The answer is 4." or (response[:3] != "The" and sum(map(ord, response)) % 2 == 0)


def save_tokenizer(folder: Path) -> Path:
    """A tokenizer of bytes, which can encode and decode any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({"<end>": 0} | {letter: n for n, letter in enumerate(alphabet, 1)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>").save_pretrained(folder)
    return folder
