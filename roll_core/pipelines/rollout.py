"""Runs that train nothing: a model's answers or episodes are generated, scored, written to files and summed up.

The weights are those of `actor_infer`'s folder, which its engines load themselves. A step is a batch of prompts or
groups of episodes, and one file: a run that was killed goes on with the first step that has none, and what it then
generates is what it would have generated anyway.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.session import open_session
from roll_core.config.rollout_steps import RolloutSteps
from roll_core.config.schema import PPOConfig, RLVRConfig
from roll_core.display import RunDisplay, Sample
from roll_core.pipelines.interrupts import Interrupts
from roll_core.pipelines.launch import Engines, Setting, launch_engines, set_up, site_of
from roll_core.pipelines.rollout_folder import RolloutFolder
from roll_core.pipelines.rollout_summary import Counting, Verdict
from roll_core.pipelines.start import Outcome, tracker_info
from roll_core.trackers import RunTrackers, Timers, open_trackers

SHOWN_SAMPLES = 3
SUMMARY_FILE = "summary.json"

Record = Mapping[str, Any]


class Source(Protocol):
    """Generates the samples of a step, with engines that run."""

    def collect(self, step: int) -> tuple[list[Record], dict[str, float]]:
        """A step's samples as JSON data, and metrics of them."""

    def state_dict(self) -> dict[str, Any]:
        """What the next step needs to know of those before it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the step that the state is of."""

    def close(self) -> None:
        """Leave nothing running."""


class Plan(Protocol):
    """What is to be generated, known before anything starts.

    `identity` is what decides which samples there are; `prefix` begins the files' names.
    """

    steps: RolloutSteps
    prefix: str
    identity: Mapping[str, Any]

    def source(self, engines: Engines, waiter: Waiter, notify: Callable[[str], None]) -> Source:
        """Generates with these engines."""

    def verdict(self, record: Record) -> Verdict:
        """What a record says of its sample."""

    def shown(self, record: Record) -> Sample:
        """A record for the terminal."""


def rollout_dir(config: PPOConfig) -> Path:
    """Where the samples go: `rollout_dump_dir`, else a folder among the run's own records."""
    return Path(config.rollout_dump_dir) if config.rollout_dump_dir else config.run_dir / "rollouts"


def run_rollout(setting: Setting, display: RunDisplay) -> Outcome:
    """Generate everything that is not there yet, and sum up all that is there.

    Raises:
        RollError: data, model, cluster or a worker, or files of another rollout are in the folder.
        KeyboardInterrupt: Ctrl-C or SIGTERM. What was finished is in the files.
    """
    config, started = setting.config, time.monotonic()
    display.phase("reading prompts")
    plan = make_plan(setting, display.notice)
    folder = RolloutFolder(rollout_dir(config), plan.prefix, plan.identity)
    done = folder.open(bool(config.resume_from_checkpoint))
    left = [step for step in range(1, plan.steps.num_steps + 1) if step not in done]
    display.expect(plan.steps.num_steps)
    if done:
        finished = left[0] - 1 if left else plan.steps.num_steps
        display.going_on(finished)
        display.notice(f"going on: {len(done)} of {plan.steps.num_steps} steps are in {folder.folder}")
    info = tracker_info(config, display, left[0] - 1 if done and left else max(done, default=None))
    trackers = open_trackers(config.track_with, config.tracker_kwargs, info)
    try:
        if left:
            _generate(setting, display, plan, folder, left, trackers)
    except BaseException as error:
        kept = len(folder.states)
        error.add_note(f"  {kept} steps are written; to go on: the same command with resume_from_checkpoint=true")
        raise
    finally:
        trackers.close()
    counting = Counting(plan.steps.noun)
    for _step, record in folder.records():
        counting.add(plan.verdict(record))
    summary = folder.folder / SUMMARY_FILE
    summary.write_text(json.dumps(counting.as_data(), indent=2) + "\n", encoding="utf-8")
    locations = {**trackers.locations, "rollouts": str(folder.folder), "summary": str(summary)}
    seconds = time.monotonic() - started
    return Outcome(plan.steps.num_steps, None, None, seconds, None, locations, counting.lines())


def make_plan(setting: Setting, notify: Callable[[str], None]) -> Plan:
    """What a config asks for; reads prompts and tokenizer."""
    config = setting.config
    if isinstance(config, RLVRConfig):
        from roll_core.pipelines.rollout_prompts import PromptPlan

        return PromptPlan(config, notify)
    from roll_core.config.schema import AgenticConfig
    from roll_core.pipelines.rollout_episodes import EpisodePlan

    assert isinstance(config, AgenticConfig), "other kinds of config have nothing to generate"
    return EpisodePlan(config, setting)


def _generate(
    setting: Setting,
    display: RunDisplay,
    plan: Plan,
    folder: RolloutFolder,
    left: Sequence[int],
    trackers: RunTrackers,
) -> None:
    with _engines(setting, display) as (engines, waiter):
        source = plan.source(engines, waiter, display.notice)
        with closing(source):
            for step in left:
                if step - 1 in folder.states:
                    source.load_state_dict(folder.states[step - 1])
                _restart_lost(engines.actor_infer, waiter)
                timers = Timers()
                display.phase("generate")
                with timers("time/step_total"):
                    records, metrics = source.collect(step)
                    folder.write(step, records, source.state_dict())
                metrics |= timers.take()
                tokens, seconds = metrics.get("rollout/tokens", 0.0), metrics["time/step_total"]
                metrics |= {"system/tps": tokens / seconds if seconds else 0.0, "system/global_step": float(step)}
                trackers.log(step, metrics)
                # A step's accuracy is of other prompts than that of the step before: side by side they mislead.
                display.step(step, {name: v for name, v in metrics.items() if not name.startswith("val_correct")})
                every = setting.config.logging_steps
                if every and step % every == 0:
                    display.samples([plan.shown(record) for record in records[:SHOWN_SAMPLES]])


@contextmanager
def _engines(setting: Setting, display: RunDisplay) -> Iterator[tuple[Engines, Waiter]]:
    config, interrupts = setting.config, Interrupts()
    display.phase("starting Ray")
    with open_session(setting.platform, config.ray_address), interrupts.listening():
        waiter = Waiter(config.rpc_timeout)
        site = site_of(setting)
        display.phase("starting workers")
        engines = launch_engines(setting, site, waiter)
        display.phase("loading models")
        set_up(engines, waiter, {})
        yield engines, waiter


def _restart_lost(group: WorkerGroup, waiter: Waiter) -> None:
    """Engines that died in the last step, whose answers others have given, are started again."""
    if group.find_lost():
        waiter.wait([group.submit_to(rank, "start") for rank in group.revive()])
