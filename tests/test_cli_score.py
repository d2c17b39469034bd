from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rewards.chat_server import chat_server

EXAMPLE = Path(__file__).parents[1] / "examples" / "custom_reward"


def roll_score(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from roll_core.cli import main; main()", "score", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def write(path: Path, *lines: str | dict[str, object]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_each_row_gets_a_line_with_id_score_status_and_reason(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows.jsonl",
        {
            "id": "a",
            "prompt": "6*7",
            "response": "<think>hm</think> \\boxed{42}",
            "ground_truth": "42",
            "tag": "math_rule",
        },
        {"response": "\\boxed{41}", "ground_truth": 42},
        {"id": 7, "response": "no idea", "ground_truth": "\\sqrt{2}"},
        {"id": "e", "response": "\\boxed{\\frac{2}{\\sqrt{2}}}", "ground_truth": "\\sqrt{2}", "prompt": None},
    )
    done = roll_score("--reward", "math_rule", file)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": "a", "score": 1.0, "status": "ok", "reason": ""},
        {"id": "2", "score": 0.0, "status": "ok", "reason": "answered '41', the reference is '42'"},
        {"id": "7", "score": 0.0, "status": "ok", "reason": "no boxed answer"},
        {"id": "e", "score": 1.0, "status": "ok", "reason": ""},
    ]
    assert done.stderr == "4 rows scored, 2 with score 1, 4 graded\n"
    assert done.returncode == 0


def test_rows_without_a_verdict_are_counted_and_exit_1(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows.jsonl",
        {"response": "\\boxed{1}", "ground_truth": "see solution"},
        {"response": "\\boxed{9^{9^{9^{9}}}}", "ground_truth": "5"},
        {"response": "\\boxed{5}", "ground_truth": "5"},
    )
    done = roll_score("--reward", "math_rule", "--deadline", "1", file)
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["could_not_grade", "timeout", "ok"]
    assert done.stderr == "3 rows scored, 1 with score 1, 1 graded, 1 could_not_grade, 1 timeout\n"
    assert done.returncode == 1


def test_bad_rows_are_reported_with_file_and_line_and_the_rest_is_scored(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows.jsonl",
        '{"response": "\\\\boxed{1}", "ground_truth": "1"}',
        '{"response": "x", ',
        "",
        "[1, 2]",
        '{"respnse": "x", "ground_truth": "1"}',
        '{"response": 5}',
        '{"response": "x", "tag": ["a"]}',
    )
    with file.open("ab") as more:
        more.write(b'{"response": "\xff"}\n')
    done = roll_score("--reward", "math_rule", file)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["id"], line["status"]) for line in lines] == [
        ("1", "ok"),
        *((number, "unusable") for number in ("2", "4", "5", "6", "7", "8")),
    ]
    assert lines[2] == {"id": "4", "score": 0.0, "status": "unusable", "reason": "not a JSON object but list"}
    problems = done.stderr.splitlines()
    assert problems[0].startswith(f"{file}:2: not JSON: ")
    assert problems[1:4] == [
        f"{file}:4: not a JSON object but list",
        f"{file}:5: 'response' is missing; the row has: respnse, ground_truth",
        f"{file}:6: 'response' is int, not text; the row has: response",
    ]
    assert problems[4] == f"{file}:7: 'tag' must be text or a number, found list"
    assert problems[5].startswith(f"{file}:8: not UTF-8: ")
    assert problems[6] == "1 rows scored, 1 with score 1, 1 graded, 6 unusable"
    assert done.returncode == 1


def test_odd_characters_come_out_as_plain_json(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"id": "\\ud800\\u0000", "response": "\\\\boxed{\\ud800}", "ground_truth": "1"}')
    done = roll_score("--reward", "math_rule", file)
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["id"] == "\ud800\x00"
    assert done.returncode == 0


