"""Prompts with images: what the trainer scores is what the engine sampled, and images are really looked at."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.data import DataProto
from roll_core.data.vision import PREFIX, PromptImages, Vision, reserved_tokens
from roll_core.errors import BadRequest, ConfigError
from roll_core.inference.base import Completion, GenerationRequest, SamplingParams
from roll_core.inference.hf import HfInferStrategy
from roll_core.platforms.cpu import CpuPlatform
from roll_core.rollout.sample import pad
from roll_core.training import TrainPlan
from roll_core.training.fsdp2 import Fsdp2Strategy
from roll_core.training.vision import blank_image, next_offset, positions
from tests.tiny_vision import IMAGE_TOKENS, make_model, make_tokenizer, write_model

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
CONTEXT = WorkerContext(role="actor", rank=0, world_size=1, seed=0, timeout_s=60)


def picture(height: int, width: int, seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


IMAGES = ([picture(28, 42, 0)], [picture(14, 14, 1), picture(42, 28, 2)], [], [picture(70, 28, 3)])
"""Prompts with one image, two, none, and a larger one."""


class Setup:
    """A model's folder, requests with images, and the batch that their answers make."""

    def __init__(self, folder: Path, family: str) -> None:
        write_model(folder, family)
        self.folder, self.vision, self.tokenizer = folder, Vision(str(folder)), make_tokenizer()
        self.requests = [
            self.request(f"{number}/{index}", number, seed=10 * number + index)
            for number in range(len(IMAGES))
            for index in range(2)
        ]

    def request(self, name: str, number: int, seed: int) -> GenerationRequest:
        images = IMAGES[number]
        text = "<|im_start|>" + "ab" * number + self.vision.markup(self.tokenizer) * len(images) + "What?<|im_end|>"
        short = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        counts = self.vision.num_tokens(self.vision.features(images))
        prompt = self.vision.lengthen(short, counts)
        params = SamplingParams(12, excluded_token_ids=reserved_tokens(make_model(self.tokenizer).config))
        carried = PromptImages(tuple(images), short, len(prompt)) if images else None
        return GenerationRequest(name, prompt, params, seed, str(number), carried)

    def role(self, strategy: str, **more: Any) -> WorkerConfig:
        return WorkerConfig.model_validate(
            {
                "model_args": {"model_name_or_path": str(self.folder), "dtype": "fp32"},
                "strategy_args": {"strategy_name": strategy},
                "infer_batch_size": 3,
                **more,
            }
        )

    def engine(self) -> HfInferStrategy:
        engine = HfInferStrategy(self.role("hf_infer"), CpuPlatform(), CONTEXT)
        engine.start()
        return engine

    def trainer(self, **more: Any) -> Fsdp2Strategy:
        trainer = Fsdp2Strategy(self.role("fsdp2_train", **more), CpuPlatform(), CONTEXT)
        trainer.setup(TrainPlan(4))
        return trainer

    def batch(self, completions: dict[str, Completion], inverted: int | None = None) -> DataProto:
        """Rows in the order of the requests; the images of prompt `inverted` are those of a negative."""
        made = [completions[request.request_id] for request in self.requests]
        lengths = torch.tensor([len(one.token_ids) for one in made])
        prompts = [torch.tensor(request.prompt_ids) for request in self.requests]
        width = int(lengths.max())
        columns = {PREFIX + name: np.empty(len(made), dtype=object) for name in ("pixel_values", "image_grid_thw")}
        for row in range(len(made)):
            features = dict(self.vision.features(IMAGES[row // 2]))
            if row // 2 == inverted:
                features["pixel_values"] = -features["pixel_values"]
            for name, array in features.items():
                columns[PREFIX + name][row] = array
        return DataProto(
            {
                "prompts": pad(prompts, max(map(len, prompts)), 0, left=True),
                "prompt_lengths": torch.tensor([len(prompt) for prompt in prompts]),
                "responses": pad([torch.tensor(one.token_ids) for one in made], width, 0),
                "response_lengths": lengths,
                "response_mask": torch.arange(width)[None] < lengths[:, None],
                "infer_log_probs": pad([torch.tensor(one.log_probs) for one in made], width, 0.0),
            },
            columns,
        )


@pytest.mark.parametrize("family", [pytest.param("qwen2_vl", marks=pytest.mark.slow), "qwen2_5_vl", "qwen3_vl"])
def test_the_trainer_scores_what_the_engine_sampled_and_looks_at_the_images(tmp_path: Path, family: str) -> None:
    setup = Setup(tmp_path, family)
    engine = setup.engine()
    completions = {one.request_id: one for one in engine.generate(setup.requests)}
    engine.stop()
    batch, trainer = setup.batch(completions), setup.trainer()
    scored = trainer.log_probs(batch)["log_probs"]
    torch.testing.assert_close(scored, batch["infer_log_probs"], atol=1e-4, rtol=0)
    other = trainer.log_probs(setup.batch(completions, inverted=0))["log_probs"]
    changed = (other - scored).abs().amax(dim=1)
    assert (changed[:2] > 1e-2).all() and (changed[2:] < 1e-5).all()
    # In another order, and in other micro-batches, rows keep their images.
    order = np.array([6, 1, 4, 3, 0, 7, 2, 5])
    shuffled = trainer.log_probs(batch.index(order))["log_probs"]
    torch.testing.assert_close(shuffled, scored[torch.from_numpy(order)], atol=1e-4, rtol=0)
    trainer.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_are_those_of_transformers(family: str) -> None:
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, family)
    start, end, image, _video = tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    rows = [[1, 2, start, *[image] * 6, end, 3, start, image, end, 4], [5, 6, 7], [start, *[image] * 2, end, 8]]
    ids = pad([torch.tensor(row) for row in rows], 16, 0, left=True)
    mask = pad([torch.ones(len(row), dtype=torch.long) for row in rows], 16, 0, left=True)
    grid = torch.tensor([[1, 4, 6], [1, 2, 2], [1, 2, 4]])
    theirs, offsets = model.model.get_rope_index(ids, (ids == image).int(), image_grid_thw=grid, attention_mask=mask)
    ours = positions(model.config, ids, mask, {"image_grid_thw": grid})
    kept = mask.bool().expand(3, -1, -1)
    assert torch.equal(ours[kept], theirs[kept])
    assert [next_offset(ours[:, row, mask[row].bool()]) for row in range(3)] == offsets.flatten().tolist()


def test_images_that_do_not_fit_the_tokens_are_refused(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "qwen2_5_vl")
    engine, request = setup.engine(), setup.requests[0]
    assert request.images is not None
    wrong = GenerationRequest("a", request.prompt_ids[:5], request.params, 0, images=request.images)
    with pytest.raises(BadRequest, match="request 'a' has 3 image tokens, and its images are 6 tokens"):
        list(engine.generate([wrong]))
    broken = PromptImages((b"no image",), (), 0)
    with pytest.raises(BadRequest, match="its images cannot be read"):
        list(engine.generate([GenerationRequest("a", request.prompt_ids, request.params, 0, images=broken)]))
    engine.stop()


def test_answers_have_no_tokens_that_stand_for_images(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "qwen2_5_vl")
    engine = setup.engine()
    reserved = set(setup.requests[0].params.excluded_token_ids)
    hot = SamplingParams(40, temperature=50.0, excluded_token_ids=tuple(reserved))
    free = SamplingParams(40, temperature=50.0)
    requests = [GenerationRequest(f"a{n}", (1, 2), hot, n) for n in range(20)]
    requests += [GenerationRequest(f"b{n}", (1, 2), free, n) for n in range(20)]
    found = {one.request_id: reserved & set(one.token_ids) for one in engine.generate(requests)}
    engine.stop()
    assert not any(tokens for name, tokens in found.items() if name.startswith("a"))
    assert any(tokens for name, tokens in found.items() if name.startswith("b"))


def test_a_blank_image_is_one_token(tmp_path: Path) -> None:
    model = make_model(make_tokenizer())
    blank = blank_image(model.config, torch.device("cpu"))
    assert model.model.get_image_features(**blank).pooler_output[0].shape == (1, 64)


def test_a_critic_that_would_have_to_read_images_is_refused(tmp_path: Path) -> None:
    setup = Setup(tmp_path, "qwen2_5_vl")
    with pytest.raises(ConfigError, match="critics read text alone"):
        setup.trainer(name="critic")


@pytest.mark.parametrize(("prefix", "frozen"), [("vision_model", "model.visual"), ("language_model", "model.language")])
def test_a_side_of_the_model_is_frozen_by_its_published_name(tmp_path: Path, prefix: str, frozen: str) -> None:
    setup = Setup(tmp_path, "qwen2_5_vl")
    arguments = {"model_name_or_path": str(tmp_path), "dtype": "fp32", "freeze_module_prefix": prefix}
    trainer = setup.trainer(model_args=arguments)
    trained = {name: parameter.requires_grad for name, parameter in trainer.model.module.named_parameters()}
    trainer.close()
    assert all(is_trained != name.startswith(frozen) for name, is_trained in trained.items())
    assert len(set(trained.values())) == 2
