"""Runs that train nothing, as a user starts them: everything is generated once, whatever kills them in between."""

import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.end_to_end.agentic_runs import prepare_lake
from tests.end_to_end.runs import REPOSITORY, REWARD, Run

HERE = Path(__file__).parent
KILL_AT = HERE / "kill_in_episode.py"


class Answers(Run):
    """A run of rlvr_rollout/cpu.yaml: 8 problems, two a step, four answers to each."""

    config = REPOSITORY / "examples" / "rlvr_rollout" / "cpu.yaml"

    @property
    def settings(self) -> Sequence[str]:
        return [
            "platform=cpu",
            f"pretrain={self.assets / 'model'}",
            f"validation.data_args.dataset_dir={self.assets / 'data'}",
            "validation.data_args.file_name=[few.jsonl]",
            f"rewards.math_rule.worker_cls={REWARD}",
            "rollout_batch_size=2",
            *self.places,
            *self.overrides,
        ]


class Episodes(Run):
    """A run of agentic_rollout/cpu.yaml with environments that fail now and then; `assets` is the model's folder."""

    config = REPOSITORY / "examples" / "agentic_rollout" / "cpu.yaml"

    @property
    def settings(self) -> Sequence[str]:
        return [
            "platform=cpu",
            f"pretrain={self.assets}",
            f"custom_envs.Lake.env_type={HERE / 'troubled_lake.py'}:UnluckyLake",
            "rollout_batch_size=8",
            "train_env_manager.num_env_groups=8",
            *self.places,
            *self.overrides,
        ]


def summary(run: Run) -> dict[str, object]:
    data: dict[str, object] = json.loads((run.folder / "rollouts" / "summary.json").read_text())
    return data


def test_a_killed_rollout_goes_on_and_no_answer_is_lost_or_doubled(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Answers(tmp_path, assets)
    monkeypatch.setenv("KILL_AT", "rollout 3")
    code, output = run.finish(script=KILL_AT)
    assert code == -signal.SIGKILL, output
    early = run.rollouts()
    assert sorted(early) == ["step-000001.jsonl", "step-000002.jsonl"]
    code, output = run.finish()
    assert code == 0, output
    assert "going on: 2 of 4 steps are in" in output
    records = [json.loads(line) for text in run.rollouts().values() for line in text.splitlines()]
    assert {name: run.rollouts()[name] for name in early} == early
    assert Counter(record["id"] for record in records) == dict.fromkeys({record["id"] for record in records}, 4)
    right = sum(record["score"] == 1 for record in records)
    assert f"right: {right} of 32, {right / 32:.1%} (95% interval " in output
    assert (summary(run)["right"], summary(run)["total"], summary(run)["groups"]) == (right, 32, 8)
    assert sorted(run.metrics()) == [1, 2, 3, 4]
    assert not (tmp_path / "models").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["rollout 1", "rollout 3", "rollout 4"])
def test_a_killed_rollout_ends_with_the_answers_of_one_that_was_not(
    moment: str, assets: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, killed = (Answers(tmp_path_factory.mktemp(name), assets) for name in ("straight", "killed"))
    check_resumed(straight, killed, moment, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["episodes rollout/1", "episodes rollout/3", "rollout 2", "rollout 4"])
def test_killed_episodes_end_as_those_that_were_not(
    moment: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepare_lake(tmp_path_factory.mktemp("lake"))
    straight, killed = (Episodes(tmp_path_factory.mktemp(name), model) for name in ("straight", "killed"))
    check_resumed(straight, killed, moment, monkeypatch)
    found = [json.loads(line)["traj_id"] for text in straight.rollouts().values() for line in text.splitlines()]
    assert len(set(found)) == len(found) == 32


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_episodes_are_the_same_where_environments_live_in_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    model, lake = prepare_lake(tmp_path_factory.mktemp("lake")), "custom_envs.Lake.env_type=frozen_lake"
    beside = Episodes(tmp_path_factory.mktemp("beside"), model, [lake])
    spread = Episodes(tmp_path_factory.mktemp("spread"), model, [lake, "train_env_manager.world_size=2"])
    for run in (beside, spread):
        code, output = run.finish()
        assert code == 0, output
    assert spread.rollouts() == beside.rollouts()
    logs = {path.name for path in (spread.folder / "logs").rglob("train_env*.log")}
    assert logs == {"train_env_manager-0.log", "train_env_manager-1.log"}


def check_resumed(straight: Run, killed: Run, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = straight.finish()
    assert code == 0, output
    monkeypatch.setenv("KILL_AT", moment)
    code, output = killed.finish(script=KILL_AT)
    assert code == -signal.SIGKILL, output
    code, output = killed.finish()
    assert code == 0, output
    assert killed.rollouts() == straight.rollouts()
    assert killed.metrics() == straight.metrics()
    assert summary(killed) == summary(straight)
    code, output = killed.finish()
    assert code == 0 and "going on: 4 of 4 steps are in" in output, output
    assert killed.rollouts() == straight.rollouts()
