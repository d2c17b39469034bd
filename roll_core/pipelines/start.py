"""From a config that passed its checks to a running pipeline, and down again."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roll_core.checkpoint import CheckpointFolder, Resume
from roll_core.cluster.calls import Waiter
from roll_core.cluster.session import open_session
from roll_core.config.schema import GeneratingArgs, PPOConfig, RLVRConfig
from roll_core.display import RunDisplay
from roll_core.pipelines.delivery import Delivery, opened
from roll_core.pipelines.inputs import Inputs, prepare_inputs, read_rows
from roll_core.pipelines.interrupts import Interrupts
from roll_core.pipelines.launch import Crew, Setting, Site, launch, set_up, site_of
from roll_core.trackers import RunInfo, RunTrackers, open_trackers, read_metrics
from roll_core.training import TrainPlan

if TYPE_CHECKING:
    from roll_core.pipelines.agentic_shaping import EpisodeShaper
    from roll_core.pipelines.rlvr import Parts, RlvrPipeline, Source
    from roll_core.pipelines.shaping import Shaper
    from roll_core.pipelines.validation import Validation
    from roll_core.rollout.answer_shelf import AnswerShelf
    from roll_core.rollout.scheduler import RolloutScheduler

Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves. Accuracies are shares of held-out answers that are right, before and after."""

    steps: int
    first_accuracy: float | None
    last_accuracy: float | None
    seconds: float
    checkpoint: Path | None
    locations: dict[str, str]
    results: tuple[str, ...] = ()
    """Further lines for the terminal."""


@dataclass(frozen=True)
class Started:
    """What every pipeline is assembled from, once its workers have loaded their models."""

    setting: Setting
    site: Site
    display: RunDisplay
    crew: Crew
    waiter: Waiter
    folder: CheckpointFolder
    trackers: RunTrackers
    interrupts: Interrupts
    delivery: Delivery


@dataclass(frozen=True)
class Recipe(Generic[Prepared]):
    """What differs between pipelines: how inputs are prepared, while workers start, and how a pipeline is made.

    `prepare` is given a function for notices.
    """

    prepare: Callable[[Callable[[str], None]], Prepared]
    assemble: Callable[[Started, Prepared], RlvrPipeline]


def run_rlvr(setting: Setting, display: RunDisplay) -> Outcome:
    """Run an RLVR config.

    Raises:
        RollError: data, checkpoint, model, cluster or a worker; what was finished is saved where it can be.
        KeyboardInterrupt: Ctrl-C or SIGTERM; likewise.
    """
    config = setting.config
    assert isinstance(config, RLVRConfig), "other kinds of config have recipes of their own"
    rows = read_rows(config)
    return run_pipeline(setting, display, Recipe(partial(prepare_inputs, config, rows), partial(_assemble, config)))


def run_pipeline(setting: Setting, display: RunDisplay, recipe: Recipe[Prepared]) -> Outcome:
    """Run a pipeline from its checkpoint, if there is one, to its last step; raises as `run_rlvr`."""
    config, started, interrupts = setting.config, time.monotonic(), Interrupts()
    folder = CheckpointFolder(config.checkpoint_dir, config.max_ckpt_to_keep, display.notice)
    folder.clean()
    resume = folder.find(config.resume_from_checkpoint)
    if resume is not None:
        display.going_on(resume.step)
        if resume.step >= config.max_steps:
            display.notice(
                f"nothing to do: {resume.path} is the end of step {resume.step}, and max_steps is {config.max_steps}"
            )
            return Outcome(resume.step, None, None, time.monotonic() - started, resume.path, {})
    trackers = _open_trackers(config, display, resume)
    try:
        display.phase("starting Ray")
        # Importing what tokenises takes seconds, in which Ray and the workers start.
        notices: list[str] = []
        background = ThreadPoolExecutor(1, "inputs")
        preparing = background.submit(recipe.prepare, notices.append)
        background.shutdown(wait=False)
        helper_cpus = setting.transport.num_cpus if setting.transport is not None else 0
        session = open_session(setting.platform, config.ray_address, helper_cpus)
        with session, interrupts.listening(), ExitStack() as stack:
            waiter = Waiter(config.rpc_timeout)
            site = site_of(setting)
            display.phase("starting workers")
            crew = launch(setting, site, waiter)
            display.phase("loading models")
            set_up(crew, waiter, train_plans(config))
            delivery = stack.enter_context(opened(setting.transport, crew.trainers, waiter))
            inputs = preparing.result()
            for notice in notices:
                display.notice(notice)
            parts = Started(setting, site, display, crew, waiter, folder, trackers, interrupts, delivery)
            pipeline = recipe.assemble(parts, inputs)
            if resume is not None:
                pipeline.parts.recovery.restore(resume)
                pipeline.parts.reporter.recall(read_metrics(Path(trackers.locations["jsonl"])))
                display.notice(f"going on after step {resume.step}, from {resume.path}")
            pipeline.run()
    finally:
        trackers.close()
    reporter, recovery = pipeline.parts.reporter, pipeline.parts.recovery
    return Outcome(
        steps=recovery.step,
        first_accuracy=reporter.first_accuracy,
        last_accuracy=reporter.last_accuracy,
        seconds=time.monotonic() - started,
        checkpoint=recovery.last_path,
        locations=trackers.locations,
    )


