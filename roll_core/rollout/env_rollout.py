"""Episodes played to their ends: all of them take a turn, then all of their environments do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.errors import RollError
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.env_dialogue import Dialogue
from roll_core.rollout.env_episode import Episode, Plan, Style
from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.env_process import Act, Begin
from roll_core.rollout.routing import YIELD_INTERVAL_S


class EnvRollout:
    """Plays episodes with all engines.

    Which engine answers depends on the group alone: an engine sees a trajectory's earlier turns again, and the same
    plans with the same weights give the same episodes, bit for bit.
    """

    def __init__(
        self,
        engines: WorkerGroup,
        pool: EnvPool,
        waiter: Waiter,
        dialogue: Dialogue,
        styles: Mapping[str, Style],
        seed: int,
    ) -> None:
        self.engines, self.pool, self.waiter = engines, pool, waiter
        self.dialogue, self.styles, self.seed = dialogue, styles, seed

    def play(self, plans: Sequence[Plan], params: SamplingParams, label: str) -> list[Episode]:
        """The episodes, ended, in the order of the plans. Those that a fault of the environment ended say so."""
        episodes = [Episode(plan, self.styles[plan.tag], self.dialogue) for plan in plans]
        begins = [Begin(slot, plan.tag, plan.seed) for slot, plan in enumerate(plans)]
        for episode, observed in zip(episodes, self.pool.run(begins)):
            episode.begin(observed)
        while running := {slot: episode for slot, episode in enumerate(episodes) if episode.end is None}:
            self._turn(running, params, label)
        return episodes

    def _turn(self, running: Mapping[int, Episode], params: SamplingParams, label: str) -> None:
        requests = {slot: episode.request(params, label, self._seed_of) for slot, episode in running.items()}
        asked = {slot: request for slot, request in requests.items() if request is not None}
        completions = self._generate({slot: (running[slot].plan.group, one) for slot, one in asked.items()})
        acts = [Act(slot, running[slot].answered(completions[request.request_id])) for slot, request in asked.items()]
        for act, observed in zip(acts, self.pool.run(acts)):
            running[act.slot].observed(observed)

    def _generate(self, requests: Mapping[int, tuple[int, GenerationRequest]]) -> dict[str, Completion]:
        shares: list[list[GenerationRequest]] = [[] for _ in range(len(self.engines))]
        for group, request in requests.values():
            shares[group % len(shares)].append(request)
        calls = [
            self.engines.submit_to(rank, "generate", together(share), YIELD_INTERVAL_S)
            for rank, share in enumerate(shares)
            if share
        ]
        found: dict[str, Completion] = {}
        while calls:
            for call in self.waiter.ready(calls):
                finished = self.waiter.take(call)
                if finished is None:
                    calls.remove(call)
                    continue
                found |= {one.request_id: one for one in finished}
        empty = [name for name, one in found.items() if not one.token_ids]
        if empty:
            raise RollError(f"an engine answered {empty[0]} without a token, though one was asked for")
        return found

    def _seed_of(self, name: str) -> int:
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1


def together(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    """The requests with those of equal prompts beside each other, as an engine shares the reading of neighbours'."""
    by_prompt: dict[str, list[GenerationRequest]] = {}
    for request in requests:
        by_prompt.setdefault(request.group, []).append(request)
    return [request for same in by_prompt.values() for request in same]
