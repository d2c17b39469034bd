"""Episodes played to their ends in lockstep: all of them take a turn, then all of their environments do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.errors import RollError
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.env_dialogue import Dialogue
from roll_core.rollout.env_episode import Episode, Plan, Style
from roll_core.rollout.environments import Act, Begin, Environments
from roll_core.rollout.routing import EngineRouter
from roll_core.rollout.seeds import name_seed


class EnvRollout:
    """Plays episodes with all engines.

    Which engine answers depends on the group alone: an engine sees a trajectory's earlier turns again, and the same
    plans with the same weights give the same episodes, bit for bit, as long as no engine dies and `most_running` does
    not hold requests back; see `EngineRouter`.
    """

    def __init__(
        self,
        engines: WorkerGroup,
        pool: Environments,
        waiter: Waiter,
        dialogue: Dialogue,
        styles: Mapping[str, Style],
        seed: int,
        notify: Callable[[str], None] = lambda text: None,
        most_running: int | None = None,
    ) -> None:
        self.engines, self.pool, self.waiter = engines, pool, waiter
        self.dialogue, self.styles, self.seed = dialogue, styles, seed
        self.notify, self.most_running = notify, most_running

    def play(self, plans: Sequence[Plan], params: SamplingParams, label: str) -> list[Episode]:
        """The episodes, ended, in the order of the plans. Those that a fault of the environment ended say so."""
        router = EngineRouter(self.engines, self.waiter, self.notify, "in turn", self.most_running)
        episodes = [Episode(plan, self.styles[plan.tag], self.dialogue) for plan in plans]
        begins = [Begin(slot, plan.tag, plan.seed) for slot, plan in enumerate(plans)]
        for episode, observed in zip(episodes, self.pool.run(begins)):
            episode.begin(observed)
        while running := {slot: episode for slot, episode in enumerate(episodes) if episode.end is None}:
            self._turn(router, running, params, label)
        return episodes

    def _turn(self, router: EngineRouter, running: Mapping[int, Episode], params: SamplingParams, label: str) -> None:
        def seed_of(name: str) -> int:
            return name_seed(self.seed, name)

        requests = {slot: episode.request(params, label, seed_of) for slot, episode in running.items()}
        asked = {slot: request for slot, request in requests.items() if request is not None}
        completions = self._generate(router, [(running[slot].plan.group, one) for slot, one in asked.items()])
        acts = [Act(slot, running[slot].answered(completions[request.request_id])) for slot, request in asked.items()]
        for act, observed in zip(acts, self.pool.run(acts)):
            running[act.slot].observed(observed)

    def _generate(
        self, router: EngineRouter, requests: Sequence[tuple[int, GenerationRequest]]
    ) -> dict[str, Completion]:
        groups, keys = by_prompt(requests)
        calls = router.submit(groups, keys)
        found: dict[str, Completion] = {}
        while calls:
            for call in self.waiter.ready(calls):
                progress = router.take(call)
                found |= {one.request_id: one for one in progress.completions}
                calls += progress.begun
                if progress.is_over:
                    calls.remove(call)
        for completion in found.values():
            check_answer(completion)
        return found


def by_prompt(requests: Sequence[tuple[int, GenerationRequest]]) -> tuple[list[list[GenerationRequest]], list[int]]:
    """Requests with their keys as groups of one prompt and one key each, and their keys.

    Groups of equal prompts are beside each other, as an engine shares the reading of neighbours'.
    """
    found: dict[str, dict[int, list[GenerationRequest]]] = {}
    for key, request in requests:
        found.setdefault(request.group or request.request_id, {}).setdefault(key, []).append(request)
    groups = [(key, group) for by_key in found.values() for key, group in by_key.items()]
    return [group for _, group in groups], [key for key, _ in groups]


def check_answer(completion: Completion) -> None:
    """Whether there is a token to act on.

    Raises:
        RollError: there is none; a fault of the engine.
    """
    if not completion.token_ids:
        raise RollError(f"an engine answered {completion.request_id} without a token, though one was asked for")
