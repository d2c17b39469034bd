from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roll_core.data.jsonl import Columns, load_rows, read_files
from roll_core.errors import DataError, Problem

MATH = {"math_rule": "math_rule"}
GOOD = {"id": 1, "prompt": "1+1?", "ground_truth": "2", "tag": "math_rule"}


def problems_in(files: str | list[str], folder: str, routes: dict[str, str]) -> list[Problem]:
    return read_files(files, folder, routes)[1]


def shown(path: str, routes: dict[str, str] | None = None) -> list[str]:
    return [str(problem).replace(path, "FILE") for problem in problems_in(path, "", MATH if routes is None else routes)]


def test_a_documented_row_is_read_whole(write_rows):
    messages = [{"role": "system", "content": "Do maths."}, {"role": "user", "content": "Solve 3x + 5 = 14"}]
    path = write_rows(
        {
            "id": "0",
            "source": "gsm8k",
            "difficulty": 0,
            "prompt": "Solve the equation",
            "messages": json.dumps(messages),
            "ground_truth": "3",
            "tag": "math_rule",
        }
    )
    [row] = load_rows(path, "", MATH)
    assert (row.id, row.tag, row.domain, row.ground_truth) == ("0", "math_rule", "math_rule", "3")
    assert list(row.messages) == messages
    assert row.prompt == "Solve the equation"
    assert row.fields == {"source": "gsm8k", "difficulty": 0}
    assert (row.file, row.line) == (path, 1)


def test_rows_come_in_the_order_of_files_and_lines(write_rows):
    first = write_rows(GOOD | {"id": "b"}, GOOD | {"id": "a"}, name="first.jsonl")
    second = write_rows(GOOD | {"id": "0"}, name="second.jsonl")
    assert [row.id for row in load_rows([first, second], "", MATH)] == ["b", "a", "0"]


def test_a_tag_no_reward_answers_to_is_refused_with_line_value_and_known_tags(write_rows):
    code = {"id": "2", "prompt": "Write add(a,b)", "case_type": "pytest", "test_cases": "[]", "tag": "KodCode"}
    path = write_rows(GOOD, code)
    assert shown(path) == [
        "FILE:2: tag: no reward answers to this tag\n"
        "    given: 'KodCode'\n"
        "    try:   add it to the tag_included of the reward that grades it; known tags: math_rule"
    ]
    with pytest.raises(DataError, match="1 problem in the data"):
        load_rows(path, "", MATH)


@pytest.mark.parametrize("tag", ["Math_Rule", "math_rule ", "mathrule"])
def test_a_nearly_right_tag_is_refused_with_the_right_one(write_rows, tag):
    [problem] = problems_in(write_rows(GOOD | {"tag": tag}), "", MATH)
    assert problem.value == tag
    assert problem.hint == "did you mean 'math_rule'? known tags: math_rule"


@pytest.mark.parametrize(
    ("tag", "rule"), [("", "is empty"), ("  ", "is empty"), (None, "is null"), (3, "must be text, found a number")]
)
def test_a_tag_that_says_nothing_is_refused(write_rows, tag, rule):
    [problem] = problems_in(write_rows(GOOD | {"tag": tag}), "", MATH)
    assert problem.path.endswith(":1: tag")
    assert problem.rule == rule


@pytest.mark.parametrize("order", [["a.jsonl", "b.jsonl"], ["b.jsonl", "a.jsonl"]])
def test_mixed_types_of_ids_and_answers_behave_alike_in_either_order_of_files(write_rows, tmp_path, order):
    write_rows({"id": 1, "prompt": "p", "tag": "math_rule", "ground_truth": 3}, name="a.jsonl")
    write_rows(
        {"id": "1", "prompt": "p", "tag": "math_rule", "ground_truth": "\\frac{1}{2}"},
        {"id": "3", "prompt": "p", "tag": "math_rule", "ground_truth": None},
        name="b.jsonl",
    )
    problems = problems_in(order, str(tmp_path), MATH)
    null = [problem for problem in problems if problem.rule == "is null"]
    twice = [problem for problem in problems if problem.rule.startswith("is already used at")]
    assert [problem.path for problem in null] == [f"{tmp_path}/b.jsonl:2: ground_truth"]
    assert [problem.path for problem in twice] == [f"{tmp_path}/{order[1]}:1: id"]
    assert twice[0].rule == f"is already used at {tmp_path}/{order[0]}:1"
    assert len(problems) == 2


