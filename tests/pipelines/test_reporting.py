from pathlib import Path

import pytest

from roll_core.errors import RollError
from roll_core.pipelines.reporting import write_lines


def test_samples_that_cannot_be_written_end_the_run_with_the_key_and_the_cause(tmp_path: Path) -> None:
    (tmp_path / "dump").write_text("a file where the folder should be")
    with pytest.raises(
        RollError, match=r"^rollout_dump_dir: .*step-1\.jsonl could not be written: (Not a dir|File ex)"
    ):
        write_lines(tmp_path / "dump" / "step-1.jsonl", [{"id": "1"}])
