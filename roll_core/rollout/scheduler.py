"""Generation with rewards overlapped: samples are scored while others are still being generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.data.answers import RowStore
from roll_core.data.prompts import Prompt
from roll_core.inference import Completion, SamplingParams
from roll_core.rewards import RewardSample, Score
from roll_core.rollout.reward_router import RemoteResponses, RewardRouter
from roll_core.rollout.routing import AnswerStore, EngineRouter, Order, generates
from roll_core.rollout.sample import Sample, requests_for


class TextDecoder(Protocol):
    """What is needed of a tokenizer here."""

    def batch_decode(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        """Texts of token id sequences."""


class RolloutScheduler:
    """Turns prompts into scored samples with all engines and all reward workers.

    Prompts are dealt to engines in turn; see `EngineRouter` for what that promises, for `most_running` requests per
    engine, and for what happens when one of several engines dies.
    """

    def __init__(
        self,
        engines: WorkerGroup,
        rewards: RewardRouter,
        waiter: Waiter,
        tokenizer: TextDecoder,
        seed: int,
        most_running: int | None = None,
    ) -> None:
        self.engines, self.rewards, self.waiter = engines, rewards, waiter
        self.tokenizer, self.seed, self.most_running = tokenizer, seed, most_running
        waiter.unwatch_peers(engines)

    def router(self, order: Order, store: AnswerStore | None = None) -> EngineRouter:
        """A way to the engines, for one user at a time."""
        return EngineRouter(self.engines, self.waiter, self.rewards.notify, order, self.most_running, store=store)

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_samples: int,
        params: SamplingParams,
        label: str,
        *,
        first_group: int = 0,
        store: AnswerStore | None = None,
    ) -> list[Sample]:
        """`num_samples` scored samples for each prompt, in the order of the prompts.

        `label` is purpose and step ("train/3"); with `first_group` it makes request ids and seeds unique. With a
        `store`, tokens and texts stay there: the samples' completions are `RemoteCompletion`s, their texts empty.
        """
        requests = requests_for(prompts, first_group, num_samples, params, self.seed, label)
        prompt_of = {
            request.request_id: (first_group + position // num_samples, prompts[position // num_samples])
            for position, request in enumerate(requests)
        }
        completions: dict[str, tuple[Completion, str]] = {}
        scores: dict[str, Score] = {}
        router = self.router("in turn", store)
        running = router.submit(
            [requests[start : start + num_samples] for start in range(0, len(requests), num_samples)]
        )
        while running:
            for call in self.waiter.ready(running):
                if not generates(call):
                    running.remove(call)
                    [result] = self.waiter.wait([call])
                    scores |= self.rewards.collect(call, result)
                    continue
                progress = router.take(call)
                running += progress.begun
                if progress.is_over:
                    running.remove(call)
                finished = progress.completions
                if not finished:
                    continue
                texts = self.decode(finished)
                completions |= {c.request_id: (c, text) for c, text in zip(finished, texts)}
                asked = {c.request_id: prompt_of[c.request_id][1] for c in finished}
                running += self.score(finished, texts, asked, None if store is None else store.rows)
        return [
            Sample(prompt, group, *completions[request_id], scores[request_id])
            for request_id, (group, prompt) in prompt_of.items()
        ]

    def decode(self, completions: Sequence[Completion]) -> list[str]:
        """Texts of responses, without special tokens; empty where the tokens are in a transport."""
        return self.tokenizer.batch_decode(
            [completion.token_ids for completion in completions], skip_special_tokens=True
        )

    def score(
        self,
        completions: Sequence[Completion],
        texts: Sequence[str],
        prompts: Mapping[str, Prompt],
        store: RowStore | None = None,
    ) -> list[Call]:
        """Have responses scored; `prompts` by request id. Results go to the reward router's `collect`."""
        responses = None
        if store is not None:
            responses = RemoteResponses({one.request_id: one for one in completions}, store)
        by_domain: dict[str, dict[str, RewardSample]] = {}
        for completion, text in zip(completions, texts):
            prompt = prompts[completion.request_id]
            samples = by_domain.setdefault(prompt.domain, {})
            samples[completion.request_id] = self._reward_sample(prompt, text)
        return [
            call for domain, samples in by_domain.items() for call in self.rewards.submit(domain, samples, responses)
        ]

    def _reward_sample(self, prompt: Prompt, response: str) -> RewardSample:
        row = prompt.row
        ids = prompt.token_ids if prompt.pictures is None else prompt.pictures.short_ids
        [rendered] = self.tokenizer.batch_decode([ids], skip_special_tokens=False)
        return RewardSample(row.id, rendered, response, row.ground_truth, row.tag, row.fields, row.prompt)
