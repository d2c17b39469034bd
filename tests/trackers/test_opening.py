import importlib.util
import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from roll_core.errors import ConfigError, RollError
from roll_core.objects import ObjectError
from roll_core.trackers import RunInfo, Tracker, open_trackers, tracker_problems


def run_info(folder: Path, warnings: list[str] | None = None, **config: object) -> RunInfo:
    return RunInfo("exp", folder, folder, config=config, warn=pytest.fail if warnings is None else warnings.append)


def write_tracker(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(f"import json\nfrom roll_core.trackers import Tracker\n\nclass Mine(Tracker):\n{body}\n")
    return f"{path}:Mine"


RECORDING = """
    def __init__(self, run, *, path, api_key=""):
        self.file = open(path, "w")
        self.file.write(json.dumps(run.config) + "\\n")
    def log(self, step, metrics):
        self.file.write(json.dumps([step, metrics]) + "\\n")
    def close(self):
        self.file.close()
"""


def test_a_misspelt_name_is_corrected_before_the_run() -> None:
    problems = tracker_problems("tensorbord", {})
    assert [str(problem) for problem in problems] == [
        "track_with: no tracker named 'tensorbord'\n"
        "    try:   built in: jsonl, stdout, swanlab, tensorboard, trackio, wandb did you mean 'tensorboard'? "
        "or name your own: package.module:name, ./file.py:name"
    ]


@pytest.mark.parametrize("name", ["wandb", "swanlab", "trackio"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed here")
    assert [str(problem) for problem in tracker_problems(name, {})] == [
        f"track_with: '{name}' needs the package {name}, which is not installed\n"
        f"    try:   pip install {name}, or track_with: tensorboard"
    ]


def test_a_missing_package_of_a_users_tracker_is_named(tmp_path: Path) -> None:
    spec = write_tracker(tmp_path, "    needs = 'no_such_package'\n    def log(self, step, metrics): pass")
    with pytest.raises(ConfigError, match="needs the package no_such_package, which is not installed"):
        open_trackers(spec, {}, run_info(tmp_path))


def test_nothing_is_written_when_something_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_trackers("tensorboard", {"logdir": "x"}, run_info(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_an_unknown_key_is_refused_with_the_keys_there_are() -> None:
    (problem,) = tracker_problems(["tensorboard", "stdout"], {"logdir": "x"})
    assert str(problem) == (
        "tracker_kwargs.logdir: no tracker takes this key\n"
        "    try:   did you mean 'log_dir'? tensorboard takes log_dir; stdout takes no keys"
    )


def test_several_trackers_share_the_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trackers = open_trackers(["tensorboard", "stdout", "jsonl"], {"log_dir": str(tmp_path / "tb")}, run_info(tmp_path))
    trackers.log(3, {"reward/mean@mean": 0.5, "tag": "math"})
    trackers.close()
    assert capsys.readouterr().out == "[exp] step 3 reward/mean=0.5 tag=math\n"
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 3, "reward/mean": 0.5, "tag": "math"}\n'
    assert len(list((tmp_path / "tb").iterdir())) == 1


def test_keys_can_be_given_to_one_tracker(tmp_path: Path) -> None:
    keys = {"tensorboard": {"log_dir": str(tmp_path / "tb")}}
    assert tracker_problems(["tensorboard", "stdout"], keys) == []
    (problem,) = tracker_problems(["tensorboard", "stdout"], {"tensorboard": {"log": 1}})
    assert problem.path == "tracker_kwargs.tensorboard.log"
    open_trackers(["tensorboard", "stdout"], keys, run_info(tmp_path)).close()
    assert (tmp_path / "tb").is_dir()


def test_without_a_tracker_metrics_jsonl_is_still_written(tmp_path: Path) -> None:
    trackers = open_trackers(None, {}, run_info(tmp_path))
    trackers.log(0, {"x": 1})
    trackers.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_tracker_from_a_file_gets_its_keys_and_no_secret(tmp_path: Path) -> None:
    spec = write_tracker(tmp_path, RECORDING)
    run = run_info(
        tmp_path, model="m", judge_api_key="sk-1", system_envs={"HF_TOKEN": "hf-2", "A": "b"}, eos_token="</s>"
    )
    trackers = open_trackers(spec, {"path": str(tmp_path / "seen"), "api_key": "sk-3"}, run)
    trackers.log(1, {"x": 2.5})
    trackers.close()
    config, row = map(json.loads, (tmp_path / "seen").read_text().splitlines())
    assert config == {
        "model": "m",
        "judge_api_key": "(hidden)",
        "system_envs": {"HF_TOKEN": "(hidden)", "A": "b"},
        "eos_token": "</s>",
    }
    assert row == [1, {"x": 2.5}]


def test_what_is_no_tracker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'json:dumps' is no roll_core\.trackers\.Tracker"):
        open_trackers("json:dumps", {}, run_info(tmp_path))
    with pytest.raises(ObjectError, match="no 'Nothing' in"):
        open_trackers("json:Nothing", {}, run_info(tmp_path))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RollError, match=f"tracker tensorboard cannot be opened: Not a directory: {tmp_path}/file/tb"):
        open_trackers("tensorboard", {"log_dir": f"{tmp_path}/file/tb"}, run_info(tmp_path))


@pytest.mark.parametrize("given", ["sk-1234", SecretStr("sk-1234")])
def test_a_secret_reaches_the_library_but_not_its_error_message(tmp_path: Path, given: object) -> None:
    body = (
        "    def __init__(self, run, *, api_key): self.key = api_key\n"
        "    def log(self, step, metrics):\n"
        "        assert self.key == 'sk-1234'\n"
        "        raise ConnectionError(f'refused for key {self.key}')"
    )
    warnings: list[str] = []
    keys = {"api_key": given}
    trackers = open_trackers(write_tracker(tmp_path, body), keys, run_info(tmp_path, warnings))
    trackers.log(4, {"x": 1})
    assert warnings == [
        f"tracker {tmp_path}/mine.py:Mine could not record step 4; training goes on: "
        "ConnectionError: refused for key (hidden)"
    ]


def test_every_builtin_tracker_can_be_subclassed_alike() -> None:
    for name in ("jsonl", "stdout", "swanlab", "tensorboard", "trackio", "wandb"):
        from roll_core.objects import resolve_object
        from roll_core.trackers import BUILTIN_TRACKERS

        assert issubclass(resolve_object(name, BUILTIN_TRACKERS, "tracker"), Tracker)
