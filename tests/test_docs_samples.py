"""What the READMEs show works: configs pass their checks, commands are understood, samples do what is said of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from roll_core import __version__
from roll_core.cli import COMMANDS, build_app
from roll_core.config.compose import read_config
from roll_core.config.keys import first_unknown
from roll_core.config.overrides import parse_overrides
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.runnable import check_run
from roll_core.data.jsonl import load_rows
from roll_core.plugins import load_plugins
from tests.conftest import PluginSite
from tests.readme import FIRST, PLUGINS, REPOSITORY, Readme, code_words, names_in, readmes

ALL = readmes()
QUICKSTART = REPOSITORY / "examples" / "quickstart" / "rlvr.yaml"
VARIABLE = re.compile(r"([A-Z_]+)=\S*")

each_readme = pytest.mark.parametrize("readme", ALL, ids=str)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like a checkout's after the quickstart, as far as a check looks at it; without plugins."""
    monkeypatch.syspath_prepend(str(QUICKSTART.parent))
    import addition

    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    output = tmp_path / "output" / "quickstart"
    (output / "data").mkdir(parents=True)
    for model in ("quickstart/model", "quickstart/checkpoints/checkpoint-40", "frozen_lake/model"):
        (output.parent / model).mkdir(parents=True)
        (output.parent / model / "config.json").write_text("{}")
    rows = [json.dumps(addition.row(number, pair)) for number, pair in enumerate(addition.pairs()[1])]
    for name in ("train.jsonl", "heldout.jsonl"):
        (output / "data" / name).write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLL_PLATFORM", "cpu")
    monkeypatch.setenv("ROLL_PLUGINS", "")
    return tmp_path


def roll(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roll_core", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environ)


def problems_of(path: Path, *overrides: str) -> list[str]:
    """Everything that keeps a config from running, as `roll run` would say."""
    reading = read_config(path, overrides)
    assert reading.config is not None
    found = [*reading.problems, *reading.rule_problems(), *check_run(reading.config, load_plugins()).problems]
    return [str(problem) for problem in found]


CONFIGS = [
    pytest.param(block.text, id=f"{readme}-{number}")
    for readme in ALL
    for number, block in enumerate(readme.of("yaml"))
]


@pytest.mark.parametrize("text", CONFIGS)
def test_configs_pass_the_checks_of_a_run(text: str, workplace: Path) -> None:
    text = text.replace("/models/my-model", "output/quickstart/model").replace(" /data", " output/quickstart/data")
    given = yaml.safe_load(text)
    if "pretrain" not in given:  # A few keys, which have their place in a config that is whole.
        whole = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
        given = whole | given | {"rewards": whole["rewards"] | given.get("rewards", {})}
    config = workplace / "config.yaml"
    config.write_text(yaml.safe_dump(given))
    assert problems_of(config) == []


def test_what_is_said_to_be_missing_is_refused(workplace: Path) -> None:
    asked = [span for row in FIRST.table("Not there yet") for span in names_in(row[0])]
    assert len(asked) > 0
    for one in asked:
        path, _, _ = one.partition("=")
        found = problems_of(QUICKSTART, one)
        assert found and found[0].startswith(path.partition("{")[0]) and "unknown key" not in found[0], (one, found)


@each_readme
def test_rows_of_data_can_be_read(readme: Readme, tmp_path: Path) -> None:
    for block in readme.of("json"):
        if '"response"' not in block.text:
            (tmp_path / "rows.jsonl").write_text(block.text)
            assert load_rows("rows.jsonl", str(tmp_path), {"math_rule": "math_rule"})


@each_readme
def test_commands_can_be_given(readme: Readme, workplace: Path) -> None:
    for command in readme.commands():
        variables = [match[1] for word in command if (match := VARIABLE.fullmatch(word))]
        assert set(variables) <= code_words(), command
        program, *arguments = [word for word in command if not VARIABLE.fullmatch(word)]
        if program == "roll":
            check_roll(arguments)
        elif program == "make":
            makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
            assert set(arguments) <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)), command
        elif program == "python":
            check_script(arguments)
        elif program == "tensorboard":
            log_dir = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))["tracker_kwargs"]["log_dir"]
            assert Path(arguments[1]) == Path(log_dir)
        else:
            assert program in ("cp", "mv", "sed", "pytest", "pip", "export"), command


def check_roll(arguments: list[str]) -> None:
    """A command is understood. What it would run has no problem; of the published config the plan can be shown."""
    name, *rest = arguments
    assert name in (*COMMANDS, "--version"), arguments
    if name not in ("check", "run") or not rest:
        return
    done = CliRunner().invoke(build_app(), ["check", *rest])
    if "ascend_examples" in rest[0]:
        assert done.exit_code == 2 and "1 mini-batch of 256" in done.output, done.output
    else:
        assert done.exit_code == 0, (arguments, done.output)


def check_script(arguments: list[str]) -> None:
    """A script is there and has the options; what it is given to change are keys."""
    script, *rest = arguments
    text = (REPOSITORY / script).read_text(encoding="utf-8")
    if "roll_core.pipelines.launcher" in text:
        text += (REPOSITORY / "roll_core" / "pipelines" / "launcher.py").read_text(encoding="utf-8")
    if "import example_scripts" in text:
        text += (REPOSITORY / "examples" / "example_scripts.py").read_text(encoding="utf-8")
    assert [option for option in rest if option.startswith("--") and f'"{option}"' not in text] == []
    overrides, problems = parse_overrides([word for word in rest if "=" in word])
    assert problems == []
    assert [one.text for one in overrides if first_unknown(RLVRConfig, one.path) is not None] == []


def test_the_version_and_the_plugins_are_shown() -> None:
    assert roll("--version").stdout == f"roll-core {__version__}\n"
    records = json.loads(roll("plugins", "--json", ROLL_PLUGINS="").stdout)
    assert [record["name"] for record in records if record["state"] == "loaded"] == ["roll_core"]


SCORED = [
    pytest.param(readme, block, id=f"{readme}-{number}")
    for readme in ALL
    for number, block in enumerate(readme.blocks)
    if block.text.startswith("roll score ")
]


@pytest.mark.parametrize(("readme", "block"), SCORED)
def test_scores_are_those_that_are_shown(readme: Readme, block: object, workplace: Path) -> None:
    number = readme.blocks.index(block)  # type: ignore[arg-type]
    command = readme.blocks[number].text.split()
    if not Path(command[-1]).exists():
        Path(command[-1]).write_text(readme.blocks[number - 1].text)
    assert roll(*command[1:]).stdout == readme.blocks[number + 1].text


BREAKAGES = {
    "no number": "from roll_core import hookimpl",
    "another number": "ROLL_PLUGIN_API = 2",
    "misspelt": "ROLL_PLUGIN_API = 1\ndef roll_platform(): return []",
    "no marker": "ROLL_PLUGIN_API = 1\ndef roll_platforms(): return []",
    "no list": "PREAMBLE@hookimpl\ndef roll_platforms(): pass",
    "heavy": "import torch_pretend",
}


@pytest.mark.parametrize("source", BREAKAGES.values(), ids=BREAKAGES)
def test_what_a_broken_plugin_says_is_explained(source: str, site: PluginSite) -> None:
    module = site.install(source)
    [problem] = [record.problem for record in site.load().records if record.name == "roll_demo"]
    explained = [name for row in PLUGINS.table("## If it does not load") for name in names_in(row[0])]
    assert problem.removeprefix(f"{module} ") in explained
