import subprocess
import sys
from pathlib import Path

import pytest

from roll_core.checkpoint.claim import claimed
from roll_core.errors import CheckpointError


def test_a_second_run_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    folder, told = tmp_path / "checkpoints", list[str]()
    with claimed({folder: "output_dir"}, told.append):
        with pytest.raises(CheckpointError) as caught, claimed({folder: "output_dir"}, told.append):
            pass
        assert str(caught.value) == (
            f"another run is writing to {folder}\n  try: wait until it has ended, or another output_dir or exp_name"
        )
    with claimed({folder: "output_dir"}, told.append):
        assert list(folder.iterdir()) == []
    assert told == []


def test_a_killed_run_leaves_no_claim(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal; from roll_core.checkpoint.claim import claimed\n"
        f"with claimed({{pathlib.Path({str(tmp_path)!r}): 'output_dir'}}, print): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == -9
    with claimed({tmp_path: "output_dir"}, print):
        pass


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CheckpointError, match=r"^cannot make the folder of output_dir"),
        claimed({tmp_path / "file" / "out": "output_dir"}, print),
    ):
        pass
