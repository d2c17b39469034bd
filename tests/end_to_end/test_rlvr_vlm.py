"""RLVR with images, in processes of its own: it learns from images, and from nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.end_to_end.runs import learnt

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlvr_vlm"


def run(folder: Path, *arguments: str) -> tuple[float, float]:
    """Accuracy on held-out images before and after."""
    reward = f"rewards.squares.worker_cls={EXAMPLE / 'reward.py'}:names_the_colour"
    before, after, _output = learnt(folder, "rlvr_vlm", *arguments, "platform=cpu", reward)
    return before, after


@pytest.mark.slow
def test_a_model_that_mostly_guesses_learns_to_look(tmp_path: Path) -> None:
    before, after = run(tmp_path)
    assert before < 0.6 and after > 0.8


@pytest.mark.slow
def test_nothing_is_learnt_from_blank_images(tmp_path: Path) -> None:
    _before, after = run(tmp_path, "--blank")
    assert after < 0.35


@pytest.mark.slow
def test_two_ranks_two_engines_and_rows_by_reference(tmp_path: Path) -> None:
    layout = ["actor_train.device_mapping=[0,1]", "actor_infer.device_mapping=[0,1]"]
    layout += ["actor_train.training_args.gradient_accumulation_steps=2", "transfer_backend.backend_name=ray"]
    before, after = run(tmp_path, *layout, "max_steps=8", "eval_steps=8", "save_steps=8")
    assert after > before + 0.1


@pytest.mark.slow
def test_a_published_config_runs_scaled_down(tmp_path: Path) -> None:
    folder, published = tmp_path / "made", EXAMPLE.parents[1] / "tests" / "config" / "published" / "rlvr"
    prepare = [sys.executable, str(EXAMPLE / "prepare.py"), "--folder", str(folder)]
    subprocess.run(prepare, check=True, capture_output=True)
    overrides = ["prompt_length=48", "response_length=4", "rollout_batch_size=4", "num_return_sequences_in_group=4"]
    overrides += ["max_steps=2", "save_steps=2", "eval_steps=0", "generate_opt_level=1", "num_gpus_per_node=1"]
    overrides += ["actor_train.training_args.per_device_train_batch_size=4", "platform=cpu", f"output_dir={tmp_path}"]
    overrides += ["actor_train.training_args.warmup_steps=0"]
    overrides += ["actor_train.training_args.gradient_accumulation_steps=4", f"pretrain={folder / 'model'}"]
    overrides += [f"actor_train.data_args.file_name=[{folder / 'data' / 'train.jsonl'}]", f"logging_dir={tmp_path}"]
    overrides += ["actor_train.data_args.image=image", "~rewards.cv_detection", f"tracker_kwargs.log_dir={tmp_path}"]
    overrides += [f"rewards.math_rule.worker_cls={EXAMPLE / 'reward.py'}:names_the_colour", "difficulty_mask=false"]
    overrides += ["rewards.math_rule.tag_included=[squares]", f"checkpoint_config.output_dir={tmp_path / 'saved'}"]
    roles = {"actor_train": "fsdp2_train", "actor_infer": "hf_infer", "reference": "fsdp2_infer"}
    for role, strategy in roles.items():
        overrides += [f"~{role}.strategy_args.strategy_config", f"{role}.strategy_args.strategy_name={strategy}"]
        overrides += [f"{role}.device_mapping=[0]", f"{role}.model_args.dtype=fp32"]
        overrides += [f"{role}.model_args.attn_implementation=auto"]
    command = [sys.executable, "-m", "roll_core", "run", str(published / "vision_megatron.yaml"), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    # The side that reads images is frozen by `freeze_module_prefix: vision_model`; the other has moved.
    before, after = (
        load_file(path / "model.safetensors") for path in (folder / "model", tmp_path / "saved" / "checkpoint-2")
    )
    moved = {name: not torch.equal(before[name], after[name]) for name in before}
    assert not any(is_moved for name, is_moved in moved.items() if name.startswith("visual"))
    assert any(moved.values())
