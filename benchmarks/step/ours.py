"""Our loop as a contestant: `run_rlvr` with all its workers, let through by a display that waits after each step.

python -m step.ours FOLDER CASE LOG
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from roll_core.config.compose import load_config_file
from roll_core.config.schema import RLVRConfig
from roll_core.display import RunDisplay
from roll_core.pipelines.decide import decide
from step.gate import Gate, Stopped, versions
from step.work import CASES, Case

HERE = Path(__file__).parent
TOKENS_PER_PASS = 640
"""Padded tokens of a micro-batch. The longest row has 272."""


class GatedDisplay(RunDisplay):
    """Shows nothing much, and waits where a step has ended."""

    def __init__(self, config: RLVRConfig, gate: Gate) -> None:
        super().__init__(config.max_steps, config.exp_name)
        self.gate = gate

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Tell the step's times and tokens, and wait for the next."""
        super().step(step, metrics)
        kept = {name: value for name, value in metrics.items() if name.startswith("time/")}
        rows = metrics["system/batch_size"]
        self.gate.passed(
            tokens=round(metrics["response_length/mean"] * rows),
            rows_trained=metrics["actor/rows_trained"],
            loss=metrics["train/loss"],
            **kept,
        )


def make_config(folder: Path, case: Case, tokens_per_pass: int = TOKENS_PER_PASS) -> RLVRConfig:
    """A config of GRPO as `step.trl_loop` runs it: one optimiser step on all rows, no KL term, no validation."""
    given = {
        "exp_name": case.name,
        "seed": 0,
        "output_dir": str(folder / "ours"),
        "logging_dir": str(folder / "ours" / "logs"),
        "checkpoint_config": {"type": "file_system", "output_dir": str(folder / "ours" / "checkpoints")},
        "track_with": "stdout",
        "max_steps": 1_000_000,
        "eval_steps": 0,
        "save_steps": 0,
        "logging_steps": 0,
        "rollout_batch_size": len(case.lengths),
        "num_return_sequences_in_group": case.group_size,
        "prompt_length": 64,
        "response_length": max(case.lengths),
        "adv_estimator": "grpo",
        "norm_mean_type": "group",
        "norm_std_type": "group",
        "ppo_epochs": 1,
        "use_pg_clip_range": True,
        "pg_clip_low": 0.2,
        "pg_clip_high": 0.28,
        "loss_agg_mode": "token-mean",
        "use_kl_loss": False,
        "init_kl_coef": 0,
        "max_grad_norm": 1.0,
        "pretrain": str(case.model(folder)),
        "actor_train": {
            "model_args": {"dtype": "fp32", "disable_gradient_checkpointing": True},
            "training_args": {
                "learning_rate": 1e-6,
                "lr_scheduler_type": "constant",
                "per_device_train_batch_size": case.num_rows,
            },
            "use_dynamic_batching_in_train": True,
            "max_tokens_per_microbatch_in_train": tokens_per_pass,
            "sequence_length_round_in_train": 1,
            "data_args": {"template": "native", "file_name": [f"{case.name}.jsonl"], "dataset_dir": str(folder)},
            "strategy_args": {"strategy_name": "fsdp2_train"},
            "device_mapping": [0],
        },
        "actor_infer": {
            "model_args": {"dtype": "fp32"},
            "generating_args": {"temperature": 1.0, "top_p": 1.0, "top_k": 0},
            "strategy_args": {"strategy_name": "hf_infer"},
            "device_mapping": [0],
        },
        "rewards": {
            "step": {"worker_cls": f"{HERE / 'reward.py'}:LetterReward", "tag_included": ["step"], "world_size": 1}
        },
    }
    path = folder / f"{case.name}.yaml"
    path.write_text(json.dumps(given, indent=2))  # JSON is YAML.
    config = load_config_file(path)
    assert isinstance(config, RLVRConfig)
    return config


def main() -> None:
    """Run the loop until there are no more commands."""
    folder, case, log = Path(sys.argv[1]), CASES[sys.argv[2]], Path(sys.argv[3])
    gate = Gate(log)
    config = make_config(folder, case)
    setting = decide(config)
    from roll_core.pipelines.start import run_rlvr

    display = GatedDisplay(config, gate)
    with suppress(Stopped):
        gate.open(**versions())
        with display:
            run_rlvr(setting, display)


if __name__ == "__main__":
    main()
