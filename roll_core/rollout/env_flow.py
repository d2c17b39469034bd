"""Episodes that are played while others train: each goes on as soon as its own answer is there."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.errors import CheckpointError, RollError
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.engine_flow import POLL_S, Account, Ending, EngineFlow, check_account
from roll_core.rollout.env_collector import ATTEMPTS, GroupFilter
from roll_core.rollout.env_dialogue import Dialogue
from roll_core.rollout.env_episode import Episode, Style
from roll_core.rollout.env_groups import GroupOrder
from roll_core.rollout.env_queue import EpisodeAccount, Member, PlayedGroup
from roll_core.rollout.env_rollout import by_prompt, check_answer
from roll_core.rollout.environments import Act, Environments, Fault, Order
from roll_core.rollout.environments import Answer as EnvAnswer
from roll_core.rollout.prompt_queue import Answer
from roll_core.rollout.routing import MOST_CALLS, EngineRouter, generates
from roll_core.rollout.seeds import name_seed

_GLANCE_S = 0.003
"""How long environments are watched before engines are, where both are at work."""


@dataclass(frozen=True)
class GroupShape:
    """How groups are made: episodes of each, further ones that stand in, and groups that are played at once."""

    size: int
    redundancy: int = 0
    at_once: int = 1


class EpisodeFlow(EngineFlow[PlayedGroup]):
    """Keeps up to `room` groups open: being played, or waiting for a batch.

    An episode stays with one engine, which has read its earlier turns. Of the members of a group, the first `size` to
    end are taken. A member whose environment has a fault is played again, `ATTEMPTS` times at most; a group without
    enough members left is given up.
    """

    def __init__(
        self,
        engines: WorkerGroup,
        waiter: Waiter,
        pool: Environments,
        dialogue: Dialogue,
        styles: Mapping[str, Style],
        seed: int,
        order: GroupOrder,
        params: SamplingParams,
        shape: GroupShape,
        *,
        drops: GroupFilter | None = None,
        notify: Callable[[str], None] = lambda text: None,
        most_running: int | None = None,
    ) -> None:
        # At once: an environment that could go on must not wait for the answers of others.
        router = EngineRouter(engines, waiter, notify, "least loaded", most_running, interval_s=0.0)
        super().__init__(engines, waiter, router)
        self.pool, self.dialogue, self.styles, self.seed = pool, dialogue, styles, seed
        self.order, self.params, self.shape, self.drops = order, params, shape, drops
        self.account = Account(ended={"trained": 0, "filtered": 0, "stale": 0, "faulty": 0})
        self.episodes = EpisodeAccount()
        self.label = "async"
        """What names of requests begin with, and with them their seeds."""
        self.faults: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self._ready: deque[Member] = deque()
        self._asked: dict[str, Member] = {}
        self._unwanted: list[str] = []
        self._orders: list[Order] = []
        self._at_work: set[int] = set()
        self._by_slot: dict[int, Member] = {}
        self._free_slots: list[int] = []
        self._num_slots = 0

    def end(self, one: PlayedGroup, ending: Ending) -> None:
        """A group leaves, and whatever its members still hold is free. To be called with the lock."""
        super().end(one, ending)
        self.episodes.ended[ending] += len(one.counted())
        for member in one.members:
            self._release(member)
        self.router.forget(one.number)

    def state_dict(self) -> dict[str, Any]:
        """Every group that is open, with all that was said in it, and what will be drawn next, as JSON data."""
        with self.changed:
            return {
                "order": self.order.state_dict(),
                "account": {"drawn": self.account.drawn, "ended": dict(self.account.ended)},
                "episodes": self.episodes.state(),
                "open": [group.state() for group in self._open.values()],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: environments are brought back by playing their actions again.

        Raises:
            CheckpointError: groups have another size now.
        """
        if "open" not in state:
            # Of a run whose steps played their own episodes.
            self.order.load_state_dict(state)
            self.account.drawn = self.account.ended["trained"] = self.order.drawn
            return
        with self.changed:
            self.order.load_state_dict(state["order"])
            self.account = Account(int(state["account"]["drawn"]), dict(state["account"]["ended"]))
            self.episodes = EpisodeAccount.from_state(state["episodes"])
            for each in state["open"]:
                self._restore(each)

    def _restore(self, state: Mapping[str, Any]) -> None:
        count, size = self.shape.size + self.shape.redundancy, self.shape.size
        if state["size"] != size or len(state["members"]) != count:
            raise CheckpointError(
                f"the checkpoint holds groups of {state['size']} episodes and {len(state['members']) - state['size']} "
                f"redundant ones, the config asks for {size} and {count - size}"
                "\n  try: group_size and group_size_redundancy as in the run that made it"
            )
        group = PlayedGroup(self.order.at(state["number"]), size, done=list(state["done"]))
        self._open[group.number] = group
        for index, each in enumerate(state["members"]):
            episode = self._episode(group, index, each["attempt"])
            episode.restore(each["episode"])
            member = Member(group, episode, first_version=each["first_version"])
            group.members.append(member)
            if each["is_asking"]:
                member.request = episode.asked(self.params, self.label, self._seed_of)
                member.answer = Answer.from_state(each)
            if not member.is_done and not each["is_over"]:
                member.is_lost = member.request is not None
                slot = self._take_slot(member)
                self._orders.append(member.order(slot))

    def _next_requests(self) -> list[list[GenerationRequest]]:
        playing = sum(not group.is_done for group in self._open.values())
        while len(self._open) < self.room and playing < self.shape.at_once:
            self._begin_group()
            playing += 1
        if sum(map(generates, self._running)) >= MOST_CALLS:
            return []
        asked = []
        while self._ready:
            member = self._ready.popleft()
            if member.slot is not None:
                asked.append((member.group.number, self._ask(member)))
        return by_prompt(asked)[0]

    def _submit(self, requests: Sequence[Sequence[GenerationRequest]]) -> list[Call]:
        return self.router.submit(requests, [self._asked[group[0].request_id].group.number for group in requests])

    def _ask(self, member: Member) -> GenerationRequest:
        """The request for what is missing of a member's next answer."""
        request, answer = member.request, member.answer
        assert request is not None
        if not member.episode.turns and not answer.num_tokens:
            member.first_version = self.version
        name = member.request_id = f"{request.request_id}/{answer.attempts}"
        answer.is_running = True
        self._asked[name] = member
        seed = self._seed_of(name) if answer.attempts else request.seed
        return answer.rest_of(replace(request, request_id=name, seed=seed))

    def _withdrawn(self, request: GenerationRequest) -> None:
        member = self._asked.pop(request.request_id, None)
        if member is not None:
            member.request_id, member.answer.is_running = "", False
            self._ready.append(member)

    def _answered(self, finished: Sequence[Completion]) -> None:
        with self.changed:
            for part in finished:
                member = self._asked.pop(part.request_id, None)
                if member is None:
                    continue  # Its group has left.
                member.request_id = ""
                assert member.request is not None
                if not member.answer.take(part, member.request.params.max_new_tokens):
                    self.resumed += 1
                    self._ready.append(member)
                    continue
                completion = member.answer.completion
                assert completion is not None and member.slot is not None
                check_answer(completion)
                member.request, member.answer = None, Answer()
                self._orders.append(Act(member.slot, member.episode.answered(completion)))
                self._at_work.add(member.slot)

    def _is_idle(self) -> bool:
        return super()._is_idle() and not self._at_work and not self._orders and not self._unwanted

    def _look(self) -> list[Call]:
        with self.changed:
            orders, self._orders = self._orders, []
            unwanted, self._unwanted = self._unwanted, []
        if unwanted:
            self._running += self.engines.submit("abort", unwanted)
        if orders:
            self.pool.submit(orders)
        if not self._at_work:
            return super()._look()
        answers = self.pool.poll(_GLANCE_S if self._running else POLL_S)
        if answers:
            with self.changed:
                for slot, answer in answers:
                    self._observed(slot, answer)
        return self.waiter.poll(self._running, 0.0)

    def _leave(self) -> None:
        self.pool.close()

    def _observed(self, slot: int, answer: EnvAnswer) -> None:
        self._at_work.discard(slot)
        member = self._by_slot.get(slot)
        if member is None:
            heapq.heappush(self._free_slots, slot)  # Its group has left.
            return
        episode, was_lost = member.episode, member.is_lost
        member.is_lost = False
        if was_lost and not isinstance(answer, Fault):
            self._ready.append(member)
            return
        if episode.turns:
            episode.observed(answer)
        else:
            episode.begin(answer)
        if episode.end is None:
            member.request = episode.request(self.params, self.label, self._seed_of)
        if episode.end is None:
            self._ready.append(member)
        else:
            self._over(member)

    def _over(self, member: Member) -> None:
        """A member's episode has ended, well or by a fault."""
        self._release(member)
        group, plan, fault = member.group, member.episode.plan, member.episode.fault
        if fault is None:
            group.done.append(plan.member)
            if group.is_done:
                self._complete(group)
            return
        self.episodes.ended["fault"] += 1
        self.faults[fault.kind] += 1
        self.reasons[f"{plan.tag}: {fault.kind}: {fault.reason}"] += 1
        if plan.attempt + 1 < ATTEMPTS:
            group.members[plan.member] = self._begin_episode(group, plan.member, plan.attempt + 1)
        elif sum(not one.is_over for one in group.members) < group.size:
            self.end(group, "faulty")

    def _complete(self, group: PlayedGroup) -> None:
        for member in group.members:
            if not member.is_done and not member.is_over:
                self.episodes.ended["spare"] += 1
                self._release(member)
        if self.drops is not None and self.drops(group.start, [one.episode for one in group.chosen()]):
            self.end(group, "filtered")
        self.changed.notify_all()

    def _begin_group(self) -> None:
        group = PlayedGroup(self.order.next(), self.shape.size)
        self.account.drawn += 1
        self._open[group.number] = group
        for index in range(self.shape.size + self.shape.redundancy):
            group.members.append(self._begin_episode(group, index, 0))

    def _begin_episode(self, group: PlayedGroup, index: int, attempt: int) -> Member:
        member = Member(group, self._episode(group, index, attempt))
        self.episodes.drawn += 1
        slot = self._take_slot(member)
        self._orders.append(member.order(slot))
        return member

    def _episode(self, group: PlayedGroup, index: int, attempt: int) -> Episode:
        return Episode(group.start.plan(index, attempt), self.styles[group.start.tag], self.dialogue)

    def _take_slot(self, member: Member) -> int:
        """An environment for a member; it is at work from here on."""
        if self._free_slots:
            slot = heapq.heappop(self._free_slots)
        else:
            slot, self._num_slots = self._num_slots, self._num_slots + 1
        member.slot = slot
        self._by_slot[slot] = member
        self._at_work.add(slot)
        return slot

    def _release(self, member: Member) -> None:
        """A member needs its environment and its engine no more."""
        if member.slot is not None:
            del self._by_slot[member.slot]
            if member.slot not in self._at_work:
                heapq.heappush(self._free_slots, member.slot)
            member.slot = None
        if member.request_id:
            del self._asked[member.request_id]
            self._unwanted.append(member.request_id)
            member.request_id = ""

    def _seed_of(self, name: str) -> int:
        return name_seed(self.seed, name)


def check_episodes(flow: EpisodeFlow) -> None:
    """Every group and every episode that was begun was trained, dropped or is open. To be called with the lock.

    Raises:
        RollError: one was lost or counted twice; a fault of roll-core.
    """
    check_account(flow)
    expected, found = flow.episodes.open_by_account(), sum(len(one.counted()) for one in flow.open_rollouts())
    if expected != found:
        raise RollError(f"the account of episodes is wrong: {expected} must be open, {found} are ({flow.episodes})")
