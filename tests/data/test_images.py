"""Rows with images: what is read, and what is refused with file, line and column."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from roll_core.data import DataProto
from roll_core.data.images import PixelLimits, limited, open_image
from roll_core.data.jsonl import load_rows, read_files
from roll_core.data.prompts import PromptDataset
from roll_core.data.rows import Columns
from roll_core.data.templates import TemplateChoice
from roll_core.data.vision import PREFIX, Vision, columns_of
from roll_core.errors import DataError, RollError
from tests.tiny_vision import make_tokenizer, write_model

COLUMNS = Columns(image="image")


def encoded(height: int = 14, width: int = 28, kind: str = "PNG", mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height), 128 if mode == "L" else "red").save(stream, kind)
    return stream.getvalue()


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "rows.jsonl"
    filled = [{"id": str(number), "tag": "any", "prompt": "What?"} | row for number, row in enumerate(rows)]
    path.write_text("\n".join(map(json.dumps, filled)))
    return str(path)


def load(folder: Path, *rows: dict[str, Any]) -> Any:
    return load_rows(write(folder, *rows), tag_to_domain={"any": "any"}, columns=COLUMNS)


def problem(folder: Path, row: dict[str, Any]) -> str:
    _rows, (found,) = read_files(write(folder, row), tag_to_domain={"any": "any"}, columns=COLUMNS)
    assert found.path.startswith(f"{folder / 'rows.jsonl'}:1: ")
    return f"{found.path.partition(':1: ')[2]}: {found.rule}"


@pytest.mark.parametrize("kind", ["beside the data", "absolute", "address", "base64", "data url", "bytes", "path"])
def test_an_image_is_a_path_or_base64_in_any_published_form(tmp_path: Path, kind: str) -> None:
    data = encoded()
    (tmp_path / "a.png").write_bytes(data)
    value = {
        "beside the data": "a.png",
        "absolute": str(tmp_path / "a.png"),
        "address": f"file://{tmp_path / 'a.png'}",
        "base64": text_of(data),
        "data url": f"data:image/png;base64,{text_of(data)}",
        "bytes": {"bytes": text_of(data), "path": "gone.png"},
        "path": {"bytes": None, "path": "a.png"},
    }[kind]
    [row] = load(tmp_path, {"image": value})
    assert [source.encoded() for source in row.images] == [data]
    assert "image" not in row.fields


def test_placeholders_are_put_where_there_are_none_and_the_question_is_told_without(tmp_path: Path) -> None:
    image = text_of(encoded())
    rows = load(
        tmp_path,
        {"image": [image, image]},
        {"image": image, "prompt": "Is <image> red?"},
        {"prompt": "No image"},
        {
            "image": image,
            "messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "A?"}]}],
        },
        {"image": image, "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "B?"}]},
    )
    contents = [row.messages[-1]["content"] for row in rows]
    assert contents == ["<image><image>What?", "Is <image> red?", "No image", "<image>A?", "<image>B?"]
    assert [row.prompt for row in rows][:2] == ["What?", "Is  red?"]
    assert rows[4].messages[0]["content"] == "S"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"image": "gone.png"}, "image: is neither a file nor base64; looked for gone.png and "),
        ({"image": "https://a/b.png"}, "image: is an address, and nothing is downloaded"),
        ({"image": text_of(b"some text")}, "image: is not an image that Pillow knows"),
        ({"image": text_of(encoded()[:-30])}, "image: is a broken image"),
        ({"image": text_of(encoded(64, 64, "JPEG")[:-10])}, "image: is a broken image: it ends before its end marker"),
        ({"image": [text_of(encoded()), 7]}, "image[1]: must be a path, base64 text,"),
        ({"image": {"bytes": "???"}}, "image.bytes: is not base64"),
        ({"image": "data:image/png,abc"}, "image: is a data URL that is not base64"),
        (
            {"image": text_of(encoded()), "prompt": "<image> <image>"},
            "prompt: holds 2 times <image>, and the row has 1 im",
        ),
        ({"prompt": "<image>?"}, "prompt: holds 1 times <image>, and the row has 0 images"),
        (
            {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
            "messages[0].content[0]: must be an object whose type is text or image",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]},
            "messages[0].content[0]: holds an image; images stand in a column of their own",
        ),
    ],
)
def test_what_is_wrong_with_an_image_is_told_with_file_line_and_column(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    assert problem(tmp_path, row).startswith(said)


def test_a_file_that_is_gone_or_broken_later_is_told_with_file_and_line(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_model(model)
    (tmp_path / "a.png").write_bytes(encoded())
    rows = load(tmp_path, {"image": "a.png"})
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match=r"rows\.jsonl:1: an image cannot be read: .*No such file"):
        PromptDataset(rows, make_tokenizer(), 100, TemplateChoice("chatml"), Vision(str(model)))


def test_limits_scale_both_sides_alike() -> None:
    image = encoded(100, 200)
    assert limited(image, PixelLimits()) is image
    assert limited(image, PixelLimits(most=20_000)) is image
    small, large = limited(image, PixelLimits(most=5000)), limited(image, PixelLimits(least=80_000))
    assert open_image(small).size == (100, 50)
    assert open_image(large).size == (400, 200)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_images_of_any_mode_are_read_as_colours(mode: str) -> None:
    assert open_image(encoded(mode=mode)).mode == "RGB"


def test_what_is_transparent_is_white() -> None:
    stream = io.BytesIO()
    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(stream, "PNG")
    assert open_image(stream.getvalue()).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("template", ["native", "chatml", "base", "empty", "qwen2_5"])
def test_an_image_is_as_many_tokens_as_the_model_reads_with_any_template(tmp_path: Path, template: str) -> None:
    model = tmp_path / "model"
    write_model(model)
    vision, tokenizer = Vision(str(model)), make_tokenizer()
    rows = load(tmp_path, {"image": [text_of(encoded(14, 28)), text_of(encoded(28, 42))]}, {"prompt": "No image"})
    prompts = PromptDataset(rows, tokenizer, 200, TemplateChoice(template), vision)
    first, second = prompts
    assert first.token_ids.count(vision.image_token) == 2 + 6
    assert first.pictures is not None and first.pictures.short_ids.count(vision.image_token) == 2
    assert second.pictures is None
    assert [len(prompt.pictures.encoded()) for prompt in prompts if prompt.pictures] == [2]


def test_image_columns_are_ragged_and_follow_their_rows(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_model(model)
    rows = load(tmp_path, {"image": text_of(encoded(14, 28))}, {}, {"image": [text_of(encoded(28, 28))] * 2})
    prompts = PromptDataset(rows, make_tokenizer(), 200, TemplateChoice("chatml"), Vision(str(model)))
    columns = columns_of([prompt.pictures for prompt in prompts])
    assert sorted(columns) == [f"{PREFIX}image_grid_thw", f"{PREFIX}pixel_values"]
    batch = DataProto({}, columns).index([2, 0, 1])
    assert [array.shape for array in batch[f"{PREFIX}pixel_values"]] == [(32, 147), (8, 147), (0, 147)]
    assert [array.tolist() for array in batch[f"{PREFIX}image_grid_thw"]] == [[[1, 4, 4]] * 2, [[1, 2, 4]], []]
    assert {array.dtype for array in batch[f"{PREFIX}image_grid_thw"]} == {np.dtype(np.int64)}
    assert columns_of([None, None]) == {}


def test_a_template_that_takes_text_only_says_so(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_model(model)
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ 'x' + message['content'] }}{% endfor %}"
    rows = load(tmp_path, {"image": text_of(encoded())})
    with pytest.raises(DataError, match="the tokenizer's chat template takes text only, and the row has images"):
        PromptDataset(rows, tokenizer, 200, TemplateChoice("native"), Vision(str(model)))
    tokenizer.chat_template = "{% for message in messages %}{{ message['role'] }}{% endfor %}"
    with pytest.raises(DataError, match="the prompt has 0 image tokens for 1 images"):
        PromptDataset(rows, tokenizer, 200, TemplateChoice("native"), Vision(str(model)))


def test_a_model_without_an_image_side_is_told(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(
        RollError, match=r"has no preprocessor_config\.json, so nothing says how its model reads images"
    ):
        Vision(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(RollError, match="is a qwen3, and images are read by qwen2_vl, qwen2_5_vl, qwen3_vl"):
        Vision(str(tmp_path))
