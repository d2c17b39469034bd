"""What takes long to make is made once, and nobody is ever given half of it or a mixture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Make = Callable[..., bool]


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Have two folders made; whether that was needed."""
    import kept_files

    def make(text: str = "text", name: str = "model", fails: bool = False) -> bool:
        made = []

        def write(place: Path) -> None:
            for folder in (name, f"{name}-data"):
                (place / folder).mkdir(parents=True)
                (place / folder / "file").write_text(text)
                if fails:
                    raise KeyboardInterrupt
            made.append(place)

        kept_files.make_once(tmp_path, [name, f"{name}-data"], {"text": text}, write, manifest=f"{name}.json")
        return bool(made)

    return make


def test_whole_folders_are_kept_and_others_are_made_anew(make: Make, tmp_path: Path) -> None:
    assert make() and not make()
    (tmp_path / "model" / "file").unlink()
    assert make() and not make()
    with (tmp_path / "model-data" / "file").open("a") as file:
        file.write("more")
    assert make() and not make()
    (tmp_path / "model.json").write_text("{cut")
    assert make() and not make()
    assert make("other") and not make("other")
    assert contents(tmp_path).keys() == {"model/file", "model-data/file", "model.json"}


def test_folders_made_with_other_versions_of_packages_are_made_anew(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make()
    monkeypatch.setattr("kept_files.version", lambda name: "0.0.0")
    assert make()


def test_an_interruption_leaves_the_old_folders_whole(make: Make, tmp_path: Path) -> None:
    make()
    before = contents(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        make("other", fails=True)
    assert contents(tmp_path) == before
    assert not make()


def test_everything_else_is_left_alone(make: Make, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "mine").write_text("mine")
    make()
    make(name="model_by_steps")
    assert (tmp_path / "checkpoints" / "mine").read_text() == "mine"
    assert not make() and not make(name="model_by_steps")
