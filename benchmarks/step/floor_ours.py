"""What our step costs without a framework: our engine and our training strategy, called directly in one process.

    python -m step.floor_ours FOLDER CASE LOG

`{"request": "rollout", "file": ...}` writes a rollout for other loops to score, and answers with our own loss on it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer

from roll_core.algorithms.aggregation import token_weights
from roll_core.context import WorkerContext
from roll_core.data import DataProto
from roll_core.inference import Completion, GenerationRequest
from roll_core.inference.hf import HfInferStrategy
from roll_core.pipelines.sampling import sampling_params
from roll_core.pipelines.weighting import policy_loss
from roll_core.platforms.cpu import CpuPlatform
from roll_core.training import TrainPlan
from roll_core.training.fsdp2 import Fsdp2Strategy
from step.gate import Answer, Gate, Stopped, versions
from step.ours import make_config
from step.work import CASES, Case

OLD_NOISE = 0.3
"""Standard deviation of what is added to the old log-probabilities of a rollout to compare, so that ratios differ
from 1 and some are clipped."""


class Floor:
    """Engine and trainer of one case."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case, config = case, make_config(folder, case)
        tokenizer = AutoTokenizer.from_pretrained(case.model(folder))
        self.prompts = [tuple(tokenizer(prompt)["input_ids"]) for prompt in case.prompts(folder)]
        arguments = config.actor_infer.generating_args
        assert arguments is not None
        self.params = sampling_params(arguments, [tokenizer.eos_token_id])
        self.engine = HfInferStrategy(config.actor_infer, CpuPlatform(), WorkerContext("actor_infer"))
        self.engine.start()
        self.trainer = Fsdp2Strategy(config.actor_train, CpuPlatform(), WorkerContext("actor_train"))
        self.trainer.setup(TrainPlan(config.max_steps, config.max_grad_norm))
        self.loss = policy_loss(config)
        self.num_rollouts = 0

    def generate(self) -> list[Completion]:
        """Completions of all rows, prompt by prompt."""
        self.num_rollouts += 1
        label = f"{self.num_rollouts}"
        requests = [
            GenerationRequest(
                f"{label}/{number}/{index}",
                prompt,
                self.params,
                seed=1_000_000 * self.num_rollouts + 1000 * number + index,
                group=f"{label}/{number}",
            )
            for number, prompt in enumerate(self.prompts)
            for index in range(self.case.group_size)
        ]
        finished = {completion.request_id: completion for completion in self.engine.generate(requests)}
        return [finished[request.request_id] for request in requests]

    def batch_of(self, completions: list[Completion]) -> DataProto:
        """What a trainer is given, with random advantages."""
        lengths = torch.tensor([len(completion.token_ids) for completion in completions])
        rows, width = len(completions), int(lengths.max())
        mask = torch.arange(width) < lengths[:, None]
        tokens, log_probs = torch.ones(rows, width, dtype=torch.int64), torch.zeros(rows, width)
        for row, completion in enumerate(completions):
            tokens[row, : lengths[row]] = torch.tensor(completion.token_ids)
            log_probs[row, : lengths[row]] = torch.tensor(completion.log_probs)
        asked = torch.tensor(self.prompts)
        return DataProto(
            {
                "prompts": asked.repeat_interleave(self.case.group_size, dim=0),
                "prompt_lengths": torch.full((rows,), asked.shape[1]),
                "responses": tokens,
                "response_lengths": lengths,
                "response_mask": mask,
                "advantages": torch.where(mask, torch.randn(rows, 1), 0),
                "infer_log_probs": log_probs,
                "loss_weight": token_weights(mask, "token-mean"),
            },
            meta_info={"temperature": self.params.temperature},
        )

    def step(self) -> dict[str, float]:
        """One step; its seconds and tokens."""
        start = time.perf_counter()
        batch = self.batch_of(self.generate())
        middle = time.perf_counter()
        self.trainer.train_step(batch, self.loss)
        return {
            "tokens": int(batch["response_lengths"].sum()),
            "generate": middle - start,
            "train": time.perf_counter() - middle,
        }

    def rollout(self, command: Answer) -> Answer:
        """Write a rollout under TRL's names; our loss on it and the norm of its gradient."""
        torch.manual_seed(0)
        batch = self.batch_of(self.generate())
        mask = batch["response_mask"]
        noise = OLD_NOISE * torch.randn(mask.shape)
        old = torch.where(mask, (batch["infer_log_probs"] + noise).clamp(max=0.0), 0)
        torch.save(
            {
                "prompt_ids": batch["prompts"],
                "prompt_mask": torch.ones_like(batch["prompts"]),
                "completion_ids": batch["responses"],
                "completion_mask": mask.int(),
                "advantages": batch["advantages"][:, 0].contiguous(),
                "old_per_token_logps": old,
            },
            str(command["file"]),
        )
        metrics = self.trainer.train_step(batch.with_columns(old_log_probs=old), self.loss)
        return {name: metrics[name] for name in ("loss", "grad_norm", "actor/ppo_ratio_clipfrac")}


def main() -> None:
    """Run steps until there are no more commands."""
    folder, case, log = Path(sys.argv[1]), CASES[sys.argv[2]], Path(sys.argv[3])
    gate = Gate(log)
    torch.set_num_threads(1)
    floor = Floor(folder, case)
    gate.requests["rollout"] = floor.rollout
    try:
        gate.open(**versions())
        while True:
            gate.passed(**floor.step())
    except Stopped:
        floor.engine.stop()


if __name__ == "__main__":
    main()
