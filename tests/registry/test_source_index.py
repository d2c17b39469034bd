"""The index finds what a wheel defines, and misses what it does not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.registry.source_index import SourceIndex
from tests.registry.used_names import CORE, device_module_uses

SOURCE = {
    "pkg/__init__.py": "from .inner import shown as renamed\nfrom pkg.inner import *\nfrom other import thing\n",
    "pkg/inner.py": (
        "import os\n"
        "try:\n    import fast\nexcept ImportError:\n    fast = None\n"
        "def shown(a, b=1, *, c, d=2): ...\n"
        "def open_ended(*args, **kwargs): ...\n"
        "class Kind: ...\n"
        "if os.getenv('PKG_SWITCH'):\n    LATE: int = 1\n"
        "'DOCUMENTED_ONLY'\n"
    ),
    "pkg/template.py": "skip = {${detail}}\nname = 'IN_TEMPLATE'\n",
    "pkg/native.cpython-312.so": "junk\0PKG_NATIVE\0PKG_NATIVE_LONGER\0XPKG_PART\0",
}


@pytest.fixture
def index(tmp_path: Path) -> SourceIndex:
    with zipfile.ZipFile(tmp_path / "pkg.whl", "w") as archive:
        for path, text in SOURCE.items():
            archive.writestr(path, text)
    return SourceIndex(tmp_path / "pkg.whl")


@pytest.mark.parametrize("name", ["renamed", "shown", "Kind", "LATE", "fast", "thing", "inner", "native"])
def test_names_are_found_through_imports_stars_branches_and_modules(index: SourceIndex, name: str) -> None:
    assert index.find("pkg", name) is not None


def test_names_that_are_not_there_are_not_found(index: SourceIndex) -> None:
    assert index.find("pkg", "hidden") is None and index.find("pkg.innner", "shown") is None
    assert not index.has_module("pkg.worker_v1") and index.has_module("pkg.inner")


@pytest.mark.parametrize(
    ("num_positional", "keywords", "binds"),
    [
        (1, ["c"], True),
        (2, ["c", "d"], True),
        (0, ["a", "c"], True),
        (1, [], False),
        (0, ["c"], False),
        (3, ["c"], False),
        (1, ["c", "e"], False),
        (1, ["a", "c"], False),
    ],
)
def test_a_call_binds_as_python_would_bind_it(
    index: SourceIndex, num_positional: int, keywords: list[str], binds: bool
) -> None:
    found = index.find("pkg", "renamed")
    assert found is not None and found.accepts(num_positional, keywords) is binds
    anything = index.find("pkg", "open_ended")
    assert anything is not None and anything.accepts(9, ["x"])


def test_variables_are_found_in_source_templates_and_libraries_as_whole_words(index: SourceIndex) -> None:
    asked = {"PKG_SWITCH", "IN_TEMPLATE", "PKG_NATIVE", "PKG_PART", "DOCUMENTED_ONLY", "PKG_NOWHERE"}
    assert index.readers(asked) == {"PKG_SWITCH", "IN_TEMPLATE", "PKG_NATIVE"}


def test_uses_are_collected_through_local_names_with_their_calls() -> None:
    uses = {use.name: use.call for use in device_module_uses(CORE)}
    assert uses["mem_get_info"] == (0, ()) and uses["set_device"] == (1, ())
