"""Building the simulated NPU: without a compiler it fails and says so; a finished library is used again."""

from pathlib import Path

import pytest

from tests.simulated_npu import build


def test_a_missing_compiler_is_a_failure_and_not_a_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.CACHE, str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    with pytest.raises(RuntimeError, match="the simulated NPU cannot be compiled") as error:
        build.build()
    assert "no-such-compiler" in str(error.value)
    assert not build.library().exists()


def test_a_finished_library_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.CACHE, str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    build.library().parent.mkdir(parents=True)
    build.library().write_bytes(b"compiled before")
    assert build.build() == build.library()


def test_other_sources_are_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.library()
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-O2"])
    assert build.library() != before
