"""Agentic runs with a transport: a worker plays the same episodes, nothing is left behind, and deaths lose no step."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.agentic_runs import LakeRun, prepare_lake
from tests.end_to_end.runs import assert_all_gone, descendants
from tests.end_to_end.test_agentic_async import ASYNC, GROUPS, check, saved
from tests.end_to_end.test_transports import QUEUE, RAY, held

HERE = Path(__file__).parent
MakeLake = Callable[..., LakeRun]
TWO_ENGINES = "actor_infer.device_mapping=[1,2]"


@pytest.fixture(scope="module")
def make_lake(tmp_path_factory: pytest.TempPathFactory) -> MakeLake:
    model = prepare_lake(tmp_path_factory.mktemp("lake"))

    def make(name: str, *overrides: str) -> LakeRun:
        return LakeRun(tmp_path_factory.mktemp(name), model, overrides)

    return make


@pytest.fixture(scope="module")
def plain(make_lake: MakeLake) -> LakeRun:
    run = make_lake("plain")
    code, output = run.finish()
    assert code == 0, output
    return run


def test_a_worker_plays_the_episodes_of_a_run_with_a_transport(make_lake: MakeLake) -> None:
    run = make_lake("short", RAY, "max_steps=1", "eval_steps=0", "save_steps=0", "train_env_manager.world_size=2")
    code, output = run.finish()
    assert code == 0, output
    assert held(run) == [(0.0, 0.0)]
    assert len(run.rollouts()["episodes-000001.jsonl"].splitlines()) == 12
    logs = {path.name for path in (run.folder / "logs").rglob("*.log")}
    assert {"episodes-0.log", "train_env_manager-0.log", "train_env_manager-1.log"} <= logs


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", [RAY, QUEUE], ids=["ray", "TransferQueue"])
def test_a_transport_changes_no_episode_and_no_number(plain: LakeRun, make_lake: MakeLake, transport: str) -> None:
    run = make_lake("transport", transport)
    code, output = run.finish()
    assert code == 0, output
    assert run.rollouts() == plain.rollouts()
    for step, metrics in plain.metrics().items():
        assert run.metrics()[step] == metrics
    assert held(run) == [(0.0, 0.0)] * 4


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [(), ASYNC], ids=["sync", "async"])
def test_a_run_whose_episodes_are_killed_ends_with_its_cause_and_goes_on(
    mode: tuple[str, ...], plain: LakeRun, make_lake: MakeLake
) -> None:
    run = make_lake("killed", RAY, *mode, "max_steps=100000", "eval_steps=0", "save_steps=100000")
    process = run.start()
    run.wait_for_step(3, 240, process)
    family = descendants(process.pid)
    os.kill(run.worker_pid("episodes-0"), signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "episodes rank 0 died" in output and "resume_from_checkpoint=true" in output
    assert_all_gone(family)
    [name] = run.checkpoints()
    last = int(name.partition("-")[2]) + 3
    code, output = run.finish("resume_from_checkpoint=true", f"max_steps={last}", f"save_steps={last}")
    assert code == 0, output
    if mode:
        check(run.folder, last)
        assert len(saved(run.folder, last)["open"]) >= GROUPS
    else:
        episodes = {name: text for name, text in run.rollouts().items() if name.startswith("episodes")}
        played = [json.loads(line)["traj_id"] for text in episodes.values() for line in text.splitlines()]
        assert len(set(played)) == len(played) == 12 * last
        assert {name: episodes[name] for name in plain.rollouts() if name in episodes} == {
            name: text for name, text in plain.rollouts().items() if name.startswith("episodes")
        }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pace", ["lockstep", "free"])
def test_an_engine_that_dies_is_replaced_for_the_worker_too(pace: str, make_lake: MakeLake, tmp_path: Path) -> None:
    run = make_lake("engine", RAY, TWO_ENGINES, f"train_env_manager.pace={pace}", "max_steps=6", "eval_steps=0")
    killer = [
        f"custom_envs.Lake.env_type={HERE / 'troubled_lake.py'}:EngineKiller",
        f"custom_envs.Lake.env_config.engine_log={run.folder / 'logs' / 'frozen_lake' / 'actor_infer-1.log'}",
        f"custom_envs.Lake.env_config.killed={tmp_path / 'killed'}",
    ]
    code, output = run.finish(*killer)
    assert code == 0, output
    assert (tmp_path / "killed").exists()
    assert output.count("actor_infer rank 1 died and is started again") == 1
    assert sorted(run.metrics()) == list(range(1, 7))
    assert held(run) == [(0.0, 0.0)] * 6
