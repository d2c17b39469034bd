"""Generation with rewards overlapped: samples are scored while others are still being generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.data.prompts import Prompt
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rewards import RewardSample, Score
from roll_core.rollout.reward_router import RewardRouter
from roll_core.rollout.sample import Sample, requests_for

YIELD_INTERVAL_S = 0.05
"""How often an engine hands over what it has finished. A message costs about a millisecond on both sides."""


class TextDecoder(Protocol):
    """What is needed of a tokenizer here."""

    def batch_decode(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        """Texts of token id sequences."""


class RolloutScheduler:
    """Turns prompts into scored samples with all engines and all reward workers.

    Which engine takes which prompt depends on nothing but their order, so that the same prompts give the
    same samples, bit for bit, whenever they are generated again with the same weights.
    """

    def __init__(
        self, engines: WorkerGroup, rewards: RewardRouter, waiter: Waiter, tokenizer: TextDecoder, seed: int
    ) -> None:
        self.engines, self.rewards, self.waiter = engines, rewards, waiter
        self.tokenizer, self.seed = tokenizer, seed

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_samples: int,
        params: SamplingParams,
        label: str,
        *,
        first_group: int = 0,
    ) -> list[Sample]:
        """`num_samples` scored samples for each prompt, in the order of the prompts.

        `label` is purpose and step ("train/3"); with `first_group` it makes request ids and seeds unique.
        """
        requests = requests_for(prompts, first_group, num_samples, params, self.seed, label)
        prompt_of = {
            request.request_id: (first_group + position // num_samples, prompts[position // num_samples])
            for position, request in enumerate(requests)
        }
        completions: dict[str, tuple[Completion, str]] = {}
        scores: dict[str, Score] = {}
        running = self._start(requests, num_samples)
        while running:
            for call in self.waiter.ready(running):
                if call.method != "generate":
                    running.remove(call)
                    [result] = self.waiter.wait([call])
                    scores |= self.rewards.collect(call, result)
                    continue
                finished = self.waiter.take(call)
                if finished is None:
                    running.remove(call)
                    continue
                texts = self.decode(finished)
                completions |= {c.request_id: (c, text) for c, text in zip(finished, texts)}
                running += self.score(finished, texts, {c.request_id: prompt_of[c.request_id][1] for c in finished})
        return [
            Sample(prompt, group, *completions[request_id], scores[request_id])
            for request_id, (group, prompt) in prompt_of.items()
        ]

    def _start(self, requests: Sequence[GenerationRequest], num_samples: int) -> list[Call]:
        # Whole groups, dealt round robin: an engine prefills a prompt once for all of its samples.
        shares: list[list[GenerationRequest]] = [[] for _ in range(len(self.engines))]
        for position, request in enumerate(requests):
            shares[position // num_samples % len(shares)].append(request)
        return [
            self.engines.submit_to(rank, "generate", share, YIELD_INTERVAL_S)
            for rank, share in enumerate(shares)
            if share
        ]

    def decode(self, completions: Sequence[Completion]) -> list[str]:
        """Texts of responses, without special tokens."""
        return self.tokenizer.batch_decode(
            [completion.token_ids for completion in completions], skip_special_tokens=True
        )

    def score(
        self, completions: Sequence[Completion], texts: Sequence[str], prompts: Mapping[str, Prompt]
    ) -> list[Call]:
        """Have responses scored; `prompts` by request id. Results go to the reward router's `collect`."""
        by_domain: dict[str, dict[str, RewardSample]] = {}
        for completion, text in zip(completions, texts):
            prompt = prompts[completion.request_id]
            samples = by_domain.setdefault(prompt.domain, {})
            samples[completion.request_id] = self._reward_sample(prompt, text)
        return [call for domain, samples in by_domain.items() for call in self.rewards.submit(domain, samples)]

    def _reward_sample(self, prompt: Prompt, response: str) -> RewardSample:
        row = prompt.row
        [rendered] = self.tokenizer.batch_decode([prompt.token_ids], skip_special_tokens=False)
        return RewardSample(row.id, rendered, response, row.ground_truth, row.tag, row.fields, row.prompt)
