"""Images of a row: where their bytes are, and whether they are images at all. Pillow is imported when one is opened."""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib.util
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roll_core.data.messages import BadField, kind_of

if TYPE_CHECKING:
    from PIL.Image import Image

MODEL_TYPES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Models that are given images; of each, engine and trainer were compared on prompts with images."""

PREPROCESSOR = "preprocessor_config.json"
"""The file of a model's folder that says how the model reads images."""

INSTALL = 'pip install "roll-core[images]"'
_HOW = "a path, base64 text, or an object with bytes or path; a list of these where a row has several"
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"


@dataclass(frozen=True)
class ImageSource:
    """One image of a row, not opened yet: a file, or the encoded bytes (PNG, JPEG, ...) that the row holds."""

    path: Path | None = None
    data: bytes | None = None

    def encoded(self) -> bytes:
        """The bytes of an image file.

        Raises:
            OSError: the file cannot be read any more.
        """
        if self.data is not None:
            return self.data
        assert self.path is not None
        return self.path.read_bytes()

    @property
    def name(self) -> str:
        """A short text that differs between images: the path, or a digest of the bytes."""
        if self.path is not None:
            return str(self.path)
        return hashlib.sha256(self.data or b"").hexdigest()[:16]


def read_sources(value: object, folder: Path) -> tuple[ImageSource, ...]:
    """The images that a row's column means; none where it is null, empty text or an empty list.

    A path is looked for as given, then in `folder`, which is that of the data file.

    Raises:
        BadField: something else, no such file, or bytes that are no whole image.
    """
    if value is None or value == "" or value == []:
        return ()
    if isinstance(value, list):
        return tuple(_read_source(f"[{position}]", one, folder) for position, one in enumerate(value))
    return (_read_source("", value, folder),)


def _read_source(where: str, value: object, folder: Path) -> ImageSource:
    if isinstance(value, Mapping):
        # What the `datasets` library writes for a column of images.
        if value.get("bytes") is not None:
            return _checked(where, _from_base64(f"{where}.bytes", value["bytes"]))
        value = value.get("path", value)
    if not isinstance(value, str) or not value:
        raise BadField(where, f"must be {_HOW}; found {kind_of(value)}", value)
    if value.startswith(("http://", "https://")):
        raise BadField(where, "is an address, and nothing is downloaded", value, "store the image, and write its path")
    if value.startswith("data:"):
        header, _, text = value.partition(",")
        if not header.endswith(";base64"):
            raise BadField(where, "is a data URL that is not base64", value, "data:image/png;base64,...")
        return _checked(where, _from_base64(where, text))
    return _checked(where, _from_text(where, value.removeprefix("file://"), folder))


def _from_text(where: str, text: str, folder: Path) -> ImageSource:
    """A file if there is one of this name, else base64."""
    tried = [Path(text).expanduser(), folder / text]
    for path in tried:
        # A long text is no file name, and asking for it is an error of its own.
        if len(text) < 1024 and path.is_file():
            return ImageSource(path)
    try:
        return _from_base64(where, text)
    except BadField:
        looked = " and ".join(dict.fromkeys(str(path) for path in tried)) if len(text) < 1024 else "nothing so long"
        raise BadField(where, f"is neither a file nor base64; looked for {looked}", text, _HOW) from None


def _from_base64(where: str, text: object) -> ImageSource:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (ValueError, binascii.Error):
        data = b""
    if not data:
        raise BadField(where, "is not base64", text, "the bytes of a PNG or JPEG file, as base64 text")
    return ImageSource(data=data)


def _checked(where: str, source: ImageSource) -> ImageSource:
    """The source, if it begins and ends as an image does. What is between is decoded when it is used."""
    if importlib.util.find_spec("PIL") is None:
        raise BadField(where, "is an image, and Pillow, which opens them, is not installed", None, INSTALL)
    from PIL import Image, UnidentifiedImageError

    data = source.encoded()
    shown = source.path if source.path is not None else f"{len(data)} bytes"
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.verify()
    except UnidentifiedImageError:
        raise BadField(where, "is not an image that Pillow knows", str(shown), "a PNG or JPEG file") from None
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's words for broken files
        raise BadField(where, f"is a broken image: {error}", str(shown)) from None
    if data.startswith(_JPEG_START) and _JPEG_END not in data[-64:]:
        raise BadField(where, "is a broken image: it ends before its end marker", str(shown))
    return source


@dataclass(frozen=True)
class PixelLimits:
    """`image_max_pixels` and `image_min_pixels`: larger images are made smaller, smaller ones larger."""

    most: int | None = None
    least: int | None = None

    def apply(self, image: Image) -> Image:
        """The image, with its sides scaled alike where it has too many or too few pixels."""
        count = image.width * image.height
        if self.most is not None and count > self.most:
            scale = math.sqrt(self.most / count)
            return image.resize((max(1, math.floor(image.width * scale)), max(1, math.floor(image.height * scale))))
        if self.least is not None and count < self.least:
            scale = math.sqrt(self.least / count)
            return image.resize((math.ceil(image.width * scale), math.ceil(image.height * scale)))
        return image


def why_no_images(folder: str, model_type: str) -> str | None:
    """Why the model of a folder is given no images; None where it can be."""
    if model_type not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        return f"the model in {folder} is a {model_type}, and images are read by {known} in this version"
    if not (Path(folder) / PREPROCESSOR).is_file():
        return f"{folder} has no {PREPROCESSOR}, so nothing says how its model reads images"
    return None


def open_image(encoded: bytes) -> Image:
    """An image as red, green and blue; what is transparent is white.

    Raises:
        OSError: it is broken.
    """
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as image:
        image.load()
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            layered = image.convert("RGBA")
            white = Image.new("RGBA", layered.size, "white")
            return Image.alpha_composite(white, layered).convert("RGB")
        return image.convert("RGB")


def limited(encoded: bytes, limits: PixelLimits) -> bytes:
    """The bytes as they are where the limits allow, else those of a PNG within them.

    Raises:
        OSError: the image is broken.
    """
    if limits.most is None and limits.least is None:
        return encoded
    image = open_image(encoded)
    smaller = limits.apply(image)
    if smaller is image:
        return encoded
    stream = io.BytesIO()
    smaller.save(stream, "PNG")
    return stream.getvalue()
