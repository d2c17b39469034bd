"""Several ranks and images: the same gradients as one rank, also where only one of them has images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.data import DataProto
from roll_core.data.vision import PREFIX
from roll_core.rollout.sample import pad
from roll_core.training import TrainPlan
from tests.tiny_vision import IMAGE_TOKENS, make_tokenizer, write_model
from tests.training import rank_jobs as jobs
from tests.training.support import advantage_loss, distance, gradients, role, run_ranks, strategy_for


def rows_with_images() -> DataProto:
    """Three rows with one image, two images and one image; then three of text alone."""
    generator = torch.Generator().manual_seed(5)
    start, end, image, _video = make_tokenizer().convert_tokens_to_ids(list(IMAGE_TOKENS))
    grids = [[[1, 4, 6]], [[1, 2, 2], [1, 4, 4]], [[1, 4, 4]], [], [], []]
    prompts, features = [], []
    for number, grid in enumerate(grids):
        tokens = torch.randint(1, 200, (3 + number,), generator=generator).tolist()
        for _, height, width in grid:
            tokens += [start, *[image] * (height * width // 4), end]
        prompts.append(torch.tensor([*tokens, 9]))
        patches = sum(height * width for _, height, width in grid)
        features.append((torch.randn(patches, 147, generator=generator).numpy(), np.array(grid, int).reshape(-1, 3)))
    lengths = torch.tensor([4, 7, 2, 5, 1, 6])
    mask = torch.arange(7)[None] < lengths[:, None]
    columns = {PREFIX + name: np.empty(6, dtype=object) for name in ("pixel_values", "image_grid_thw")}
    for row, (pixels, grid_array) in enumerate(features):
        columns[f"{PREFIX}pixel_values"][row], columns[f"{PREFIX}image_grid_thw"][row] = pixels, grid_array
    return DataProto(
        {
            "prompts": pad(prompts, max(map(len, prompts)), 0, left=True),
            "prompt_lengths": torch.tensor([len(prompt) for prompt in prompts]),
            "responses": torch.randint(1, 200, (6, 7), generator=generator) * mask,
            "response_lengths": lengths,
            "response_mask": mask,
            "advantages": torch.randn(6, 7, generator=generator),
        },
        columns,
    )


@pytest.mark.slow
def test_two_ranks_have_the_gradients_of_one_where_only_one_has_images(tmp_path: Path) -> None:
    write_model(tmp_path)
    rows = rows_with_images()
    keys = {"training_args": {"per_device_train_batch_size": 2}}
    whole = strategy_for(role(tmp_path, **keys), plan=TrainPlan(10))
    expected = gradients(whole, rows, advantage_loss(rows, entropy_weight=0.1))
    whole.close()
    assert expected["model.visual.patch_embed.proj.weight"].abs().max() > 0
    work = {
        name: (jobs.gradients_of_share, (tmp_path, rows, sizes, keys))
        for name, sizes in {"images on one rank": [3, 3], "no rows on one rank": [6, 0]}.items()
    }
    for found in run_ranks(work, 2, tmp_path).values():
        assert all(distance(each, expected) < 1e-5 for each in found)