def train_plans(config: PPOConfig) -> dict[str, TrainPlan]:
    """How many optimiser steps each trained role will take, for its schedule."""
    plans = {}
    for name, role, epochs in (("actor_train", config.actor_train, config.ppo_epochs), ("critic", config.critic, 1)):
        if role is not None:
            each = -(-config.samples_per_step // role.mini_batch_size) * epochs
            plans[name] = TrainPlan(max(1, config.max_steps) * each, config.max_grad_norm)
    return plans


def _open_trackers(config: PPOConfig, display: RunDisplay, resume: Resume | None) -> RunTrackers:
    info = tracker_info(config, display, resume.step if resume is not None else None)
    return open_trackers(config.track_with, config.tracker_kwargs, info)


def tracker_info(config: PPOConfig, display: RunDisplay, resumed_step: int | None) -> RunInfo:
    """What trackers are told of a run; `resumed_step` is the last one that an earlier run finished."""
    return RunInfo(
        exp_name=config.exp_name,
        output_dir=Path(config.output_dir),
        run_dir=config.run_dir,
        config=config.model_dump(mode="json"),
        resumed_step=resumed_step,
        warn=display.notice,
    )


def make_parts(
    started: Started,
    *,
    collector: Source,
    shaper: Shaper | EpisodeShaper,
    pad_token_id: int,
    tokenizer: Any,
    validation: Validation | None = None,
) -> Parts:
    """The parts of a pipeline: those given, and those that are alike in all of them."""
    from roll_core.pipelines.recovery import Recovery
    from roll_core.pipelines.reporting import Reporter
    from roll_core.pipelines.rlvr import Parts
    from roll_core.pipelines.turns import DeviceTurns
    from roll_core.rollout.weight_update import WeightUpdate

    config, crew, waiter = started.setting.config, started.crew, started.waiter
    bucket_bytes = config.model_update_buffer_size_mb * 2**20
    return Parts(
        config=config,
        crew=crew,
        waiter=waiter,
        collector=collector,
        validation=validation,
        weights=WeightUpdate(crew.actor_train, crew.actor_infer, waiter, bucket_bytes),
        turns=DeviceTurns(config, started.setting.platform, crew.trainers, crew.actor_infer, waiter),
        shaper=shaper,
        recovery=Recovery(config, started.folder, crew, waiter, collector, shaper, started.interrupts),
        reporter=Reporter(config, started.trackers, started.display, tokenizer.decode),
        pad_token_id=pad_token_id,
        delivery=started.delivery,
    )


def _assemble(config: RLVRConfig, started: Started, inputs: Inputs) -> RlvrPipeline:
    from roll_core.pipelines.rlvr import RlvrPipeline
    from roll_core.pipelines.shaping import Shaper
    from roll_core.rollout.reward_router import RewardRouter
    from roll_core.rollout.scheduler import RolloutScheduler

    crew, display = started.crew, started.display
    rewards = RewardRouter(crew.rewards, display.notice)
    scheduler = RolloutScheduler(
        crew.actor_infer, rewards, started.waiter, inputs.tokenizer, config.seed, config.most_running
    )
    shelf = _shelf(config, inputs, started)
    return RlvrPipeline(
        make_parts(
            started,
            collector=_collector(config, inputs, scheduler, shelf),
            shaper=Shaper(config),
            pad_token_id=inputs.pad_token_id,
            tokenizer=inputs.tokenizer,
            validation=_validation(config, inputs, scheduler, shelf),
        )
    )


def _shelf(config: RLVRConfig, inputs: Inputs, started: Started) -> AnswerShelf | None:
    from roll_core.rollout.answer_shelf import AnswerShelf

    if not started.setting.rolls_by_reference:
        return None
    delivery, folder = started.delivery, str(config.actor_train.model_args.model_name_or_path)
    assert delivery.transport is not None, "references are to rows in a transport"
    has_images = any(prompt.pictures is not None for prompt in inputs.dataset)
    return AnswerShelf(delivery.transport, delivery.at_end, folder, has_images)


def _collector(config: RLVRConfig, inputs: Inputs, scheduler: RolloutScheduler, shelf: AnswerShelf | None) -> Source:
    from roll_core.pipelines.sampling import sampling_params
    from roll_core.rollout.async_collector import AsyncCollector
    from roll_core.rollout.collector import Collector, QueryFilters
    from roll_core.rollout.flow import RolloutFlow

    arguments = config.actor_infer.generating_args or GeneratingArgs()
    params = sampling_params(arguments, inputs.stop_token_ids, inputs.excluded_token_ids)
    number = config.num_return_sequences_in_group
    if config.async_generation_ratio == 0:
        return Collector(scheduler, inputs.dataset, inputs.sampler, config.rewards, number, params, shelf)
    keeps = QueryFilters(config.rewards)
    flow = RolloutFlow(scheduler, inputs.dataset, inputs.sampler, keeps, number, params, shelf)
    extra = config.max_additional_running_prompts if config.is_use_additional_prompts else 0
    return AsyncCollector(flow, config.rollout_batch_size, config.async_generation_ratio, extra)


def _validation(
    config: RLVRConfig, inputs: Inputs, scheduler: RolloutScheduler, shelf: AnswerShelf | None
) -> Validation | None:
    from roll_core.pipelines.sampling import sampling_params
    from roll_core.pipelines.validation import Validation

    if config.validation is None or inputs.held_out is None:
        return None
    arguments = config.validation.generating_args or GeneratingArgs()
    params = sampling_params(arguments, inputs.stop_token_ids, inputs.excluded_token_ids)
    number, needs_texts = arguments.num_return_sequences or 1, config.rollout_dump_dir is not None
    return Validation(scheduler, inputs.held_out, number, params, shelf, needs_texts=needs_texts)
