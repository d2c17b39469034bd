"""The example with images: two steps of it in one process, from its data files to new weights in the engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.config.compose import load_config_file
from roll_core.config.rules import problems_of
from roll_core.config.schema import RLVRConfig
from roll_core.context import WorkerContext
from roll_core.data.remote_batch import BatchReader, put_batch
from roll_core.data.vision import PREFIX
from roll_core.errors import DataError
from roll_core.inference.hf import HfInferStrategy
from roll_core.objects import resolve_object
from roll_core.pipelines.inputs import Inputs, prepare_inputs, read_rows
from roll_core.pipelines.sampling import sampling_params
from roll_core.pipelines.weighting import sent
from roll_core.platforms.cpu import CpuPlatform
from roll_core.rewards import Score
from roll_core.rollout.sample import Sample, requests_for, to_batch
from roll_core.training import TrainPlan
from roll_core.training.fsdp2 import Fsdp2Strategy
from roll_core.transport.local import LocalTransport
from tests.inference.models import ListReceiver
from tests.training.support import advantage_loss

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlvr_vlm"
GROUPS, EACH = 4, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's files, its model hardly trained."""
    return prepare(tmp_path_factory.mktemp("rlvr_vlm"))


def prepare(folder: Path) -> Path:
    command = [sys.executable, str(EXAMPLE / "prepare.py"), "--folder", str(folder), "--steps", "2"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def config_of(folder: Path, *more: str) -> RLVRConfig:
    overrides = [
        f"pretrain={folder / 'model'}",
        f"actor_train.data_args.dataset_dir={folder / 'data'}",
        f"validation.data_args.dataset_dir={folder / 'data'}",
        f"rewards.squares.worker_cls={EXAMPLE / 'reward.py'}:names_the_colour",
        f"output_dir={folder / 'output'}",
        *more,
    ]
    config = load_config_file(EXAMPLE / "cpu.yaml", overrides)
    assert isinstance(config, RLVRConfig)
    return config


def inputs_of(config: RLVRConfig) -> Inputs:
    return prepare_inputs(config, read_rows(config), print)


def test_the_config_breaks_no_rule_and_held_out_rows_have_images_too(folder: Path) -> None:
    config = config_of(folder)
    assert problems_of(config) == []
    inputs = inputs_of(config)
    assert len(inputs.dataset) == 480 and inputs.held_out is not None and len(inputs.held_out) == 240
    prompt = inputs.held_out[0]
    assert prompt.pictures is not None and len(prompt.token_ids) == len(prompt.pictures.short_ids) + 3
    names = inputs.tokenizer.convert_ids_to_tokens(list(inputs.excluded_token_ids))
    assert sorted(names) == ["<|image_pad|>", "<|video_pad|>", "<|vision_end|>", "<|vision_start|>"]


def test_files_that_are_there_are_kept(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "model", folder / "data", folder / "assets.json")}
    prepare(folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_two_steps_in_one_process(folder: Path) -> None:
    config = config_of(folder)
    inputs, context = inputs_of(config), WorkerContext("actor", timeout_s=60)
    assert config.actor_infer.generating_args is not None
    params = sampling_params(config.actor_infer.generating_args, inputs.stop_token_ids, inputs.excluded_token_ids)
    engine = HfInferStrategy(config.actor_infer, CpuPlatform(), context)
    trainer = Fsdp2Strategy(config.actor_train, CpuPlatform(), context)
    engine.start()
    trainer.setup(TrainPlan(2))
    transport = LocalTransport()
    for step in (1, 2):
        prompts = [inputs.dataset[index] for index in inputs.sampler.next_batch()[:GROUPS]]
        requests = requests_for(prompts, 0, EACH, params, config.seed, f"train/{step}")
        made = {one.request_id: one for one in engine.generate(requests)}
        samples = []
        for number, request in enumerate(requests):
            prompt, completion = prompts[number // EACH], made[request.request_id]
            text = inputs.tokenizer.decode(completion.token_ids, skip_special_tokens=True)
            samples.append(
                Sample(prompt, number // EACH, completion, text, Score(float(text == prompt.row.ground_truth)))
            )
        batch = to_batch(samples, inputs.pad_token_id, config.response_window)
        rows = batch.select(sent(batch.columns))
        assert f"{PREFIX}pixel_values" in rows
        advantages = torch.randn(len(rows), 1, generator=torch.Generator().manual_seed(step)) * rows["response_mask"]
        # By reference, with rows in another order, as a trainer on another rank would read its share.
        order = np.random.default_rng(step).permutation(len(rows))
        whole = put_batch(transport, rows.with_columns(advantages=advantages))
        share = BatchReader(transport).materialize(whole.index(order))
        scored = trainer.log_probs(share)["log_probs"]
        torch.testing.assert_close(scored, batch["infer_log_probs"][torch.from_numpy(order)], atol=1e-4, rtol=0)
        assert trainer.train_step(share, advantage_loss(share))["grad_norm"] > 0
        weights = dict(tensor for bucket in trainer.weights(1 << 16) for tensor in bucket)
        engine.update_weights(ListReceiver(weights, step))
    engine.stop()
    trainer.close()


def test_rows_whose_images_would_be_left_out_are_an_error(folder: Path) -> None:
    config = config_of(folder, "actor_train.data_args.image=null")
    with pytest.raises(DataError, match=r"try: actor_train\.data_args\.image: image"):
        inputs_of(config)


def test_the_reward_wants_the_word_alone() -> None:
    from roll_core.rewards import RewardSample

    reward = resolve_object(f"{EXAMPLE / 'reward.py'}:names_the_colour", {}, "reward")
    assert reward(RewardSample("1", "", " red\n", "red")) == 1.0
    assert reward(RewardSample("1", "", "red red", "red")) == 0.0