@pytest.mark.parametrize(("given", "text"), [(3, "3"), (0.5, "0.5"), (-2, "-2"), ("3", "3")])
def test_numbers_as_answers_become_text(write_rows, given, text):
    [row] = load_rows(write_rows(GOOD | {"ground_truth": given}), "", MATH)
    assert row.ground_truth == text


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("", "is empty"),
        (True, "must be text or a number, found true or false"),
        ([1], "must be text or a number, found a list"),
    ],
)
def test_an_answer_that_is_no_text_is_refused(write_rows, given, rule):
    [problem] = problems_in(write_rows(GOOD | {"ground_truth": given}), "", MATH)
    assert problem.rule == rule


@pytest.mark.parametrize(
    ("domain", "missing"),
    [
        ("math_rule", ["ground_truth"]),
        ("llm_judge", ["ground_truth"]),
        ("crossthinkqa", ["ground_truth"]),
        ("code_sandbox", ["test_cases", "case_type"]),
        ("ifeval", []),
        ("a_reward_of_ones_own", []),
    ],
)
def test_each_domain_asks_for_its_own_fields(write_rows, domain, missing):
    path = write_rows({"id": 1, "prompt": "p", "tag": "x"})
    assert [p.path for p in problems_in(path, "", {"x": domain})] == [f"{path}:1: {name}" for name in missing]


def test_a_missing_field_names_what_the_row_has_and_a_near_name(write_rows):
    path = write_rows({"Id": 1, "prompt": "p", "ground_truth": "2", "tag": "math_rule"})
    assert shown(path) == [
        "FILE:1: id: is missing; the row has: Id, prompt, ground_truth, tag\n    try:   rename 'Id' to 'id'"
    ]


def test_a_row_without_a_question_is_refused(write_rows):
    path = write_rows({"id": 1, "ground_truth": "2", "tag": "math_rule"})
    assert shown(path) == [
        "FILE:1: prompt: the row has neither messages nor prompt; the row has: id, ground_truth, tag"
    ]


def test_columns_of_other_names_are_read(write_rows):
    path = write_rows({"uid": 7, "question": "1+1?", "kind": "math_rule", "ground_truth": "2"})
    [row] = load_rows(path, "", MATH, Columns(id="uid", tag="kind", prompt="question"))
    assert (row.id, row.prompt, row.fields) == ("7", "1+1?", {})


def test_instructions_and_their_arguments_must_pair_up(write_rows):
    row = {"id": 1, "prompt": "p", "tag": "ifeval", "instruction_id_list": ["a", "b", "c"], "kwargs": [{}, {}]}
    assert shown(write_rows(row), {"ifeval": "ifeval"}) == [
        "FILE:1: kwargs: holds 2 entries for 3 instruction ids\n    given: [{}, {}]"
    ]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('{"id": 1,', "is not JSON: Expecting property name enclosed in double quotes"),
        ("[1]", "must be one JSON object, found a list"),
        ("3", "must be one JSON object, found a number"),
        ("null", "must be one JSON object, found null"),
        ('{"id": NaN}', "is not JSON: NaN is not a JSON value"),
        ('{"ground_truth": -1e400}', "is not JSON: -1e400 is too large for a number; write it as text"),
        ('{"id": 1, "id": 2}', "is not JSON: key given twice: id"),
        (b'{"id": "caf\xe9"}', "is not UTF-8: byte 0xe9 at position 12 of the line"),
        ("[" * 100_000, "is not JSON: "),
    ],
)
def test_a_line_that_is_no_json_object_is_refused(write_rows, line, rule):
    path = write_rows(GOOD, line)
    [problem] = problems_in(path, "", MATH)
    assert problem.path == f"{path}:2"
    assert problem.rule.startswith(rule)


def test_an_object_over_several_lines_is_told_what_the_format_is(write_rows):
    problems = problems_in(write_rows("{", '"id": 1', "}"), "", MATH)
    assert problems[0].hint == "write one JSON object per line, each on a line of its own"


def test_a_file_that_is_a_json_array_gives_one_problem(write_rows):
    assert len(problems_in(write_rows(json.dumps([GOOD] * 50), "more", "lines"), "", MATH)) == 1


def test_a_file_in_another_encoding_gives_one_problem(write_rows):
    text = "\n".join(json.dumps(GOOD | {"id": number}) for number in range(5))
    [problem] = problems_in(write_rows(text.encode("utf-16")), "", MATH)
    assert (problem.rule, problem.hint) == ("the file is UTF-16", "save it as UTF-8")


