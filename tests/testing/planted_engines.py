"""Engines that do one thing wrong."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from roll_demo.engine import DemoEngine

from roll_core.inference import Completion, EngineState
from roll_core.testing.infer_contract import InferContract
from tests.testing.planted_registry import planted


class ChangesCompletions(DemoEngine):
    """Gives its completions one by one through `change`."""

    def generate(self, requests: Any) -> Iterator[Completion]:
        completions = super().generate(requests)
        return (self.change(one) for one in completions)

    def change(self, completion: Completion) -> Completion:
        raise NotImplementedError


@planted("log-probs off by a constant", InferContract, "test_log_probs_are_of_logits_over_temperature")
class OffByAConstant(ChangesCompletions):
    def change(self, completion: Completion) -> Completion:
        return replace(completion, log_probs=tuple(one - 0.25 for one in completion.log_probs))


@planted("a log-prob too few", InferContract, "test_log_probs_are_of_logits_over_temperature")
class OneTooFew(ChangesCompletions):
    def change(self, completion: Completion) -> Completion:
        return replace(completion, log_probs=completion.log_probs[1:])


@planted("greedy decoding that is not", InferContract, "test_greedy_output_is_that_of_transformers")
class NotGreedy(ChangesCompletions):
    def change(self, completion: Completion) -> Completion:
        return replace(completion, token_ids=completion.token_ids[::-1])


@planted("seeds that are ignored", InferContract, "test_samples_of_a_prompt_differ_and_seeds_repeat")
class IgnoresSeeds(DemoEngine):
    turn = 0

    def generate(self, requests: Any) -> Iterator[Completion]:
        self.turn += 1
        return super().generate([replace(one, seed=one.seed + 7919 * self.turn) for one in requests])


@planted("the stop token left out", InferContract, "test_completions_end_at_stop_tokens_and_keep_them")
class DropsStopToken(ChangesCompletions):
    def change(self, completion: Completion) -> Completion:
        if completion.finish_reason != "stop":
            return completion
        return replace(completion, token_ids=completion.token_ids[:-1], log_probs=completion.log_probs[:-1])


@planted("a request that comes back twice", InferContract, "test_greedy_output_is_that_of_transformers")
class GivesTwice(DemoEngine):
    def generate(self, requests: Any) -> Iterator[Completion]:
        for completion in super().generate(requests):
            yield from (completion, completion)


ABORT = "test_abort_ends_requests_soon_and_keeps_what_they_have"


@planted("an abort that never ends", InferContract, ABORT, deadline_s=3.0)
class AbortHangs(DemoEngine):
    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        if request_ids is not None:
            time.sleep(3600)
        return super().abort(request_ids)


@planted("aborted requests that never come back", InferContract, ABORT)
class LosesAborted(DemoEngine):
    def generate(self, requests: Any) -> Iterator[Completion]:
        return (one for one in super().generate(requests) if one.finish_reason != "abort")


@planted("an abort of everything", InferContract, ABORT)
class AbortsAll(DemoEngine):
    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        return super().abort()


@planted("an update that is confirmed and not made", InferContract, "test_after_an_update_the_output_is_the_new_models")
class IgnoresUpdates(DemoEngine):
    def update_weights(self, receiver: Any) -> str:
        return str(receiver.manifest.digest)


@planted("a version that stands still", InferContract, "test_after_an_update_the_output_is_the_new_models")
class OldVersion(ChangesCompletions):
    def change(self, completion: Completion) -> Completion:
        return replace(completion, weight_version=0)


@planted("generating while asleep", InferContract, "test_nothing_is_generated_asleep_and_wake_restores")
class NeverSleeps(DemoEngine):
    def sleep(self) -> None:
        pass


@planted("generating without weights", InferContract, "test_a_dummy_engine_waits_for_its_weights")
class AlwaysReady(DemoEngine):
    def start(self) -> None:
        super().start()
        self.lifecycle.state = EngineState.READY
