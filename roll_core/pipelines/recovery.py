"""Saving what a run has finished, and going on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from roll_core.checkpoint import CheckpointFolder, PipelineState, Resume, load_pipeline_state, save_pipeline_state
from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.config.schema import PPOConfig
from roll_core.errors import RollError, WorkerDied
from roll_core.pipelines.interrupts import Interrupts
from roll_core.pipelines.launch import Crew

RESCUE_TIMEOUT_S = 60.0
"""How long the trainers may take to save after something else failed."""


class Carried(Protocol):
    """What carries something over steps, such as the order of prompts, and must go on where it was."""

    def state_dict(self) -> dict[str, Any]:
        """Where it is, as JSON data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


class Rollouts(Carried, Protocol):
    """What carries rollouts over steps; its state may refer to answers that are elsewhere."""

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The newest state as JSON data, for a checkpoint."""


class Recovery:
    """Writes a checkpoint every `save_steps` and after the last step, and one more when a run is cut short.

    `step` is the number of steps that are trained. A rescue saves them as they were when the last one was: not the
    prompts drawn since, and nothing where the trainers have begun to change their weights or are dead. A first
    interrupt waits until a step is finished.
    """

    def __init__(
        self,
        config: PPOConfig,
        folder: CheckpointFolder,
        crew: Crew,
        waiter: Waiter,
        rollout: Rollouts,
        shaper: Carried,
        interrupts: Interrupts,
    ) -> None:
        self.config, self.folder, self.crew, self.waiter = config, folder, crew, waiter
        self.rollout, self.shaper, self.interrupts = rollout, shaper, interrupts
        self.step = 0
        self.saved_step = 0
        self.last_path: Path | None = None
        self._has_begun_training = False
        self._at_last_step = self._snapshot(0)

    def restore(self, resume: Resume) -> None:
        """Put trainers, samplers and random states where the checkpoint left them."""
        calls = [
            call for group, path in self._saved_groups(resume.path) for call in group.submit("load", path.resolve())
        ]
        self.waiter.wait(calls)
        state = load_pipeline_state(resume.path)
        self.rollout.load_state_dict(state.sampler)
        self.shaper.load_state_dict(state.other["shaper"])
        self.step = self.saved_step = state.step
        self._at_last_step = self._snapshot(state.step)

    def begin_training(self) -> None:
        """From here until `trained`, the trainers' weights belong to no step; interrupts wait until `finish`."""
        self._has_begun_training = True
        self.interrupts.hold()

    def trained(self, step: int) -> None:
        """The trainers have a step's weights: remember where everything stands, to save it whatever comes now."""
        # Made first: where a part cannot say where it is, what is known of the step before must not be saved for it.
        self._at_last_step = self._snapshot(step)
        self.step, self._has_begun_training = step, False

    def finish(self) -> None:
        """A step has ended: save it if it is time.

        Raises:
            KeyboardInterrupt: a signal came since training began.
        """
        if self.config.is_save_due(self.step):
            self.save(self.waiter)
        self.interrupts.release()

    def save(self, waiter: Waiter) -> Path:
        """Write checkpoint-`step` with the state of the last finished step."""
        partial = self.folder.begin(self.step)
        calls = [call for group, path in self._saved_groups(partial) for call in group.submit("save", path.resolve())]
        waiter.wait(calls)
        self._read_rollouts()
        save_pipeline_state(partial, self._at_last_step)
        sizes = {group.role: len(group) for group, _path in self._saved_groups(partial)}
        self.last_path = self.folder.finish(self.step, {"world_sizes": sizes, "exp_name": self.config.exp_name})
        self.saved_step = self.step
        return self.last_path

    @contextmanager
    def rescue(self) -> Iterator[None]:
        """Save the finished steps when the block ends by an error or an interrupt, and let that go on."""
        try:
            yield
        except BaseException as error:
            error.add_note(self._rescued(error))
            raise

    def _rescued(self, error: BaseException) -> str:
        is_due = self.step > self.saved_step and not self._has_begun_training
        if isinstance(error, WorkerDied):
            self._end_engines(reads_first=is_due)
        if is_due:
            try:
                # Without watches: whoever died is not needed to save.
                self.save(Waiter(RESCUE_TIMEOUT_S))
            except RollError as failure:
                self.folder.discard(self.step)
                # A dead worker is described in full by the error that ended the run.
                shown = str(failure).partition("\n")[0] if isinstance(failure, WorkerDied) else failure
                return f"step {self.step} could not be saved: {shown}\n{self._advice()}"
        return self._advice()

    def _end_engines(self, *, reads_first: bool) -> None:
        """One that died while it was sent weights may have left the trainers waiting for the others."""
        try:
            if reads_first:
                self._read_rollouts()  # Answers may end with the engines that put them.
        except RollError:
            return  # Saving reads them too, and says why not.
        finally:
            self.crew.actor_infer.kill()

    def _read_rollouts(self) -> None:
        self._at_last_step = replace(self._at_last_step, sampler=self.rollout.as_json(self._at_last_step.sampler))

    def _advice(self) -> str:
        if self.saved_step == 0:
            return "  no step was saved yet: the run starts over"
        # The newest is that of the highest step, which may be an earlier run's in the same folder.
        is_newest = self.folder.steps()[-1:] == [self.saved_step]
        which = "true" if is_newest else self.folder.output_dir / f"checkpoint-{self.saved_step}"
        return f"  {self.saved_step} steps are saved; to go on: the same command with resume_from_checkpoint={which}"

    def _saved_groups(self, path: Path) -> list[tuple[WorkerGroup, Path]]:
        groups = [(self.crew.actor_train, path)]
        if self.crew.critic is not None:
            groups.append((self.crew.critic, path / "critic"))
        return groups

    def _snapshot(self, step: int) -> PipelineState:
        return PipelineState(step=step, sampler=self.rollout.state_dict(), other={"shaper": self.shaper.state_dict()})
