"""The steps of plugins/README.md, followed one by one in a folder that has nothing but the examples."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.readme import PLUGINS, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "examples" / "quickstart"))

SMALL = (
    "rollout_batch_size=4 num_return_sequences_in_group=4 response_length=8 "
    "actor_train.training_args.per_device_train_batch_size=4 "
    "max_steps=2 save_steps=2 eval_steps=2 validation.data_args.file_name=[few.jsonl]"
)
"""What makes a run of the quickstart's config take seconds."""


def steps() -> list[str]:
    """The commands of the tutorial's blocks, in order; the run made small."""
    start = PLUGINS.text.index("## A plugin of your own")
    section = PLUGINS.text[start : PLUGINS.text.index("\n## ", start + 1)]
    blocks = re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [f"{line} {SMALL}" if line.startswith("roll run") else line for line in lines]


def make_environment(folder: Path) -> Path:
    """An environment that sees what this one has installed, so that the tutorial needs no network."""
    venv.create(folder, with_pip=False)
    [site] = (folder / "lib").glob("python*/site-packages")
    (site / "tests.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for name in ("pip", "pytest", "roll"):
        module = "roll_core" if name == "roll" else name
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {folder}/bin/python -m {module} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    return folder / "bin"


def assets(folder: Path) -> None:
    """The quickstart's model and data, the model hardly trained."""
    import prepare

    prepare.prepare(folder, seed=0, steps=5)
    lines = (folder / "data" / "heldout.jsonl").read_text().splitlines(keepends=True)
    (folder / "data" / "few.jsonl").write_text("".join(lines[:8]))


@pytest.mark.timeout(600)
def test_its_steps_lead_from_a_copy_to_a_run_on_the_new_platform(tmp_path: Path) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    shutil.copytree(REPOSITORY / "examples", place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    assets(place / "output" / "quickstart")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ROLL_", "PYTEST_"))}
    environ |= {"PATH": f"{make_environment(tmp_path / 'environment')}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    # No network: what the package needs is there, and so is what builds it.
    environ |= {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "OMP_NUM_THREADS": "1"}
    script = "set -e\n" + "".join(f"echo '>>> step {number}'\n{step}\n" for number, step in enumerate(steps()))
    done = subprocess.run(["bash", "-c", script], cwd=place, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    for shown in [block.text for block in PLUGINS.of("") if "pretend" in block.text]:
        assert plain(shown) in plain(done.stdout), f"not printed: {shown}\n{done.stdout[-4000:]}"
    [platform] = re.findall(r"# (platform +pretend .*)", PLUGINS.text)
    assert platform in done.stdout.splitlines()
    assert (place / "output" / "quickstart" / "checkpoints" / "checkpoint-2" / "manifest.json").is_file()


def plain(text: str) -> str:
    """Without widths, counts of tests, and what else the plugin offers in the line of a summary."""
    return " ".join(re.sub(r"\d+ (passed|skipped)", r"# \1", text).split())
