"""Finds a config file from what a user types: a folder and a name, or a path."""

from __future__ import annotations

import difflib
from pathlib import Path

from roll_core.errors import ConfigError, Problem

_SUFFIXES = (".yaml", ".yml")
_LISTED = 12


def find_config(config_path: str | Path, config_name: str) -> Path:
    """The file `config_name` in a folder, which is absolute or relative to the working directory or to `examples/`.

    Raises:
        ConfigError: no such file; the message lists the places looked at and the configs that are there.
    """
    folders = _folders(Path(config_path))
    for folder in folders:
        for candidate in _spellings(folder / config_name):
            if _is_file(candidate):
                return candidate.resolve()
    raise _not_found(f"{config_path} / {config_name}", folders, Path(config_name).name)


def find_file(path: str | Path) -> Path:
    """A config given as one path, with or without its ending; relative to the working directory or to `examples/`.

    Raises:
        ConfigError: no such file.
    """
    path = Path(path).expanduser()
    folders = _folders(path.parent)
    for folder in folders:
        for candidate in _spellings(folder / path.name):
            if _is_file(candidate):
                return candidate.resolve()
    for folder in folders:
        _refuse_what_is_no_config(str(path), folder / path.name)
    # A folder in place of a file: what is in it is what may have been meant.
    inside = [folder / path.name for folder in folders if (folder / path.name).is_dir()]
    if inside:
        raise _not_found(f"{path}, which is a folder", inside, "")
    raise _not_found(str(path), folders, path.name)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        rule = f"{path} cannot be looked at: {error.strerror or error}"
        raise ConfigError([Problem("", rule, None, "a file that you may read")]) from error


def _refuse_what_is_no_config(asked: str, place: Path) -> None:
    """Something is there by exactly this name, and it is neither a config nor a folder."""
    if place.is_symlink() and not place.exists():
        raise ConfigError([Problem("", f"no config {asked}: it is a link to {place.readlink()}, which is not there")])
    if place.exists() and not place.is_dir():
        is_file = place.is_file()
        rule = f"its name does not end in {' or '.join(_SUFFIXES)}" if is_file else "it is no regular file"
        raise ConfigError([Problem("", f"{asked} is no config: {rule}", None, "a YAML file")])


def _spellings(path: Path) -> list[Path]:
    if path.suffix in _SUFFIXES or not path.name:
        return [path]
    return [path.with_name(path.name + suffix) for suffix in _SUFFIXES]


def _folders(folder: Path) -> list[Path]:
    folder = folder.expanduser()
    if folder.is_absolute():
        return [folder]
    repository = Path(__file__).resolve().parents[2]
    places = [Path.cwd() / folder, Path.cwd() / "examples" / folder, repository / "examples" / folder]
    return list(dict.fromkeys(place.resolve() for place in places))


def _not_found(asked: str, folders: list[Path], name: str) -> ConfigError:
    lines, found = [], []
    for folder in folders:
        if not folder.is_dir():
            lines.append(f"looked in {folder}: there is no such folder")
            continue
        try:
            here = sorted(path.name for path in folder.iterdir() if path.suffix in _SUFFIXES)
        except OSError as error:
            lines.append(f"looked in {folder}: it cannot be listed: {error.strerror or error}")
            continue
        found += [Path(one).stem for one in here]
        more = f" and {len(here) - _LISTED} more" if len(here) > _LISTED else ""
        lines.append(f"looked in {folder}: it has {', '.join(here[:_LISTED]) or 'no YAML file'}{more}")
    close = difflib.get_close_matches(name.removesuffix(".yaml").removesuffix(".yml"), found, n=1, cutoff=0.6)
    hint = f"did you mean '{close[0]}'?" if close else "a folder relative to here or to examples/, and a file's name"
    rule = "\n    ".join([f"no config {asked}", *lines])
    return ConfigError([Problem("", rule, None, hint)])
