"""The image side of a model's folder: from images to what the model reads, and to how many tokens that is.

What is read of an image is a matter of the model's image processor, which the folder holds; how many tokens stand for
it, and which, is known here for the Qwen-VL families.

Shapes: I images of a prompt, S patches of all of them together, D numbers of a patch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roll_core.data.images import INSTALL, MODEL_TYPES, PixelLimits, limited, open_image, why_no_images
from roll_core.errors import DataError, RollError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from roll_core.data.rows import Row

PREFIX = "image."
"""Columns of a batch whose names begin so are what a model reads of a row's images."""

Features = Mapping[str, np.ndarray[Any, Any]]
"""By the model's own names: `pixel_values` float32 [S, D], `image_grid_thw` int64 [I, 3] in patches."""

CACHE_BYTES = 256 * 2**20
"""Features kept: a prompt's are asked for as often as it is drawn."""


@dataclass(frozen=True)
class PromptImages:
    """A prompt's images on their way to an engine.

    `encoded` holds the bytes of image files. An engine that reads images by itself is given `short_ids`, the prompt
    with one token for each image; the first `num_prompt_ids` tokens of the request are its long form.
    """

    encoded: tuple[bytes, ...]
    short_ids: tuple[int, ...]
    num_prompt_ids: int


class Vision:
    """The image processor of a model's folder. Its methods may be called from several threads.

    Raises:
        RollError: the folder has no image processor, or its model is of no known type.
    """

    def __init__(self, folder: str) -> None:
        from transformers import AutoConfig, AutoImageProcessor

        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        why = why_no_images(folder, config.model_type)
        if why is not None:
            raise RollError(why)
        try:
            self._reader: Any = AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        except ImportError as error:
            raise RollError(f"images cannot be read: {error}\n  try: {INSTALL}") from error
        self.folder = folder
        self.image_token = int(config.image_token_id)
        self.merge_size = int(config.vision_config.spatial_merge_size)
        self.markup_ids = (config.vision_start_token_id, config.image_token_id, config.vision_end_token_id)
        self._cache: OrderedDict[tuple[bytes, ...], Features] = OrderedDict()
        self._lock = threading.Lock()

    def features(self, encoded: Sequence[bytes]) -> Features:
        """What the model reads of a prompt's images, in their order; of no image, arrays without rows.

        Raises:
            OSError: an image is broken.
        """
        key = tuple(encoded)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        read = self._read([open_image(each) for each in encoded])
        with self._lock:
            self._cache[key] = read
            while len(self._cache) > 1 and sum(map(_num_bytes, self._cache.values())) > CACHE_BYTES:
                self._cache.popitem(last=False)
        return read

    def _read(self, images: list[Any]) -> Features:
        from PIL import Image

        # A placeholder image gives the width of a patch where there is none.
        given = self._reader(images=images or [Image.new("RGB", (64, 64))], return_tensors="np")
        pixels = np.ascontiguousarray(given["pixel_values"], dtype=np.float32)
        grid = np.ascontiguousarray(given["image_grid_thw"], dtype=np.int64)
        if not images:
            pixels, grid = pixels[:0], grid[:0]
        return {"pixel_values": pixels, "image_grid_thw": grid}

    def num_tokens(self, features: Features) -> list[int]:
        """How many tokens stand for each image."""
        counts = features["image_grid_thw"].prod(axis=1) // self.merge_size**2
        return [int(count) for count in counts]

    def lengthen(self, ids: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
        """Token ids with each image's one token repeated as often as `counts` says.

        Raises:
            DataError: another number of image tokens, because the template leaves out images, or the text holds them.
        """
        found = list(ids).count(self.image_token)
        if found != len(counts):
            raise DataError(f"the prompt has {found} image tokens for {len(counts)} images")
        left = iter(counts)
        return tuple(token for one in ids for token in [one] * (next(left) if one == self.image_token else 1))

    def markup(self, tokenizer: PreTrainedTokenizerBase) -> str:
        """The text that stands for an image in a prompt."""
        return "".join(str(name) for name in tokenizer.convert_ids_to_tokens(list(self.markup_ids)))


@dataclass(frozen=True)
class Pictures:
    """The images of a dataset's prompt; opened when they are asked for."""

    row: Row
    vision: Vision
    limits: PixelLimits
    short_ids: tuple[int, ...] = ()

    def encoded(self) -> tuple[bytes, ...]:
        """The bytes of the row's images, within the limits.

        Raises:
            DataError: one cannot be read, by file and line.
        """
        try:
            return tuple(limited(source.encoded(), self.limits) for source in self.row.images)
        except OSError as error:
            raise self._broken(error) from error

    def features(self) -> Features:
        """What the model reads of them.

        Raises:
            DataError: one cannot be read, by file and line.
        """
        try:
            return self.vision.features(self.encoded())
        except OSError as error:
            raise self._broken(error) from error

    def for_engine(self, num_prompt_ids: int) -> PromptImages:
        """Them on their way to an engine."""
        return PromptImages(self.encoded(), self.short_ids, num_prompt_ids)

    def _broken(self, error: OSError) -> DataError:
        return DataError(f"{self.row.file}:{self.row.line}: an image cannot be read: {error}")


def columns_of(pictures: Sequence[Pictures | None]) -> dict[str, np.ndarray[Any, Any]]:
    """Object columns of a batch with an array per row, ragged over the rows; none where no row has images."""
    first = next((one for one in pictures if one is not None), None)
    if first is None:
        return {}
    return feature_columns(first.vision, [None if one is None else one.features() for one in pictures])


def feature_columns(vision: Vision, rows: Sequence[Features | None]) -> dict[str, np.ndarray[Any, Any]]:
    """As `columns_of`, of what was read; None are rows without images."""
    nothing = vision.features(())
    columns = {}
    for name in nothing:
        column = np.empty(len(rows), dtype=object)
        for row, features in enumerate(rows):
            column[row] = (nothing if features is None else features)[name]
        columns[PREFIX + name] = column
    return columns


def reserved_tokens(config: Any) -> tuple[int, ...]:
    """Tokens that stand for images, by a model's configuration: in an answer they would promise one that is not there.

    Empty for models that read none.
    """
    if config.model_type not in MODEL_TYPES:
        return ()
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    found = {getattr(config, name, None) for name in names}
    return tuple(sorted(token for token in found if token is not None))


def _num_bytes(features: Features) -> int:
    return sum(array.nbytes for array in features.values())
