"""Dumps found and read: which belong together, how many are read, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roll_core.errors import DataError
from roll_core.show.dumps import find_dumps, read_dumps
from roll_core.show.lines import rollout_lines
from roll_core.show.records import Rollout, Token, Turn, read_rollout
from tests.show.rollouts import HOSTILE, answer, episode, write, write_run


def every(rollout: Rollout) -> bool:
    return True


def test_dumps_come_newest_step_first_with_the_files_of_a_step_together(tmp_path: Path) -> None:
    dumps = find_dumps(write_run(tmp_path))
    assert [(dump.kind, dump.step, [path.name for path in dump.files]) for dump in dumps] == [
        ("validation", 2, ["val-000002.jsonl"]),
        ("train", 2, ["episodes-000002.jsonl"]),
        ("train", 1, ["episodes-000001.jsonl", "step-000001.jsonl"]),
    ]


def test_a_folder_above_and_a_single_file_lead_to_them_too(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "output" / "rollouts")
    assert find_dumps(tmp_path / "output") == find_dumps(folder)
    [dump] = find_dumps(folder / "val-000002.jsonl")
    assert (dump.kind, dump.step) == ("validation", 2)


def test_tokens_of_rows_are_put_to_their_episode(tmp_path: Path) -> None:
    write_run(tmp_path)
    found = read_dumps([dump for dump in find_dumps(tmp_path) if dump.step == 1], every, 100)
    assert [rollout.id for rollout in found.rollouts] == ["Lake_0_1_7_0", "Lake_0_2_7_0"]
    assert found.rollouts[1].tokens == (Token("Up", -0.25),)


def test_rows_without_episodes_are_rollouts_of_their_own_also_where_ids_repeat(tmp_path: Path) -> None:
    write(tmp_path, "step-000003.jsonl", answer("a", 1.0), answer("a", 0.0), answer("a", 0.5))
    found = read_dumps(find_dumps(tmp_path), every, 100)
    assert [rollout.score for rollout in found.rollouts] == [1.0, 0.0, 0.5]


def test_no_more_than_so_many_are_read_and_that_is_told(tmp_path: Path) -> None:
    found = read_dumps(find_dumps(write_run(tmp_path)), every, 1)
    assert ([rollout.id for rollout in found.rollouts], found.is_cut, found.num_unread_dumps) == (["a"], True, 2)
    found = read_dumps(find_dumps(tmp_path), every, 2)
    assert (found.is_cut, found.num_unread_dumps) == (False, 2)


def test_lines_that_cannot_be_read_are_named_and_the_others_are_there(tmp_path: Path) -> None:
    broken = answer("c", 1.0) | {"tokens": ["x"], "advantages": [1.0, 2.0]}
    path = write(tmp_path, "step-000001.jsonl", answer("a", 1.0), '{"id": "b", "resp', "[1]", json.dumps(broken))
    found = read_dumps(find_dumps(tmp_path), every, 100)
    assert [rollout.id for rollout in found.rollouts] == ["a"]
    assert [problem.split(": ")[0] for problem in found.problems] == [f"{path}:{line}" for line in (2, 3, 4)]
    assert found.problems[1].endswith("neither an answer with 'response' nor an episode with 'turns'")
    assert found.problems[2].endswith("'tokens' and 'advantages' are not lists of one length")


def test_a_place_without_dumps_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no rollouts in .*\n  looked for: step-\*\.jsonl, .*\n  try: the folder that"):
        find_dumps(tmp_path)
    with pytest.raises(DataError, match=r"no file or folder 'nowhere'\n  looked at: /"):
        find_dumps(Path("nowhere"))


def test_several_runs_in_one_place_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    write_run(tmp_path / "two")
    with pytest.raises(DataError, match=r"rollouts of several runs are in .*\n.*/one\n.*/two\n  try: one of these"):
        find_dumps(tmp_path)


def test_turns_may_be_roles_and_texts(tmp_path: Path) -> None:
    given = {
        "id": 3,
        "env": "Lake",
        "group": 2,
        "turns": [{"role": "user", "text": "P_"}, {"role": "assistant", "text": "Down", "reward": 1}],
        "reward": 1.0,
        "success": True,
    }
    rollout = read_rollout(json.dumps(given), "train", 4)
    assert rollout.turns == (Turn("user", "P_"), Turn("assistant", "Down", 1.0))
    assert (rollout.id, rollout.group, rollout.tag, rollout.score, rollout.is_success) == ("3", "2", "Lake", 1.0, True)


def test_numbers_that_are_none_are_as_good_as_missing_and_surrogates_are_replaced() -> None:
    line = '{"id": "\\ud800", "prompt": null, "response": "\\udfff!", "score": NaN, "metrics": {"x": Infinity}}'
    rollout = read_rollout(line, "train", 1)
    assert (rollout.id, rollout.score, rollout.metrics) == ("?", None, {})
    assert rollout.turns == (Turn("prompt", ""), Turn("assistant", "?!"))


def test_lines_for_a_terminal_hold_rewards_and_nothing_that_a_terminal_obeys() -> None:
    rollout = read_rollout(json.dumps(episode(1, 1.0, HOSTILE)), "train", 2)
    lines = list(rollout_lines(rollout))
    assert lines[0] == "train step 2, Lake, Lake_0_1_7_0, score 1, success, terminated"
    assert any(line.startswith("  assistant +1") for line in lines)
    assert "\\x1b[31mred\\x07" in "".join(lines) and "\x1b" not in "".join(lines)


def test_long_texts_lose_their_middle_on_a_terminal() -> None:
    lines = list(rollout_lines(read_rollout(json.dumps(answer("a", 1.0, "x" * 5000)), "train", 1)))
    assert "...(4400 characters)..." in lines[-1] and len(lines[-1]) < 700
