import io
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from roll_core.display import RunDisplay, Sample
from roll_core.display.plain import printable

RUN = """
import logging, sys
logging.basicConfig(level="INFO")
from roll_core.display import RunDisplay, Sample
with RunDisplay(2, "exp") as display:
    display.step(0, {"val_correct/all/mean": 0.25})
    display.phase("generate")
    display.notice("reward is [constant]\\nlook at it")
    logging.warning("from logging")
    print("from print")
    display.samples([Sample("1+1?", "it is [red]2\\x1b[0m", 1.0)])
    display.step(1, {"reward/mean": 0.5, "time/step_generate": 3.0, "time/step_train": 1.0})
    display.checkpoint("output/checkpoint-1")
    display.step(2, {"val_correct/all/mean": 0.75})
    display.summary({"checkpoint": "output/checkpoint-2", "metrics": "output/metrics.jsonl"})
print("RESULT")
"""

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "FORCE_COLOR": "1", "TERM": "xterm"}


def run_on_a_terminal(program: str) -> str:
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=terminal, stdout=terminal, stderr=terminal, env=ENVIRONMENT
    ) as process:
        os.close(terminal)
        output = b""
        while True:
            try:
                chunk = os.read(controller, 65536)
            except OSError:  # Linux says EIO when the last writer is gone.
                break
            if not chunk:
                break
            output += chunk
        assert process.wait() == 0, output.decode()
    os.close(controller)
    return output.decode()


def test_without_a_terminal_there_is_a_line_per_step_and_no_control_code() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert re.sub(r"(elapsed|eta|in) \d+s", r"\1 0s", done.stdout) == (
        "exp: 2 steps\n"
        "step 0/2  accuracy 25.0%  elapsed 0s  eta ?\n"
        "notice: reward is [constant]\n"
        "        look at it\n"
        "from print\n"
        "sample 1 of 1: score 1\n"
        "  prompt   | 1+1?\n"
        "  response | it is [red]2\\x1b[0m\n"
        "step 1/2  reward 0.500  accuracy 25.0%  time generate 75%, train 25%  elapsed 0s  eta 0s\n"
        "step 2/2  reward 0.500  accuracy 75.0%  time generate 75%, train 25%  elapsed 0s\n"
        "exp: 2 of 2 steps in 0s\n"
        "  held-out accuracy: 25.0% before, 75.0% after (+50.0 points)\n"
        "  checkpoint: output/checkpoint-2\n"
        "  metrics:    output/metrics.jsonl\n"
        "RESULT\n"
    )


def test_on_a_terminal_everything_printed_stays_above_the_panel() -> None:
    output = run_on_a_terminal(RUN)
    panel = output.rindex("step 2/2")
    for text in ("notice: ", "reward is [constant]", "from logging", "from print", "it is [red]2\\x1b[0m"):
        assert output.count(text) == 1, text
        assert output.index(text) < panel
    assert panel < output.index("exp: 2 of 2 steps") < output.index("RESULT")
    for text in ("accuracy", "75.0%", "generate 75%", "output/checkpoint-1"):
        assert text in output


def test_the_cursor_comes_back_when_the_run_fails() -> None:
    output = run_on_a_terminal(
        "from roll_core.display import RunDisplay\n"
        "try:\n"
        "    with RunDisplay(2, 'exp') as display:\n"
        "        raise KeyError\n"
        "except KeyError:\n"
        "    pass\n"
    )
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


def test_log_handlers_get_their_streams_back(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("roll_core.display.test").addHandler(handler)
    before = handler.stream
    with RunDisplay(1, "exp", Console(file=io.StringIO(), force_terminal=True, width=100)):
        assert handler.stream is not before
    assert handler.stream is before
    logging.getLogger("roll_core.display.test").removeHandler(handler)


def test_a_reader_that_goes_away_does_not_end_the_run() -> None:
    program = (
        "import os, sys\n"
        "from roll_core.display import RunDisplay\n"
        "with RunDisplay(99, 'exp') as display:\n"
        "    for step in range(1, 100):\n"
        "        display.step(step, {})\n"
        "        if step == 1:\n"
        "            sys.stdin.read()\n"
        "print('finished', file=sys.stderr)\n"
        "os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        assert process.stdout.readline() == b"exp: 99 steps\n"
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b"finished\n"
        assert process.wait() == 0


def test_text_that_an_old_terminal_cannot_show_is_escaped() -> None:
    assert printable("\u00e9\u4e2d|", "ascii") == "\\xe9\\u4e2d|"
    assert printable("\u00e9\u4e2d|", None) == "\u00e9\u4e2d|"
    file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    with RunDisplay(1, "exp", Console(file=file)) as display:
        display.samples([Sample("\u00e9", "\u4e2d", 0.0)])
    file.seek(0)
    assert file.read().splitlines()[2:] == ["  prompt   | \u00e9", "  response | \\u4e2d"]


def test_an_old_terminal_gets_a_panel_of_plain_characters() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with RunDisplay(2, "exp", Console(file=file, force_terminal=True, width=100)) as display:
        display.phase("generate")
        display.step(1, {"time/step_generate": 1.0})
        display.notice("\u4e2d")
    file.seek(0)
    assert "generate 100%" in file.read()


def test_a_summary_without_validation_shows_no_accuracy(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    with RunDisplay(5, "exp", console) as display:
        display.step(3, {})
        display.summary({"metrics": tmp_path})
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()[2:]
    assert first.startswith("exp: 3 of 5 steps in ")
    assert second == f"  metrics: {tmp_path}"
