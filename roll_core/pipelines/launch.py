"""Starting the workers of every role, all at the same time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.infer_worker import InferWorker
from roll_core.cluster.nodes import Node, Place, cluster_nodes, own_place, place
from roll_core.cluster.reward_workers import JudgeActor, RewardActor
from roll_core.cluster.spec import WorkerSpec
from roll_core.cluster.train_worker import TrainWorker
from roll_core.config.environment import role_environment
from roll_core.config.judges import judge_engine, judge_prompt, judge_sampling, judge_template
from roll_core.config.resolution import reference_of
from roll_core.config.reward_options import reward_options
from roll_core.config.schema import AgenticConfig, PPOConfig, RewardConfig, RLVRConfig, WorkerConfig
from roll_core.context import WorkerContext
from roll_core.errors import RollError
from roll_core.objects import absolute_spec
from roll_core.pipelines.sampling import sampling_params
from roll_core.platforms import Platform
from roll_core.resolve import Resolved, ResolvedPlatform
from roll_core.rollout.routing import MOST_CALLS
from roll_core.training import TrainPlan

if TYPE_CHECKING:
    from roll_core.pipelines.delivery import TransportChoice

ENGINE_THREADS = 8
"""Calls an engine answers at once: one that generates, and room for aborts while it does."""


REWARD_THREADS = 64
"""Calls a reward worker takes at once: samples that come while others are being scored join them. A call ends with its
slowest sample, so that with few of them quick samples would wait for the slow ones of earlier calls."""


@dataclass(frozen=True)
class Setting:
    """What was decided on the driver before any worker starts."""

    config: PPOConfig
    platform: Platform
    resolved_platform: ResolvedPlatform
    strategies: Mapping[str, Resolved]
    plugins: Mapping[str, str]
    log_dir: Path
    notices: Sequence[str] = ()
    transport: TransportChoice | None = None

    @property
    def rolls_by_reference(self) -> bool:
        """Whether workers put what they sample into the transport: a step's rows never pass through the driver."""
        return self.transport is not None and self.transport.transport_class.reaches_workers


@dataclass(frozen=True)
class Site:
    """What workers are started from that need no strategy, as plain data: a worker may start some, too."""

    config: PPOConfig
    platform_target: str
    plugins: Mapping[str, str]
    log_dir: Path
    nodes: Sequence[Node]


def site_of(setting: Setting) -> Site:
    """Where a run's workers are started; Ray has to be up.

    Raises:
        RollError: too few nodes, see `cluster_nodes`.
    """
    config, platform = setting.config, setting.platform
    nodes = cluster_nodes(platform, config.node_count, config.devices_per_node(platform))
    return Site(config, setting.resolved_platform.target, setting.plugins, setting.log_dir, nodes)


@dataclass
class Crew:
    """The workers of a run, by role."""

    actor_train: WorkerGroup
    actor_infer: WorkerGroup
    reference: WorkerGroup | None = None
    critic: WorkerGroup | None = None
    rewards: dict[str, WorkerGroup] = field(default_factory=dict)
    shaping: WorkerGroup | None = None
    episodes: WorkerGroup | None = None

    @property
    def trainers(self) -> list[WorkerGroup]:
        """Roles that hold a trained or scoring model."""
        return [group for group in (self.actor_train, self.critic, self.reference) if group is not None]

    @property
    def groups(self) -> list[WorkerGroup]:
        """All of them."""
        helpers = [group for group in (self.shaping, self.episodes) if group is not None]
        return [*self.trainers, self.actor_infer, *self.rewards.values(), *helpers]


@dataclass
class Engines:
    """The workers of a run that trains nothing."""

    actor_infer: WorkerGroup
    rewards: dict[str, WorkerGroup] = field(default_factory=dict)

    @property
    def trainers(self) -> list[WorkerGroup]:
        """None."""
        return []

    @property
    def groups(self) -> list[WorkerGroup]:
        """All of them."""
        return [self.actor_infer, *self.rewards.values()]


def launch_engines(setting: Setting, site: Site, waiter: Waiter) -> Engines:
    """Start the processes of a run that trains nothing; returns at once."""
    config, start = setting.config, _Start(setting, site)
    rewards = config.rewards if isinstance(config, RLVRConfig) else {}
    engines = Engines(
        actor_infer=start.role("actor_infer", config.actor_infer, InferWorker, threads=ENGINE_THREADS),
        rewards={domain: start.reward(domain, reward) for domain, reward in rewards.items()},
    )
    for group in engines.groups:
        waiter.watch(group)
    return engines


def launch(setting: Setting, site: Site, waiter: Waiter) -> Crew:
    """Start every role's processes; returns at once."""
    config, start = setting.config, _Start(setting, site)
    rewards = config.rewards if isinstance(config, RLVRConfig) else {}
    crew = Crew(
        actor_train=start.role("actor_train", config.actor_train, TrainWorker),
        actor_infer=start.role("actor_infer", config.actor_infer, InferWorker, threads=_engine_threads(config)),
        reference=start.role("reference", config.reference or reference_of(config), TrainWorker)
        if config.needs_reference
        else None,
        critic=start.role("critic", config.critic, TrainWorker) if config.needs_critic and config.critic else None,
        rewards={domain: start.reward(domain, reward) for domain, reward in rewards.items()},
        shaping=start.shaping() if setting.rolls_by_reference else None,
    )
    if isinstance(config, AgenticConfig) and setting.rolls_by_reference:
        crew.episodes = start.episodes(config, crew.actor_infer)
    for group in crew.groups:
        waiter.watch(group)
    return crew


