"""Core knows no vendor outside its one table of names: a platform differs by its class, not by an `if`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "roll_core"
TABLE = CORE / "names.py"
WORDS = {
    "amd",
    "ascend",
    "cann",
    "cuda",
    "cudnn",
    "davinci",
    "hccl",
    "hip",
    "huawei",
    "nccl",
    "npu",
    "npus",
    "nvidia",
    "rccl",
    "rocm",
}
# The humps of an identifier: VLLM_ASCEND_X, CudaPlatform, isNPU and npu0 all hold their word.
HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
READ = {".py", ".md", ".txt", ".yaml", ".yml", ".toml", ".json", ".jinja", ".css", ".js", ".typed", ""}


def vendor_words(text: str) -> list[tuple[int, str]]:
    """Line number and word of each vendor word, inside identifiers too."""
    return [
        (number, hump)
        for number, line in enumerate(text.splitlines(), start=1)
        for hump in HUMP.findall(line)
        if hump.lower() in WORDS
    ]


def files() -> list[Path]:
    return [path for path in sorted(CORE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def test_no_vendor_word_stands_outside_the_table_of_names() -> None:
    found = [
        f"{path.relative_to(CORE.parent)}:{number}: {word}"
        for path in files()
        if path != TABLE
        for number, word in [*vendor_words(path.read_text(encoding="utf-8")), *vendor_words(f"{path.stem}")]
    ]
    assert found == []


def test_every_file_of_core_is_one_this_test_can_read() -> None:
    assert {path.suffix for path in files()} <= READ


def test_the_table_is_where_the_words_are() -> None:
    assert {word.lower() for _, word in vendor_words(TABLE.read_text(encoding="utf-8"))} >= {"npu", "cuda", "rocm"}


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda",
        "VLLM_ASCEND_ENABLE_NZ",
        "class CudaPlatform:",
        "isNPU",
        "npu:0",
        "if NCCL:",
        "cuda0",
        "# HIP",
        "roll_cuda",
    ],
)
def test_a_vendor_word_is_seen_wherever_it_hides(text: str) -> None:
    assert vendor_words(text)


@pytest.mark.parametrize(
    "text", ["the ship", "cannot", "canned", "ascending order", "descend", "input", "amdahl", "hipster"]
)
def test_other_words_are_left_alone(text: str) -> None:
    assert vendor_words(text) == []
