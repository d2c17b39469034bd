"""`roll plugins` and what every call of `roll` has in common, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer

from roll_core import __version__
from roll_core.cli import main
from roll_core.errors import ConfigError, PluginError, Problem

if TYPE_CHECKING:
    from tests.conftest import PluginSite

GOOD = '''
    PREAMBLE
    @hookimpl
    def roll_platforms():
        probe = lambda: Availability(False, "no device file /dev/demo")
        return [Backend("demo", "MODULE:DemoPlatform", "a pretend device", probe=probe)]

    class DemoPlatform:
        """Not imported by the command."""
'''


def roll(*arguments: str, site: PluginSite | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no plugins but those of the site."""
    path = {"PYTHONPATH": str(site.folder)} if site else {}
    allowed = {"ROLL_PLUGINS": "roll_demo,roll_broken" if site else ""}
    command = [sys.executable, "-m", "roll_core", *arguments]
    return subprocess.run(command, env=os.environ | path | allowed | environ, capture_output=True, text=True)


def test_the_version() -> None:
    done = roll("--version")
    assert (done.returncode, done.stdout) == (0, f"roll-core {__version__}\n")


def test_core_alone_is_listed() -> None:
    done = roll("plugins", ROLL_PLUGINS="")
    assert done.returncode == 0
    heading, core = done.stdout.splitlines()[:2]
    assert heading.split() == ["PLUGIN", "PACKAGE", "VERSION", "STATE", "BRINGS"]
    assert core.split()[:4] == ["roll_core", "roll-core", __version__, "loaded"]
    assert "platform cpu; training strategy fsdp2_train, fsdp2_infer; inference strategy hf_infer" in core


def test_installed_plugins_are_found_and_a_broken_one_fails_the_command(site: PluginSite) -> None:
    site.install(GOOD)
    good = roll("plugins", site=site, ROLL_PLUGINS="roll_demo")
    assert good.returncode == 0
    assert [line.split()[:4] for line in good.stdout.splitlines() if line.startswith("roll_demo")] == [
        ["roll_demo", "roll-demo", "1.0", "loaded"]
    ]
    site.install("import a_module_that_is_not_there", name="roll_broken")
    bad = roll("plugins", site=site)
    assert bad.returncode == 1
    lines = [line.split() for line in bad.stdout.splitlines()]
    assert ["roll_demo", "roll-demo", "1.0", "loaded", "platform", "demo"] in lines
    broken = lines.index(["roll_broken", "roll-broken", "1.0", "failed"])
    assert bad.stdout.splitlines()[broken + 1] == "  ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    assert bad.stderr == ""


def test_verbose_shows_targets_probes_and_tracebacks(site: PluginSite) -> None:
    module = site.install(GOOD)
    site.install("raise OSError('libhal.so: cannot open')", name="roll_broken")
    text = roll("plugins", "-v", site=site).stdout
    assert f"  platform demo: a pretend device\n    target {module}:DemoPlatform\n" in text
    assert "    not usable here: no device file /dev/demo\n" in text
    assert "    Traceback (most recent call last):\n" in text


def test_json_holds_the_same(site: PluginSite) -> None:
    module = site.install(GOOD)
    site.install("raise OSError('libhal.so: cannot open')", name="roll_broken")
    done = roll("plugins", "--json", site=site)
    assert done.returncode == 1
    records = {record["name"]: record for record in json.loads(done.stdout)}
    assert records["roll_core"]["state"] == "loaded"
    assert records["roll_broken"] == {
        "name": "roll_broken",
        "dist": "roll-broken",
        "version": "1.0",
        "state": "failed",
        "problem": "OSError: libhal.so: cannot open",
        "missing": [],
        "backends": [],
    }
    assert records["roll_demo"]["backends"] == [
        {
            "kind": "platform",
            "name": "demo",
            "target": f"{module}:DemoPlatform",
            "summary": "a pretend device",
            "platforms": [],
            "priority": 0,
        }
    ]
    (demo,) = [
        one for one in json.loads(roll("plugins", "--json", "-v", site=site).stdout) if one["name"] == "roll_demo"
    ]
    assert (demo["backends"][0]["available"], demo["backends"][0]["reason"]) == (False, "no device file /dev/demo")


@pytest.mark.parametrize(
    "arguments", [["plugins"], ["plugins", "-v"], ["plugins", "--json"], ["--help"], ["--version"]]
)
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    # pydantic is not among them: typer imports it for its own --help option.
    code = (
        "import sys\n"
        "from roll_core.cli import main\n"
        f"sys.argv = ['roll', *{arguments!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'ray', 'hydra', 'omegaconf', 'numpy', 'rich', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"ROLL_PLUGINS": ""}, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def run_failing_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail() -> None:
        raise error

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fail)
    monkeypatch.setattr("roll_core.cli.build_app", lambda: app)
    monkeypatch.setattr(sys, "argv", ["roll"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_expected_failures_are_a_message_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing_with(PluginError("no platform named 'x'"), monkeypatch) == 1
    assert capsys.readouterr().err == "no platform named 'x'\n"


def test_a_config_with_problems_exits_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_failing_with(ConfigError([Problem("a.b", "must be positive", -1)], "x.yaml"), monkeypatch) == 2
    assert capsys.readouterr().err.startswith("1 problem in x.yaml\n- a.b: must be positive")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(lambda: 1 / 0)
    monkeypatch.setattr("roll_core.cli.build_app", lambda: app)
    monkeypatch.setattr(sys, "argv", ["roll"])
    with pytest.raises(ZeroDivisionError):
        main()


def test_an_unknown_command_is_a_usage_error() -> None:
    done = roll("plugin")
    assert done.returncode == 2
    assert "No such command 'plugin'" in done.stderr
