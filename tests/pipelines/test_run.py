"""What is made before a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from roll_core.config.schema import RLVRConfig
from roll_core.errors import ConfigError
from roll_core.pipelines.run import make_folders


def test_folders_of_logs_and_dumps_are_made_or_told_by_their_key(tmp_path: Path) -> None:
    config = RLVRConfig.model_validate({"response_length": 8, "rollout_dump_dir": str(tmp_path / "dumps")})
    make_folders(config, tmp_path / "logs" / "mine")
    assert (tmp_path / "logs" / "mine").is_dir() and (tmp_path / "dumps").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        make_folders(config, tmp_path / "file" / "logs")
    assert f"- logging_dir: cannot be made: Not a directory\n    given: '{tmp_path}/file/logs'" in str(caught.value)
