"""Deliberate mistakes in copies of roll_demo are caught by the contracts, and FAULTS.md says with which message.

    python -m tests.testing.test_faults --write

writes FAULTS.md anew, after a message or the list of mistakes has changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

REPOSITORY = Path(__file__).parents[2]
TEMPLATE = REPOSITORY / "examples" / "plugin_template" / "roll_demo"
TABLE = REPOSITORY / "roll_core" / "testing" / "FAULTS.md"
PLANTED = REPOSITORY / "tests" / "testing" / "planted.py"
HEAD = """# Mistakes that the contracts catch

Each row is a mistake that a test makes in a copy of `roll_demo`, the plugin in `examples/plugin_template`, and what the
contract says of it. Unchanged, `roll_demo` passes the same tests. Numbers may differ a little by machine. The table is
written by `python -m tests.testing.test_faults --write`, and `tests/testing/test_faults.py` compares it with a new run.

| mistake | contract | what it says |
|---|---|---|
"""

sys.path.insert(0, str(TEMPLATE.parent))
from tests.testing.planted_list import FAULTS, Edit  # noqa: E402


def install(site: Path, package: str, edit: Edit | None) -> None:
    """A copy of roll_demo under another name, with one change, as pip would install it."""
    folder = site / package
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if edit is not None:
        text = (folder / edit.file).read_text(encoding="utf-8")
        assert text.count(edit.old) >= 1, f"{edit.file} of the template has no longer {edit.old!r}"
        (folder / edit.file).write_text(text.replace(edit.old, edit.new, 1), encoding="utf-8")
    for file in folder.glob("*.py"):
        file.write_text(file.read_text(encoding="utf-8").replace("roll_demo", package), encoding="utf-8")
    info = site / f"{package}-0.1.0.dist-info"
    info.mkdir()
    needs = "Requires-Dist: roll-core>=0.1\nProvides-Extra: device\n"
    name = package.replace("_", "-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n{needs}")
    (info / "entry_points.txt").write_text(f"[roll_core]\n{package} = {package}.plugin\n")


def run_planted(folder: Path) -> dict[str, list[str | None]]:
    """What became of every test of `planted.py` that is meant to catch something: message, or None where it passed."""
    site, results = folder / "site", folder / "results.xml"
    install(site, "roll_demo", None)
    for number, fault in enumerate(FAULTS):
        if fault.edit is not None:
            install(site, f"roll_faulty_{number:02}", fault.edit)
    wanted = {f"TestFault{number:02}::{fault.test}" for number, fault in enumerate(FAULTS)}
    wanted |= {f"{as_it_is(fault.contract)}::{fault.test}" for fault in FAULTS}
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(REPOSITORY)]), "DEMO_DEVICES": "2"}
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}"]
    command += ["-p", "no:cacheprovider", *(f"{PLANTED}::{name}" for name in sorted(wanted))]
    done = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, list[str | None]] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '').partition('[')[0]}"
        assert case.find("error") is None, f"{name} broke: {ElementTree.tostring(case, encoding='unicode')[:2000]}"
        failure = case.find("failure")
        skipped = case.find("skipped")
        if skipped is None:
            found.setdefault(name, []).append(None if failure is None else message_of(failure))
    return found


def as_it_is(contract: type) -> str:
    return f"Test{contract.__name__.removesuffix('Contract')}AsItIs"


def message_of(failure: ElementTree.Element) -> str:
    """What a contract said, as one line of a table."""
    text = (failure.get("message") or "").partition("\nassert ")[0]
    text = re.sub(r"^(AssertionError|Failed): ", "", text)
    text = re.sub(r"roll_faulty_\d\d", "roll_demo", text).replace("roll-faulty", "roll-demo")
    return re.sub(r"roll-demo-\d\d", "roll-demo", " ".join(text.split())).replace("|", "\\|")


def table_of(found: dict[str, list[str | None]]) -> str:
    """FAULTS.md of what was found."""
    rows, missed = [], []
    for number, fault in enumerate(FAULTS):
        messages = [message for message in found[f"TestFault{number:02}::{fault.test}"] if message is not None]
        missed += [] if messages else [f"'{fault.what}' by {fault.contract.__name__}.{fault.test}"]
        rows.append(f"| {fault.what} | `{fault.contract.__name__}` | {''.join(messages[:1])} |")
    assert not missed, "not caught: " + ", ".join(missed)
    return HEAD + "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str | None]]:
    return run_planted(tmp_path_factory.mktemp("planted"))


def test_there_are_at_least_thirty_and_each_has_its_own_name() -> None:
    assert len(FAULTS) >= 30
    assert len({(fault.what, fault.contract) for fault in FAULTS}) == len(FAULTS)


@pytest.mark.timeout(600)
def test_every_mistake_is_caught_and_the_docs_say_how(found: dict[str, list[str | None]]) -> None:
    plain = lambda text: re.sub(r"\d[\d.e-]*", "#", text)  # noqa: E731
    assert plain(TABLE.read_text(encoding="utf-8")) == plain(table_of(found)), (
        "FAULTS.md is not what the contracts say\n  try: python -m tests.testing.test_faults --write"
    )


def test_the_same_tests_pass_without_the_mistake(found: dict[str, list[str | None]]) -> None:
    controls = {name: messages for name, messages in found.items() if "AsItIs::" in name}
    assert controls.keys() == {f"{as_it_is(fault.contract)}::{fault.test}" for fault in FAULTS}
    assert {name: messages for name, messages in controls.items() if any(messages)} == {}


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.testing.test_faults --write")
    with tempfile.TemporaryDirectory() as folder:
        TABLE.write_text(table_of(run_planted(Path(folder))), encoding="utf-8")
    print(f"{len(FAULTS)} mistakes, all caught: {TABLE}")
