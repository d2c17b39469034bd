"""What the looks at a machine say of machines that are not this one."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from roll_core.doctor.limits import limit_findings, shared_memory_findings
from roll_core.doctor.machine import disk_findings, memory_findings, processor_findings
from roll_core.doctor.network import port_findings, proxy_findings
from roll_core.doctor.packages import import_finding
from roll_core.doctor.report import Report, collect
from roll_core.doctor.settings import setting_findings
from roll_core.findings import Finding, Level


def test_a_containers_share_of_the_cores_is_told(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    [finding] = processor_findings(tmp_path)
    assert finding.level == Level.WARNING
    assert "the container's share is 0.5 of them" in finding.found
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert [one.level for one in processor_findings(tmp_path)] == [Level.OK]


def test_a_containers_memory_is_what_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{2 * 2**30}\n")
    (tmp_path / "memory.current").write_text(f"{2**30}\n")
    [finding] = memory_findings(tmp_path)
    assert finding.level == Level.WARNING
    assert finding.found.startswith("1.0 GiB available of 2.0 GiB, the container's limit")


def test_a_disk_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    _, ray = disk_findings({"RAY_TMPDIR": str(tmp_path / "nowhere")})
    assert (ray.level, ray.subject) == (Level.ERROR, "disk of Ray's files")


def test_shared_memory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert [one.level for one in shared_memory_findings(tmp_path / "shm")] == [Level.ERROR]


def test_a_low_limit_of_open_files_comes_with_the_command_that_raises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 4096))
    files = next(iter(limit_findings()))
    assert files.level == Level.WARNING
    assert "ulimit -n 65536" in files.remedy


def test_a_port_that_is_taken_says_how_to_move() -> None:
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        port = listener.getsockname()[1]
        head, _dashboard, _client = port_findings({"MASTER_PORT": str(port)})
    assert head.level == Level.WARNING
    assert head.found.startswith(f"port {port} (MASTER_PORT) is taken by process ")
    assert "MASTER_PORT=<a free port>" in head.remedy


@pytest.mark.parametrize("text", ["6379x", "0", "70000", "-1"])
def test_a_variable_that_is_no_port_is_an_error(text: str) -> None:
    head = next(iter(port_findings({"MASTER_PORT": text})))
    assert (head.level, head.remedy) == (Level.ERROR, "MASTER_PORT=6379")


def test_a_proxy_must_leave_the_cluster_out() -> None:
    assert list(proxy_findings({})) == []
    [finding] = proxy_findings({"http_proxy": "http://p:80", "no_proxy": "localhost", "MASTER_ADDR": "10.0.0.1"})
    assert finding.remedy == "export no_proxy=localhost,127.0.0.1,10.0.0.1"
    [finding] = proxy_findings({"http_proxy": "http://p:80", "no_proxy": "localhost,127.0.0.1"})
    assert finding.level == Level.OK


def test_code_that_crashes_ends_in_a_finding() -> None:
    assert import_finding("x", "print('noise'); print('2 devices')", "").found == "2 devices"
    crashed = import_finding("x", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "mend it")
    assert (crashed.level, crashed.found, crashed.remedy) == (Level.ERROR, "fails: ended by signal 11", "mend it")


def test_secrets_of_the_environment_are_named_and_not_shown() -> None:
    found = {
        one.subject: one.found for one in setting_findings({"HF_TOKEN": "hf_abc", "ROLL_PLATFORM": "cpu", "X": "y"})
    }
    assert found == {"HF_TOKEN": "(hidden)", "ROLL_PLATFORM": "cpu"}


def test_a_look_that_breaks_is_a_finding_and_the_worst_level_counts() -> None:
    def broken() -> list[Finding]:
        raise OSError("no /proc")

    section = collect("memory", broken)
    assert section.findings[0].found == "could not be looked at: OSError: no /proc"
    fine = collect("disk", lambda: [Finding(Level.WARNING, "disk", "little")])
    assert Report((fine, section)).level == Level.ERROR
    assert Report((fine,)).level == Level.WARNING
    assert Report(()).level == Level.OK
