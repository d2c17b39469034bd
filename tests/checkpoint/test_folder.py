import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roll_core.checkpoint import CheckpointFolder
from roll_core.errors import CheckpointError


def save(folder: CheckpointFolder, step: int, text: str = "weights") -> Path:
    partial = folder.begin(step)
    (partial / "model.safetensors").write_bytes(text.encode() * 100)
    (partial / "pipeline").mkdir()
    (partial / "pipeline" / "state.json").write_text(f'{{"step": {step}, "padding": "{"x" * 200}"}}')
    return folder.finish(step, {"roles": {"actor_train": {"world_size": 2}}})


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def torn_newest(tmp_path: Path) -> Path:
    """The directory of case ckpt-01: 90 and 100 whole, 200 cut in the middle of its state, and a stranger."""
    for step in (90, 100, 200):
        save(CheckpointFolder(tmp_path), step)
    cut(tmp_path / "checkpoint-200" / "pipeline" / "state.json")
    (tmp_path / "checkpoint-abc").mkdir()
    return tmp_path


def test_auto_resume_skips_a_torn_newest_checkpoint_and_says_so(torn_newest: Path) -> None:
    notices: list[str] = []
    resume = CheckpointFolder(torn_newest, notify=notices.append).find(True)
    assert resume is not None
    assert (resume.step, resume.path.name) == (100, "checkpoint-100")
    assert len(notices) == 1
    assert notices[0].startswith("checkpoint-200 is incomplete: pipeline/state.json has ")


