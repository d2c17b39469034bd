"""`roll show`: what is printed, which page is written, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.show.rollouts import HOSTILE, write, write_run


def roll_show(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roll_core", "show", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def ids_of(page: Path) -> list[str]:
    data = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert data is not None
    return [one["id"] for one in json.loads(data[1])]


def test_rollouts_are_printed_newest_first_and_a_page_is_written_beside_them(tmp_path: Path) -> None:
    done = roll_show(write_run(tmp_path), "--limit", 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^(\w+ step \d), \w+, (\w+)", done.stdout, re.MULTILINE) == [
        ("validation step 2", "a"),
        ("validation step 2", "b"),
    ]
    assert done.stdout.endswith(f"5 rollouts of steps 1 to 2\npage: {tmp_path / 'rollouts.html'}\n")
    assert "\x1b" not in done.stdout and "</script>" in done.stdout
    assert len(ids_of(tmp_path / "rollouts.html")) == 5


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--step", "1"], ["Lake_0_1_7_0", "Lake_0_2_7_0"]),
        (["--from", "train", "--min-score", "0.5"], ["Lake_0_3_7_0", "Lake_0_1_7_0"]),
        (["--max-score", "0.5"], ["b", "Lake_0_2_7_0"]),
        (["--tag", "math_rule"], ["a", "b"]),
        (["--most", "1"], ["a"]),
    ],
)
def test_options_choose_what_is_shown(tmp_path: Path, options: list[str], ids: list[str]) -> None:
    done = roll_show(write_run(tmp_path / "run"), *options, "--html", tmp_path / "my.html")
    assert done.returncode == 0, done.stderr
    assert ids_of(tmp_path / "my.html") == ids
    assert ("there are more" in done.stdout) == ("--most" in options)


def test_a_config_leads_to_its_rollouts(tmp_path: Path) -> None:
    write_run(tmp_path / "rollouts")
    text = (Path(__file__).parents[2] / "examples" / "quickstart" / "rlvr.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^rollout_dump_dir: .*", f"rollout_dump_dir: {tmp_path / 'rollouts'}", text, flags=re.MULTILINE)
    (tmp_path / "run.yaml").write_text(text)
    done = roll_show(tmp_path / "run.yaml", "--limit", 0)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"5 rollouts of steps 1 to 2\npage: {tmp_path / 'rollouts' / 'rollouts.html'}\n"
    (tmp_path / "run.yaml").write_text(re.sub(r"^rollout_dump_dir: .*", "", text, flags=re.MULTILINE))
    done = roll_show(tmp_path / "run.yaml")
    assert done.returncode == 2 and "does not set rollout_dump_dir" in done.stderr


def test_what_cannot_be_shown_is_told(tmp_path: Path) -> None:
    done = roll_show("nowhere", folder=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "no file or folder 'nowhere'")
    done = roll_show(write_run(tmp_path / "run"), "--step", 9)
    assert (done.returncode, done.stderr) == (
        2,
        f"no rollout in '{tmp_path / 'run'}' is among those that were asked for\n",
    )
    done = roll_show(tmp_path / "run", "--html", tmp_path / "no" / "page.html")
    assert done.returncode == 1 and "could not be written: No such file or directory" in done.stderr


def test_lines_that_cannot_be_read_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "step-000001.jsonl", *["{"] * 7, {"id": "a", "response": HOSTILE, "score": 1})
    done = roll_show(tmp_path)
    assert (done.returncode, ids_of(tmp_path / "rollouts.html")) == (0, ["a"])
    assert done.stderr.splitlines()[0].startswith(f"{path}:1: not JSON: ")
    assert done.stderr.splitlines()[-1] == "7 lines could not be read"