def test_byte_order_mark_blank_lines_and_windows_line_ends_are_fine(write_rows):
    line = json.dumps(GOOD).encode()
    other = json.dumps(GOOD | {"id": 2}).encode()
    path = write_rows(b"\xef\xbb\xbf" + line + b"\r", b"", b"  \t", other + b"\r", b"")
    assert [(row.id, row.line) for row in load_rows(path, "", MATH)] == [("1", 1), ("2", 4)]


def test_separators_of_unicode_do_not_end_a_line(write_rows):
    path = write_rows(json.dumps(GOOD | {"prompt": "one\u2028two\x85"}, ensure_ascii=False))
    assert load_rows(path, "", MATH)[0].prompt == "one\u2028two\x85"


@pytest.mark.parametrize("column", ["prompt", "messages"])
def test_half_a_surrogate_pair_is_refused_as_no_tokenizer_can_encode_it(write_rows, column):
    value = "\ud800" if column == "prompt" else json.dumps([{"role": "user", "content": "\ud800"}])
    [problem] = problems_in(write_rows({**GOOD, column: value}), "", MATH)
    assert problem.rule == "holds half of a surrogate pair (\\ud800)"


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_is_refused(write_rows, content):
    assert shown(write_rows(content)) == ["FILE: the file holds no rows\n    try:   write one JSON object per line"]


def test_no_file_at_all_is_refused():
    assert [problem.rule for problem in problems_in([], "", MATH)] == ["no data file is named"]


def test_a_file_listed_twice_is_named_once(write_rows, tmp_path):
    path = write_rows(GOOD)
    assert [problem.rule for problem in problems_in([path, "rows.jsonl"], str(tmp_path), MATH)] == [
        "the file is listed twice"
    ]


def test_files_are_looked_for_as_given_and_then_in_the_data_folder(write_rows, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    write_rows(GOOD | {"id": "in data"}, name="data/rows.jsonl")
    monkeypatch.chdir(tmp_path)
    assert [row.id for row in load_rows("rows.jsonl", "data", MATH)] == ["in data"]
    assert [row.id for row in load_rows("data/rows.jsonl", "data", MATH)] == ["in data"]
    write_rows(GOOD | {"id": "as given"})
    assert [row.id for row in load_rows("rows.jsonl", "data", MATH)] == ["as given"]


def test_a_missing_file_names_both_places_and_a_near_name(write_rows, tmp_path):
    path = write_rows(GOOD, name="train.jsonl")
    [problem] = problems_in("trian.jsonl", str(tmp_path), MATH)
    assert problem.rule == f"no such file; looked for trian.jsonl and {tmp_path}/trian.jsonl; did you mean {path}?"


def test_a_folder_names_the_files_in_it(write_rows, tmp_path):
    write_rows(GOOD)
    [problem] = problems_in(str(tmp_path), "", MATH)
    assert problem.rule == f"{tmp_path} is a folder; name files, such as: rows.jsonl"


def test_all_problems_of_all_rows_are_reported_and_the_message_is_bounded(write_rows):
    path = write_rows(*[{"id": number, "tag": "math_rule"} for number in range(30)])
    assert len(problems_in(path, "", MATH)) == 60
    with pytest.raises(DataError) as error:
        load_rows(path, "", MATH, limit=3)
    lines = str(error.value).splitlines()
    assert lines[0] == "60 problems in the data"
    assert lines[-1] == "- and 57 more"
    assert sum(line.startswith("- ") for line in lines) == 4


def test_long_values_are_cut_in_messages(write_rows):
    [problem] = problems_in(write_rows("x" * 10_000), "", MATH)
    assert len(str(problem.value)) < 200


def test_data_files_are_checked_without_torch(write_rows):
    script = (
        "import sys; from roll_core.data.jsonl import read_files, tag_routes; import roll_core.data.templates;"
        f"assert not read_files({write_rows(GOOD)!r}, '', {MATH!r})[1];"
        "sys.exit(bool({'torch', 'transformers', 'numpy', 'jinja2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=Path.cwd(), check=False).returncode == 0


def test_questions_come_from_the_prompt_column_where_only_that_is_named(write_rows):
    from roll_core.config.machine import columns_of
    from roll_core.config.role_sections import DataArgs

    row = {"id": "1", "tag": "math", "ground_truth": "4", "question": "2 + 2?", "messages": "notes of the authors"}
    columns = columns_of(DataArgs(prompt="question"))
    [read] = load_rows([str(write_rows(row))], "", {"math": "math_rule"}, columns)
    assert [message["content"] for message in read.messages] == ["2 + 2?"]
