from roll_core.display import Sample, sample_lines


def test_a_sample_shows_the_end_of_the_prompt_the_response_and_the_score() -> None:
    prompt = "instructions " * 100 + "What is 1+1?"
    lines = sample_lines([Sample(prompt, "Two.\nIt is 2", 0.5, "math", "2", "close enough")])
    assert lines == [
        "sample 1 of 1: score 0.5, math, expected 2, close enough",
        "  prompt   | ..." + prompt[-200:],
        "  response | Two.",
        "           | It is 2",
    ]


def test_a_long_response_loses_its_middle_and_says_how_much() -> None:
    lines = sample_lines([Sample("p", "a" * 1000 + "end", 1.0)])
    assert lines[2] == "  response | " + "a" * 300 + " ...(403 characters)... " + "a" * 297 + "end"


def test_nothing_a_model_writes_reaches_the_terminal_as_a_command() -> None:
    lines = sample_lines([Sample("p", "\x1b[2J\rred\x07\u202e\t\u00e9\u4e2d", 0.0)])
    assert lines[2] == "  response | \\x1b[2J\\rred\\x07\\u202e\\t\u00e9\u4e2d"


def test_an_empty_response_is_called_empty() -> None:
    assert sample_lines([Sample("p", "", 0.0)])[2] == "  response | (empty)"
