"""What models with images need beside tokens: their class, the positions of image tokens, and images of no row.

Shapes: b rows, w input columns, r response columns, I images of all rows, S patches of all images, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from roll_core.data.images import MODEL_TYPES

GRID = "image_grid_thw"

SIDES = {"vision_model": "model.visual", "language_model": "model.language_model"}
"""What published configs call the sides of such a model in `freeze_module_prefix`, and how parameters begin here."""


def reads_images(config: Any) -> bool:
    """Whether a model of this configuration has an image side that is known here."""
    return config.model_type in MODEL_TYPES


def language_model_class(config: Any) -> Any:
    """transformers' automatic class for a model that says the next token."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if reads_images(config) else AutoModelForCausalLM


def positions(
    config: Any, input_ids: torch.Tensor, mask: torch.Tensor | None, images: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Positions int64 [3, b, w] of tokens by time, height and width, as Qwen-VL models count them.

    Text counts on by one in all three. The tokens of an image of h x w (after merging) share a time, and are spread
    over rows and columns; what follows goes on after the larger of h and w. Padding has position 0.

    `images["image_grid_thw"]` [I, 3] are the images of all rows in order, in patches. Every image token of a row
    belongs to an image, its prompt's.

    Source: "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution", section 2.1.

    Raises:
        ValueError: other image tokens than the images have.
    """
    merge = int(config.vision_config.spatial_merge_size)
    grids = iter(images[GRID].tolist())
    result = torch.zeros(3, *input_ids.shape, dtype=torch.long)
    ids, present = input_ids.cpu(), None if mask is None else mask.bool().cpu()
    for row in range(len(ids)):
        columns = torch.arange(ids.shape[1]) if present is None else present[row].nonzero().squeeze(1)
        result[:, row, columns] = _row_positions(ids[row, columns].tolist(), config.image_token_id, grids, merge)
    if next(grids, None) is not None:
        raise ValueError("there are more images than the rows' image tokens stand for")
    return result.to(input_ids.device)


def _row_positions(tokens: list[int], image_token: int, grids: Any, merge: int) -> torch.Tensor:
    parts: list[torch.Tensor] = []
    column = position = 0
    while column < len(tokens):
        if tokens[column] != image_token:
            end = tokens.index(image_token, column) if image_token in tokens[column:] else len(tokens)
            parts.append((torch.arange(end - column) + position).expand(3, -1))
            column, position = end, position + end - column
            continue
        grid = next(grids, None)
        if grid is None:
            raise ValueError("a row has more image tokens than its images stand for")
        frames, height, width = grid[0], grid[1] // merge, grid[2] // merge
        parts.append(torch.stack(torch.meshgrid(
            torch.arange(frames), torch.arange(height), torch.arange(width), indexing="ij"
        )).flatten(1) + position)  # fmt: skip
        column, position = column + frames * height * width, position + max(height, width)
    return torch.cat(parts, dim=1)[:, : len(tokens)] if parts else torch.zeros(3, 0, dtype=torch.long)


def next_offset(positions_3W: torch.Tensor) -> int:
    """How far the position of the token after these is from their number."""
    return int(positions_3W.max()) + 1 - positions_3W.shape[1]


def with_blank_row(
    config: Any, input_ids: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and attention mask [b + 1, w] with a last row that is one image token, at the end, and padding."""
    row, seen = torch.zeros_like(input_ids[:1]), torch.zeros_like(input_ids[:1])
    row[0, -1], seen[0, -1] = config.image_token_id, 1
    given = torch.ones_like(input_ids) if mask is None else mask
    return torch.cat([input_ids, row]), torch.cat([given, seen])


def blank_image(config: Any, device: torch.device) -> dict[str, torch.Tensor]:
    """The smallest image there is, of one token."""
    vision = config.vision_config
    merge, size = int(vision.spatial_merge_size), int(vision.patch_size)
    # Two families have both names, and read the first.
    channels = int(getattr(vision, "in_channels", 3))
    width = channels * int(vision.temporal_patch_size) * size * size
    return {
        "pixel_values": torch.zeros(merge * merge, width, device=device),
        GRID: torch.tensor([[1, merge, merge]], device=device),
    }