def set_up(crew: Crew | Engines, waiter: Waiter, plans: Mapping[str, TrainPlan]) -> None:
    """Let every role load what it needs.

    Raises:
        RollError: a model, an engine or a reward cannot be used; the worker's own message.
    """
    firsts = [group.submit_to(0, "facts") for group in crew.trainers]
    calls: list[Call] = crew.actor_infer.submit("start")
    tests = [call for group in crew.rewards.values() for call in group.submit("self_test")]
    for group, facts in zip(crew.trainers, waiter.wait(firsts)):
        port = facts.port if len(group) > 1 else 0
        calls += group.submit("setup", facts.address, port, plans.get(group.role))
    waiter.wait(calls)
    complaints = [line for lines in waiter.wait(tests) for line in lines]
    if complaints:
        listed = "".join(f"\n  {line}" for line in dict.fromkeys(complaints))
        raise RollError(f"a reward would give wrong verdicts on this installation{listed}")


def _engine_threads(config: PPOConfig) -> int:
    """Rollouts that never stop are sent to engines prompt by prompt, each of them a call of its own."""
    if isinstance(config, AgenticConfig):
        return ENGINE_THREADS + (MOST_CALLS if config.has_free_pace else 0)
    if config.async_generation_ratio == 0:
        return ENGINE_THREADS
    extra = config.max_additional_running_prompts if config.is_use_additional_prompts else 0
    return ENGINE_THREADS + math.ceil(config.rollout_batch_size * (1 + config.async_generation_ratio)) + extra


@dataclass(frozen=True)
class _Start:
    setting: Setting
    site: Site

    def role(self, name: str, role: WorkerConfig, worker_class: type, *, threads: int = 1) -> WorkerGroup:
        devices = list(role.device_mapping or range(role.world_size or 1))
        places = place(devices, max(1, role.num_gpus_per_worker), self.site.nodes)
        target = self.setting.strategies[name].backend.target
        specs = [self._spec(name, role, rank, len(places), target) for rank in range(len(places))]
        environment = role_environment(self.setting.config, role, name, self.setting.platform)
        return WorkerGroup.launch(worker_class, specs, places, self.setting.platform, environment, threads=threads)

    def judge(self, domain: str, reward: RewardConfig, path: str, engine: WorkerConfig) -> WorkerGroup:
        """Engines on their devices, each of which judges what it is given of the domain."""
        places = place(engine.devices, max(1, engine.num_gpus_per_worker), self.site.nodes)
        name, target = f"reward-{domain}", self.setting.strategies[path].backend.target
        specs = [self._spec(name, engine, rank, len(places), target) for rank in range(len(places))]
        settings = {
            "name": reward.judge_model_name or Path(engine.model_args.model_name_or_path or "").name,
            "deadline_s": reward.timeout_s,
            "count_as_zero": reward.ungraded == "zero",
        }
        return WorkerGroup.launch(
            JudgeActor,
            specs,
            places,
            self.setting.platform,
            role_environment(self.setting.config, engine, name, self.setting.platform),
            threads=REWARD_THREADS,
            arguments=(
                judge_prompt(reward),
                judge_template(engine),
                sampling_params(judge_sampling(engine), ()),
                settings,
            ),
            restartable=True,
        )

    def reward(self, domain: str, reward: RewardConfig) -> WorkerGroup:
        config = self.setting.config
        engine = judge_engine(config, domain) if isinstance(config, RLVRConfig) else None
        if engine is not None:
            return self.judge(domain, reward, *engine)
        count = reward.world_size or 1
        specs = [self._spec(f"reward-{domain}", reward, rank, count, "") for rank in range(count)]
        homes: list[Place | None] = [None] * count
        environment = role_environment(self.setting.config, reward, f"reward-{domain}", self.setting.platform)
        settings = {
            "deadline_s": reward.timeout_s,
            "num_processes": reward.num_processes,
            "count_as_zero": reward.ungraded == "zero",
        }
        spec = absolute_spec(reward.worker_cls or domain)
        return WorkerGroup.launch(
            RewardActor,
            specs,
            homes,
            self.setting.platform,
            environment,
            threads=REWARD_THREADS,
            arguments=(spec, reward_options(domain, reward), settings),
            restartable=True,
        )

    def shaping(self) -> WorkerGroup:
        from roll_core.pipelines.shaping_worker import ShapingWorker

        return self._helper("shaping", WorkerConfig(), ShapingWorker, self.setting.config)

    def episodes(self, config: AgenticConfig, engines: WorkerGroup) -> WorkerGroup:
        from roll_core.pipelines.episode_worker import EpisodeWorker

        return self._helper("episodes", config.train_env_manager, EpisodeWorker, self.site, engines.link())

    def _helper(self, name: str, role: WorkerConfig, worker_class: type, *arguments: Any) -> WorkerGroup:
        """A process without a device, on the driver's node: it writes files for it."""
        platform, specs = self.setting.platform, [self._spec(name, role, 0, 1, "")]
        environment = role_environment(self.setting.config, role, name, platform)
        return WorkerGroup.launch(worker_class, specs, [own_place()], platform, environment, arguments=arguments)

    def _spec(self, name: str, role: WorkerConfig, rank: int, world_size: int, strategy: str) -> WorkerSpec:
        return worker_spec(self.site, name, role, rank, world_size, strategy)


def worker_spec(site: Site, name: str, role: WorkerConfig, rank: int, world_size: int, strategy: str) -> WorkerSpec:
    """What a worker of a role is told; `strategy` is the target of its strategy, or empty."""
    context = WorkerContext(
        role=name, rank=rank, world_size=world_size, seed=site.config.seed, timeout_s=60.0 * role.backend_timeout
    )
    return WorkerSpec(
        context=context,
        role=role,
        platform_target=site.platform_target,
        strategy_target=strategy,
        plugins=site.plugins,
        log_file=site.log_dir / f"{name}-{rank}.log",
        working_dir=Path.cwd(),
    )
