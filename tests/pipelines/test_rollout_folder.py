"""Files of a rollout: whole or absent, never of two rollouts, and enough to go on from."""

import json
from pathlib import Path

import pytest

from roll_core.errors import CheckpointError
from roll_core.pipelines.rollout_folder import RolloutFolder

IDENTITY = {"seed": 1, "model": "m"}


def opened(path: Path, goes_on: bool = True, **changes: object) -> tuple[RolloutFolder, set[int]]:
    folder = RolloutFolder(path, "step", {**IDENTITY, **changes})
    return folder, folder.open(goes_on)


def test_a_later_run_knows_what_is_there(tmp_path: Path) -> None:
    folder, done = opened(tmp_path / "a")
    assert done == set()
    for step in (1, 2):
        folder.write(step, [{"n": step}, {"n": -step}], {"drawn": 10 * step})
    later, done = opened(tmp_path / "a")
    assert done == {1, 2}
    assert later.states[2] == {"drawn": 20}
    assert list(later.records()) == [(1, {"n": 1}), (1, {"n": -1}), (2, {"n": 2}), (2, {"n": -2})]


def test_what_a_kill_leaves_in_mid_step_is_made_again(tmp_path: Path) -> None:
    folder, _ = opened(tmp_path)
    folder.write(1, [{"n": 1}], {"drawn": 1})
    # Killed while step 2 was written, and after its state was.
    (tmp_path / ".step-000002.jsonl.partial").write_text('{"n": 2}\n{"n":')
    folder.states[2] = {"drawn": 2}
    folder._write_state()
    later, done = opened(tmp_path)
    assert done == {1}
    assert later.states[1] == {"drawn": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rollout.json", "step-000001.jsonl"]


def test_a_step_in_the_middle_that_is_gone_is_made_again(tmp_path: Path) -> None:
    folder, _ = opened(tmp_path)
    for step in (1, 2, 3):
        folder.write(step, [{"n": step}], {})
    (tmp_path / "step-000002.jsonl").unlink()
    assert opened(tmp_path)[1] == {1, 3}


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    folder, _ = opened(tmp_path)
    folder.write(1, [{"n": 1}], {})
    with pytest.raises(CheckpointError) as caught:
        opened(tmp_path, goes_on=False)
    assert str(caught.value) == (
        f"{tmp_path} has 1 files of an earlier rollout, and nothing is overwritten"
        "\n  try: resume_from_checkpoint=true to go on with it, or another rollout_dump_dir"
    )


def test_a_rollout_with_other_settings_is_not_added_to(tmp_path: Path) -> None:
    folder, _ = opened(tmp_path)
    folder.write(1, [{"n": 1}], {})
    with pytest.raises(CheckpointError) as caught:
        opened(tmp_path, seed=2)
    assert str(caught.value) == (
        f"{tmp_path} has a rollout with other settings, which this one cannot go on with"
        "\n  seed: 1 then, 2 now"
        "\n  try: another rollout_dump_dir, or the settings of that run"
    )


def test_settings_may_change_where_nothing_was_written(tmp_path: Path) -> None:
    opened(tmp_path)
    assert opened(tmp_path, goes_on=False, seed=2)[1] == set()
    assert json.loads((tmp_path / "rollout.json").read_text())["identity"]["seed"] == 2


def test_files_of_unknown_origin_are_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "step-000001.jsonl").write_text("{}\n")
    with pytest.raises(CheckpointError, match=r"has rollouts and no rollout\.json"):
        opened(tmp_path)
