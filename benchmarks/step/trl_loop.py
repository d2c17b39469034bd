"""TRL's GRPOTrainer as a contestant, let through by a callback that waits after each step.

    python -m step.trl_loop FOLDER CASE LOG

It runs in an environment of its own and imports nothing of roll_core. `{"request": "loss", "file": ...}` scores a
given rollout with the trainer's own loss, before any step.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from step.gate import Answer, Gate, Stopped, versions
from step.work import CASES, Case, reward_of

BATCHES_OF_DATA = 1000
"""The steps' prompts follow each other in one long epoch: the trainer shuffles nothing and begins no epoch anew."""


class Waits(TrainerCallback):
    """Waits where a step has ended, as our loop does: before its metrics are logged."""

    def __init__(self, gate: Gate, case: Case) -> None:
        self.gate, self.case = gate, case
        self.trainer: Any = None

    def on_train_begin(self, *args: Any, **options: Any) -> None:
        """Say that all is loaded."""
        self.gate.open(**versions())

    def on_step_end(self, *args: Any, **options: Any) -> None:
        """Tell the step's tokens, and wait for the next."""
        lengths = self.trainer._metrics["train"]["completions/mean_length"]
        self.gate.passed(tokens=round(lengths[-1] * self.case.num_rows))


def rewards(completions: list[str], **columns: Any) -> list[float]:
    """The reward of our loop."""
    return [reward_of(completion) for completion in completions]


def make_trainer(folder: Path, case: Case, waits: Waits) -> GRPOTrainer:
    """GRPO as `step.ours` runs it: one optimiser step on all rows, no KL term, no evaluation."""
    arguments = GRPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        seed=0,
        max_steps=BATCHES_OF_DATA,
        shuffle_dataset=False,
        per_device_train_batch_size=case.num_rows,
        num_generations=case.group_size,
        max_completion_length=max(case.lengths),
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        scale_rewards="group",
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    model = AutoModelForCausalLM.from_pretrained(case.model(folder), dtype=torch.float32)
    return GRPOTrainer(
        model=model,
        args=arguments,
        processing_class=AutoTokenizer.from_pretrained(case.model(folder)),
        reward_funcs=rewards,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in case.prompts(folder)] * BATCHES_OF_DATA),
        callbacks=[waits],
    )


def loss_of(trainer: GRPOTrainer, command: Answer) -> Answer:
    """The loss of a rollout and the norm of its gradient, by the trainer's own method."""
    inputs = torch.load(str(command["file"]))
    inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
    model = trainer.model
    model.train()
    # The trainer's own loop sets it to this before each step.
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer._compute_loss(model, inputs)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    trainer._metrics["train"].clear()
    return {"loss": loss.item(), "grad_norm": norm.item()}


def main() -> None:
    """Run the loop until there are no more commands."""
    folder, case, log = Path(sys.argv[1]), CASES[sys.argv[2]], Path(sys.argv[3])
    gate = Gate(log)
    waits = Waits(gate, case)
    waits.trainer = make_trainer(folder, case, waits)
    gate.requests["loss"] = lambda command: loss_of(waits.trainer, command)
    with suppress(Stopped):
        waits.trainer.train()


if __name__ == "__main__":
    main()
