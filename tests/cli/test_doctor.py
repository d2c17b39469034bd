"""`roll doctor`: its exit codes, its JSON, its secrets, and what it explains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import PluginSite

DEMO = """
    PREAMBLE
    from roll_core.findings import Finding, KnownError, Level
    from roll_core.platforms import Platform
    import os

    @hookimpl
    def roll_platforms():
        probe = lambda: Availability(bool(os.environ.get("DEMO_DEVICES")), "DEMO_DEVICES says so")
        return [Backend("demo", "MODULE:DemoPlatform", "a pretend device", probe=probe)]

    class DemoPlatform(Platform):
        name = device_type = "demo"
        ray_resource = "DEMO"
        visible_devices_env = "DEMO_DEVICES"
        collective_backend = "gloo"

        def device_count(self):
            return 2

        def findings(self):
            text = f"driver 7 is too old, token {os.environ.get('HF_TOKEN')}"
            return [Finding(Level[os.environ.get("DEMO_LEVEL", "WARNING")], "demo driver", text, "install driver 8")]

        def known_errors(self):
            return [KnownError((r"E7{3}",), "the demo device is unplugged", "plug it in")]
"""


def roll(*arguments: str, site: PluginSite | None = None, stdin: str = "", **environ: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command with no plugins but those of the site."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("ROLL_", "RAY_", "HF_"))}
    clean |= {"ROLL_PLUGINS": "roll_demo,roll_broken" if site else "", "ROLL_PLATFORM": "cpu"}
    path = {"PYTHONPATH": str(site.folder)} if site else {}
    done = subprocess.run(
        [sys.executable, "-m", "roll_core", "doctor", *arguments],
        env=clean | path | environ, capture_output=True, text=True, input=stdin,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def findings(output: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (section["title"], finding["subject"]): finding
        for section in json.loads(output)["sections"]
        for finding in section["findings"]
    }


def test_the_report_has_every_section_and_exits_with_its_worst_level() -> None:
    code, output, _ = roll("--json")
    data = json.loads(output)
    assert [section["title"] for section in data["sections"]] == [
        "processors", "memory", "disk", "shared memory", "limits", "ports", "host name", "Python", "packages", "torch",
        "plugins", "graders", "choice of platform", "platform cpu", "environment",
    ]  # fmt: skip
    levels = [finding["level"] for section in data["sections"] for finding in section["findings"]]
    assert code == data["exit_code"] == max(("ok", "warning", "error").index(level) for level in levels)
    assert all(finding["remedy"] for finding in findings(output).values() if finding["level"] != "ok")


def test_a_platform_without_its_device_is_looked_at_when_asked_for(site: PluginSite) -> None:
    site.install(DEMO)
    code, output, errors = roll("--platform", "demo", "--json", site=site, DEMO_LEVEL="ERROR")
    assert code == 2, errors
    found = findings(output)
    assert found["platform demo", "platform demo"]["level"] == "warning"
    assert found["platform demo", "visible devices"]["found"] == "all; DEMO_DEVICES unset"
    assert found["platform demo", "demo driver"]["remedy"] == "install driver 8"
    assert ("platform demo", "devices of demo") not in found


def test_secrets_are_in_no_output(site: PluginSite) -> None:
    site.install(DEMO)
    secrets = {"HF_TOKEN": "hf_verysecret", "RAY_ADDRESS": "http://me:verysecret@host:6379"}
    for arguments in (["--platform", "demo"], ["--platform", "demo", "--json"]):
        _, output, errors = roll(*arguments, site=site, **secrets)
        assert "verysecret" not in output + errors
        assert "(hidden)" in output
        assert "HF_TOKEN" in output


def test_a_platform_that_nobody_brings_exits_2_with_the_resolvers_message() -> None:
    code, _, errors = roll("--platform", "npu")
    assert code == 2
    assert errors.startswith("no platform named 'npu'\n  installed: cpu (roll_core)\n")


@pytest.mark.parametrize("text", ["OSError: [Errno 24] Too many open files", "no, Errno 28 on the disk"])
def test_a_known_error_exits_0_with_cause_and_remedy(text: str) -> None:
    code, output, _ = roll("--explain", text)
    assert code == 0
    assert output.startswith("cause: ")
    assert "\ndo:    " in output


def test_an_error_comes_from_stdin_too_and_as_json(site: PluginSite) -> None:
    site.install(DEMO)
    log = "step 1\nTraceback (most recent call last):\n  ...\nRuntimeError: E777\n[Errno 24] Too many open files\n"
    code, output, _ = roll("--explain", "-", "--json", site=site, stdin=log)
    assert code == 0
    explanations = json.loads(output)["explanations"]
    assert explanations[0] == {
        "source": "platform demo", "cause": "the demo device is unplugged", "remedy": "plug it in",
    }  # fmt: skip
    assert [one["source"] for one in explanations] == ["platform demo", "roll_core"]


def test_what_nobody_knows_exits_1_and_says_so() -> None:
    code, output, _ = roll("--explain", "the moon is in the wrong house")
    assert code == 1
    assert output.startswith("nothing is known about this error")
    code, output, _ = roll("--explain", "the moon is in the wrong house", "--json")
    assert (code, json.loads(output)) == (1, {"explanations": [], "unasked": []})


def test_no_text_exits_2() -> None:
    code, _, errors = roll("--explain", "-")
    assert code == 2
    assert "no error text to explain" in errors


def test_a_platform_that_cannot_be_asked_leaves_the_others(site: PluginSite) -> None:
    site.install(
        DEMO.replace('return [KnownError((r"E7{3}",)', 'raise OSError("no library"); return [KnownError(("",)')
    )
    code, output, _ = roll("--explain", "Too many open files", site=site)
    assert code == 0
    assert "platform demo (roll_demo) could not be asked: OSError: no library" in output