def test_a_missing_file_or_reward_exits_2_with_a_message(tmp_path: Path) -> None:
    done = roll_score("--reward", "math_rule", tmp_path / "none.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"no file '{tmp_path}/none.jsonl'\n  looked at: ")
    file = write(tmp_path / "rows.jsonl", {"response": "x"})
    done = roll_score("--reward", "math_rul", file)
    assert done.returncode == 2
    assert "no reward named 'math_rul'\n" in done.stderr and "did you mean 'math_rule'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert roll_score("--reward", "math_rule", "--option", "x", file).returncode == 2


def test_a_file_without_rows_is_no_success(tmp_path: Path) -> None:
    done = roll_score("--reward", "math_rule", write(tmp_path / "rows.jsonl", "", "  "))
    assert (done.returncode, done.stdout) == (2, "")
    assert "rows.jsonl' holds no row" in done.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("wall_s=soon", "wall_s and memory_mib must be positive numbers, got 'soon' and 1024"),
        ("isolation=bubblewarp", "isolation must be one of bubblewrap, namespaces, limits, got 'bubblewarp'"),
    ],
)
def test_an_option_of_the_wrong_kind_is_told(tmp_path: Path, option: str, message: str) -> None:
    done = roll_score("--reward", "code_sandbox", "--option", option, write(tmp_path / "rows.jsonl", {"response": "x"}))
    assert done.returncode == 2
    assert message in done.stderr


def test_an_own_reward_is_tried_by_file_with_options(tmp_path: Path) -> None:
    keywords = write(tmp_path / "keywords.json", {"tides": ["sea"]})
    done = roll_score(
        "--reward",
        f"{EXAMPLE}/my_rewards.py:KeywordReward",
        "--option",
        f"keywords_file={keywords}",
        EXAMPLE / "responses.jsonl",
    )
    scores = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["score"] for row in scores] == [1.0, 0.0, 0.0]
    assert scores[1]["status"] == "could_not_grade"


def test_the_readme_of_the_example_shows_what_is_printed() -> None:
    blocks = (EXAMPLE / "README.md").read_text().split("```")
    command, printed = blocks[1].split(), blocks[3]
    assert command[:2] == ["roll", "score"]
    done = subprocess.run(
        [sys.executable, "-c", "from roll_core.cli import main; main()", *command[1:]],
        capture_output=True,
        text=True,
        cwd=EXAMPLE.parents[1],
    )
    assert done.stdout == printed.lstrip("\n")


@pytest.mark.parametrize("workers", ["1", "3"])
def test_many_rows_keep_their_order(tmp_path: Path, workers: str) -> None:
    rows: list[dict[str, object]] = [
        {"id": str(number), "response": f"\\boxed{{{number}\\sqrt{{4}}}}", "ground_truth": str(2 * number)}
        for number in range(700)
    ]
    done = roll_score("--reward", "math_rule", "--workers", workers, write(tmp_path / "rows.jsonl", *rows))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["id"] for line in lines] == [str(number) for number in range(700)]
    assert all(line["score"] == 1.0 for line in lines)


@pytest.mark.parametrize(
    ("reward", "rows", "scores"),
    [
        (
            "ifeval",
            [
                {"response": "No pause.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
                {"response": "Well, a pause.", "ground_truth": {"func_name": "validate_no_commas"}},
            ],
            [1.0, 0.0],
        ),
        ("crossthinkqa", [{"response": "The answer is (c).", "ground_truth": "C"}], [1.0]),
        ("multiple_choice", [{"response": "\\boxed{\\text{E}}", "ground_truth": "E"}], [1.0]),
    ],
)
def test_built_in_rewards_score_their_columns(
    tmp_path: Path, reward: str, rows: list[dict[str, object]], scores: list[float]
) -> None:
    done = roll_score("--reward", reward, write(tmp_path / "rows.jsonl", *rows))
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == scores, done.stderr
    assert done.returncode == 0


def test_a_judge_is_asked_with_options_and_its_failures_are_told(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", {"response": "It is 4.", "ground_truth": "4", "prompt": "2+2?"})
    with chat_server(lambda prompt: "YES" if "It is 4." in prompt or "answer is 4." in prompt else "NO") as server:
        options = ("--option", f"url={server.url}", "--option", "model=judge")
        done = roll_score("--reward", "llm_judge", *options, file)
    assert json.loads(done.stdout) == {"id": "1", "score": 1.0, "status": "ok", "reason": ""}, done.stderr
    gone = roll_score("--reward", "llm_judge", *options, "--option", "first_pause_s=0.01", file)
    assert gone.returncode == 2 and "the judge judge cannot be used: " in gone.stderr
