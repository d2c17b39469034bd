"""Answers to the prompts of `validation`, each scored by its domain's reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from roll_core.cluster.calls import Waiter
from roll_core.config.rollout_steps import RolloutSteps, prompt_steps
from roll_core.config.schema import GeneratingArgs, RLVRConfig
from roll_core.display import Sample
from roll_core.pipelines.inputs import RolloutInputs, prepare_rollout_inputs
from roll_core.pipelines.launch import Engines
from roll_core.pipelines.reporting import record_of_sample
from roll_core.pipelines.rollout_summary import Verdict
from roll_core.pipelines.sampling import sampling_params
from roll_core.pipelines.validation import validation_metrics
from roll_core.rewards import Status
from roll_core.rollout.reward_router import RewardRouter
from roll_core.rollout.scheduler import RolloutScheduler

if TYPE_CHECKING:
    from roll_core.inference import SamplingParams
    from roll_core.pipelines.rollout import Record


class PromptPlan:
    """Every prompt once, in the order of the files, as often as `validation.generating_args.num_return_sequences`."""

    prefix = "step"

    def __init__(self, config: RLVRConfig, notify: Callable[[str], None]) -> None:
        assert config.validation is not None, "the config's problems name it"
        self.config = config
        self.inputs = prepare_rollout_inputs(config, notify)
        arguments = config.validation.generating_args or GeneratingArgs()
        self.params = sampling_params(arguments, self.inputs.stop_token_ids, self.inputs.excluded_token_ids)
        self.steps: RolloutSteps = prompt_steps(config, len(self.inputs.dataset))
        self.identity: Mapping[str, Any] = {
            "seed": config.seed,
            "model": config.actor_infer.model_args.model_name_or_path,
            "prompts": self.inputs.dataset.fingerprint,
            "rollout_batch_size": config.rollout_batch_size,
            "validation.generating_args": arguments.model_dump(mode="json"),
            "rewards": {name: one.model_dump(mode="json") for name, one in config.rewards.items()},
        }

    def source(self, engines: Engines, waiter: Waiter, notify: Callable[[str], None]) -> PromptSource:
        """Generates with these engines, and scores with these rewards."""
        config, rewards = self.config, RewardRouter(engines.rewards, notify)
        tokenizer = self.inputs.tokenizer
        scheduler = RolloutScheduler(engines.actor_infer, rewards, waiter, tokenizer, config.seed, config.most_running)
        return PromptSource(scheduler, self.inputs, self.steps, self.params)

    def verdict(self, record: Record) -> Verdict:
        """Right is a score of exactly 1, as in validations."""
        trouble = "" if record["status"] == Status.OK.value else f"{record['status']}: {record['reason']}"
        score = float(record["score"])
        return Verdict(score == 1, record["group"], record["tag"], score, trouble)

    def shown(self, record: Record) -> Sample:
        """The prompt, the answer and its score."""
        prompt, response, tag, reason = (str(record[name]) for name in ("prompt", "response", "tag", "reason"))
        return Sample(prompt, response, float(record["score"]), tag, reason=reason)


class PromptSource:
    """Answers the prompts of a step. Steps do not depend on each other."""

    def __init__(
        self, scheduler: RolloutScheduler, inputs: RolloutInputs, steps: RolloutSteps, params: SamplingParams
    ) -> None:
        self.scheduler, self.inputs, self.steps, self.params = scheduler, inputs, steps, params

    def collect(self, step: int) -> tuple[list[Record], dict[str, float]]:
        """A step's answers with their scores."""
        numbers = self.steps.groups(step)
        prompts = [self.inputs.dataset[number] for number in numbers]
        samples = self.scheduler.generate(
            prompts, self.steps.samples, self.params, f"rollout/{step}", first_group=numbers.start
        )
        metrics = validation_metrics(samples)
        lengths = [len(sample.completion.token_ids) for sample in samples]
        metrics["reward/mean"] = sum(sample.score.score for sample in samples) / len(samples)
        metrics["response_length/mean"] = sum(lengths) / len(lengths)
        metrics["rollout/tokens"] = float(sum(lengths))
        records: list[Record] = [
            record_of_sample(sample)
            | {"num_tokens": len(sample.completion.token_ids), "finish_reason": sample.completion.finish_reason}
            for sample in samples
        ]
        return records, metrics | self.scheduler.rewards.take_metrics()

    def state_dict(self) -> dict[str, Any]:
        """Nothing: a step's number says which prompts it has."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to take over."""

    def close(self) -> None:
        """Nothing runs between calls."""