def test_asking_for_a_torn_checkpoint_is_an_error_naming_the_damaged_file(torn_newest: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        CheckpointFolder(torn_newest).find(str(torn_newest / "checkpoint-200"))
    size = (torn_newest / "checkpoint-200" / "pipeline" / "state.json").stat().st_size
    assert str(caught.value) == (
        f"{torn_newest}/checkpoint-200 is incomplete: pipeline/state.json has {size} bytes, {2 * size} were written\n"
        f"  in {torn_newest}: checkpoint-90, checkpoint-100\n"
        f"  try: resume_from_checkpoint={torn_newest}/checkpoint-100"
    )


def test_asking_for_a_step_that_does_not_exist_lists_those_that_do(torn_newest: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        CheckpointFolder(torn_newest).find(str(torn_newest / "checkpoint-150"))
    lines = str(caught.value).splitlines()
    assert lines[0] == f"no checkpoint at {torn_newest}/checkpoint-150"
    assert lines[1] == f"  in {torn_newest}: checkpoint-90, checkpoint-100"
    assert lines[2].startswith("  incomplete: checkpoint-200 (pipeline/state.json has ")
    assert lines[3] == f"  try: resume_from_checkpoint={torn_newest}/checkpoint-100"


def test_a_missing_checkpoint_elsewhere_lists_those_of_the_run(torn_newest: Path) -> None:
    with pytest.raises(CheckpointError, match=f"in {torn_newest}: checkpoint-90, checkpoint-100"):
        CheckpointFolder(torn_newest).find(str(torn_newest / "typo" / "checkpoint-100"))


def test_only_torn_checkpoints_never_start_from_step_0(tmp_path: Path) -> None:
    flip_a_bit(save(CheckpointFolder(tmp_path), 5) / "model.safetensors")
    (tmp_path / "checkpoint-7").mkdir()
    with pytest.raises(CheckpointError) as caught:
        CheckpointFolder(tmp_path).find(True)
    assert str(caught.value) == (
        f"no checkpoint in {tmp_path} is whole, so there is nothing to resume from\n"
        "  checkpoint-7 is incomplete: manifest.json is missing\n"
        "  checkpoint-5 is incomplete: model.safetensors does not have the content that was written\n"
        "  try: resume_from_checkpoint=PATH of a whole one, or =false to start from step 0"
    )


@pytest.mark.parametrize("exists", [True, False])
def test_no_checkpoint_yet_starts_from_scratch_with_a_notice(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path if exists else tmp_path / "new"
    notices: list[str] = []
    assert CheckpointFolder(folder, notify=notices.append).find(True) is None
    assert notices == [f"starting from scratch: no checkpoint in {folder}"]


def test_without_resume_nothing_is_looked_for_and_nothing_is_said(torn_newest: Path) -> None:
    notices: list[str] = []
    assert CheckpointFolder(torn_newest, notify=notices.append).find(False) is None
    assert notices == []


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in (9, 100, 20):
        save(folder, step)
    resume = folder.find(True)
    assert resume is not None and resume.step == 100
    assert folder.steps() == [9, 20, 100]


def test_the_folder_of_checkpoints_is_not_a_checkpoint(torn_newest: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds checkpoints, but is not one\n  in .*: checkpoint-90"):
        CheckpointFolder(torn_newest).find(str(torn_newest))


def test_a_whole_checkpoint_is_found_by_path_wherever_it_was_copied(tmp_path: Path) -> None:
    shutil.copytree(save(CheckpointFolder(tmp_path / "run"), 4), tmp_path / "best")
    resume = CheckpointFolder(tmp_path / "other").find(str(tmp_path / "best"))
    assert resume is not None
    assert (resume.step, resume.manifest.extra) == (4, {"roles": {"actor_train": {"world_size": 2}}})


@pytest.mark.parametrize("name", ["model.safetensors", "pipeline/state.json", "manifest.json"])
@pytest.mark.parametrize("harm", [flip_a_bit, cut, Path.unlink])
def test_any_damage_to_any_file_is_found_and_named(tmp_path: Path, name: str, harm: object) -> None:
    path = save(CheckpointFolder(tmp_path), 3)
    assert callable(harm)
    harm(path / name)
    with pytest.raises(CheckpointError, match=rf"checkpoint-3 is incomplete: {name} "):
        CheckpointFolder(tmp_path).find(str(path))


def test_every_flipped_bit_of_a_manifest_is_found(tmp_path: Path) -> None:
    path = save(CheckpointFolder(tmp_path), 3)
    content = (path / "manifest.json").read_bytes()
    for position in range(len(content)):
        (path / "manifest.json").write_bytes(
            content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        )
        if (path / "manifest.json").read_bytes().split() != content.split():  # A changed blank between values is none.
            assert CheckpointFolder(tmp_path).steps() == [], content[position - 20 : position + 20]


def test_a_file_added_later_does_no_harm(tmp_path: Path) -> None:
    path = save(CheckpointFolder(tmp_path), 3)
    (path / "notes.txt").write_text("the good one")
    resume = CheckpointFolder(tmp_path).find(True)
    assert resume is not None and "notes.txt" not in resume.manifest.files


def test_saving_a_step_again_replaces_it_whole(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    (folder.begin(5) / "only_in_the_first").write_text("x")
    folder.finish(5)
    save(folder, 5, "second")
    assert names(tmp_path) == ["checkpoint-5"]
    assert names(tmp_path / "checkpoint-5") == ["manifest.json", "model.safetensors", "pipeline"]
    assert folder.steps() == [5]


def test_an_older_checkpoint_survives_a_kill_in_the_middle_of_its_replacement(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, 5, "first").rename(tmp_path / ".checkpoint-5.replaced")
    folder.begin(5)
    folder.clean()
    assert names(tmp_path) == ["checkpoint-5"]
    resume = folder.find(True)
    assert resume is not None and (resume.path / "model.safetensors").read_bytes().startswith(b"first")


def test_cleaning_leaves_only_finished_checkpoints_and_strangers(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, 5)
    (folder.begin(6) / "model.safetensors").write_text("half")
    shutil.copytree(tmp_path / "checkpoint-5", tmp_path / ".checkpoint-5.replaced")
    shutil.copytree(tmp_path / "checkpoint-5", tmp_path / ".checkpoint-4.removed")
    (tmp_path / ".checkpoint-mine").mkdir()
    folder.clean()
    assert names(tmp_path) == [".checkpoint-mine", "checkpoint-5"]


def test_finishing_without_writing_is_an_error(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.begin(1)
    with pytest.raises(CheckpointError, match="checkpoint-1 was finished with nothing written to "):
        folder.finish(1)


def test_discarding_removes_what_was_begun(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    (folder.begin(1) / "model.safetensors").write_text("half")
    folder.discard(1)
    assert names(tmp_path) == []


@pytest.mark.parametrize(("keep", "left"), [(0, [1, 2, 3, 4]), (1, [4]), (2, [3, 4]), (9, [1, 2, 3, 4])])
def test_only_the_newest_are_kept(tmp_path: Path, keep: int, left: list[int]) -> None:
    folder = CheckpointFolder(tmp_path, max_ckpt_to_keep=keep)
    for step in (1, 2, 3, 4):
        save(folder, step)
    assert folder.steps() == left
    assert len(names(tmp_path)) == len(left)


def test_the_checkpoint_resumed_from_is_never_pruned(tmp_path: Path) -> None:
    for step in (1, 2):
        save(CheckpointFolder(tmp_path), step)
    folder = CheckpointFolder(tmp_path, max_ckpt_to_keep=1)
    folder.find(str(tmp_path / "checkpoint-1"))
    for step in (3, 4):
        save(folder, step)
    assert folder.steps() == [1, 4]


def test_going_on_from_an_older_step_does_not_prune_what_was_just_written(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(CheckpointFolder(tmp_path), step)
    folder = CheckpointFolder(tmp_path, max_ckpt_to_keep=2)
    folder.find(str(tmp_path / "checkpoint-10"))
    save(folder, 15)
    assert folder.steps() == [10, 15, 30]


def test_a_clock_that_was_set_back_makes_no_checkpoint_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path, max_ckpt_to_keep=2)
    save(folder, 10)
    monkeypatch.setattr("roll_core.checkpoint.manifest.time.time", lambda: 1000.0)
    for step in (20, 30, 40):
        save(folder, step)
    assert folder.steps() == [30, 40]


def test_a_lower_step_written_later_is_mentioned(tmp_path: Path) -> None:
    for step in (10, 20, 15):
        save(CheckpointFolder(tmp_path), step)
    notices: list[str] = []
    resume = CheckpointFolder(tmp_path, notify=notices.append).find(True)
    assert resume is not None and resume.step == 20
    assert notices == [
        "resuming from checkpoint-20, the highest step, though checkpoint-15 was written after it; "
        f"to go on from that one: resume_from_checkpoint={tmp_path}/checkpoint-15"
    ]


def test_a_torn_checkpoint_is_neither_pruned_nor_counted(torn_newest: Path) -> None:
    save(CheckpointFolder(torn_newest, max_ckpt_to_keep=2), 110)
    assert names(torn_newest) == ["checkpoint-100", "checkpoint-110", "checkpoint-200", "checkpoint-abc"] or (
        names(torn_newest) == ["checkpoint-110", "checkpoint-200", "checkpoint-90", "checkpoint-abc"]
    )


WRITER = """
import sys, itertools
from roll_core.checkpoint import CheckpointFolder
folder = CheckpointFolder(sys.argv[1], max_ckpt_to_keep=3)
folder.clean()
for count in itertools.count():
    step = count % 7
    partial = folder.begin(step)
    for part in range(4):
        (partial / f"shard-{part}").write_bytes(bytes([count % 256]) * 200_000)
    folder.finish(step, {"count": count})
    print(step, flush=True)
"""


def test_a_writer_killed_at_any_time_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for attempt in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=environment
        ) as writer:
            assert writer.stdout is not None
            for _ in range(1 + attempt % 4):
                writer.stdout.readline()
            time.sleep(0.0007 * attempt)
            writer.send_signal(signal.SIGKILL)
        folder = CheckpointFolder(tmp_path, notify=pytest.fail)
        folder.clean()
        assert folder.steps() == sorted(int(name.removeprefix("checkpoint-")) for name in names(tmp_path))
        for step in folder.steps():
            resume = folder.find(str(tmp_path / f"checkpoint-{step}"))
            assert resume is not None
            shards = {(resume.path / f"shard-{part}").read_bytes() for part in range(4)}
            assert shards == {bytes([resume.manifest.extra["count"] % 256]) * 200_000}
        assert folder.steps()


# Each child dies just before its n-th call that touches the file system, for every n, so every order of events is seen.
DYING = """
import itertools, os, shutil, signal, sys
from pathlib import Path
from roll_core.checkpoint import CheckpointFolder

CALLS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")

def save(folder, step, text):
    partial = folder.begin(step)
    (partial / "weights").write_text(text)
    (partial / "pipeline").mkdir()
    (partial / "pipeline" / "state.json").write_text(text)
    folder.finish(step)

def die_before(number):
    calls = itertools.count()
    def hook(event, arguments):
        if event in CALLS and next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

root = Path(sys.argv[1])
save(CheckpointFolder(root / "warm-up"), 1, "x")
for number in itertools.count():
    directory = root / f"run-{number}"
    for step in (1, 2):
        save(CheckpointFolder(directory), step, f"old {step}")
    child = os.fork()
    if child == 0:
        die_before(number)
        folder = CheckpointFolder(directory, max_ckpt_to_keep=2)
        save(folder, 2, "new 2")
        save(folder, 3, "new 3")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    folder = CheckpointFolder(directory, notify=print)
    folder.clean()
    left = sorted(path.name for path in directory.iterdir())
    resume = folder.find(True)
    text = (resume.path / "weights").read_text()
    assert text == (resume.path / "pipeline" / "state.json").read_text()
    assert folder.steps() == [int(name.removeprefix("checkpoint-")) for name in left], left
    print(status, left, text, flush=True)
    shutil.rmtree(directory)
    if status == 0:
        break
"""


def test_a_writer_killed_before_any_of_its_calls_leaves_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DYING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 30
    assert all(line.startswith("9 ") for line in lines[:-1])
    assert lines[-1] == "0 ['checkpoint-2', 'checkpoint-3'] new 3"
    texts = [line.partition("] ")[2] for line in lines]
    assert [text for text, before in zip(texts, ["", *texts]) if text != before] == ["old 2", "new 2", "new 3"]


def test_a_full_disk_is_named_and_leaves_the_older_checkpoint(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, 1)
    partial = folder.begin(1)
    (partial / "model.safetensors").write_text("new")
    (partial / "manifest.json").symlink_to("/dev/full")
    with pytest.raises(CheckpointError) as caught:
        folder.finish(1)
    lines = str(caught.value).splitlines()
    assert lines[0] == "cannot save checkpoint-1: No space left on device"
    assert lines[2].startswith("  free: ")
    assert lines[3] == (
        "  try:  free some space, lower max_ckpt_to_keep, or set checkpoint_config.output_dir to a larger disk"
    )
    folder.clean()
    resume = folder.find(True)
    assert resume is not None and (resume.path / "model.safetensors").read_bytes().startswith(b"weights")


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file")
    with pytest.raises(CheckpointError) as caught:
        CheckpointFolder(tmp_path / "output").begin(1)
    assert str(caught.value).startswith(f"cannot begin checkpoint-1: Not a directory\n  at:   {tmp_path}/output")
    assert "a file is in the way" in str(caught.value)


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(CheckpointError) as caught:
        CheckpointFolder(tmp_path).begin(1)
    assert str(caught.value).startswith("cannot begin checkpoint-1: Permission denied\n")
    assert "set checkpoint_config.output_dir to a folder that this user may write to" in str(caught.value)
