"""A judge's worker in a process of its own: its engine, its tokenizer, and a death that costs nothing."""

import os
import signal
import time
from pathlib import Path

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.reward_workers import JudgeActor
from roll_core.cluster.session import Session
from roll_core.cluster.spec import WorkerSpec
from roll_core.config.schema import ModelArgs, RewardConfig
from roll_core.context import WorkerContext
from roll_core.inference import SamplingParams
from roll_core.platforms.cpu import CpuPlatform
from roll_core.plugins import load_plugins
from roll_core.rewards import RewardSample, Status
from roll_core.rewards.judge_prompts import EQUIVALENCE
from roll_core.rollout.reward_router import RewardRouter
from tests.rewards.judge_engines import save_tokenizer

SAMPLES = {
    "right": RewardSample("1", "", "4", "4", question="What is 2 + 2?"),
    "wrong": RewardSample("2", "", "five", "4", question="What is 2 + 2?"),
    "ungraded": RewardSample("3", "", "4", ""),
}


def judges(folder: Path, *, count_as_zero: bool) -> WorkerGroup:
    role = RewardConfig(model_args=ModelArgs(model_name_or_path=str(save_tokenizer(folder / "judge"))))
    spec = WorkerSpec(
        context=WorkerContext(role="reward-llm_judge", rank=0, world_size=1),
        role=role,
        platform_target="roll_core.platforms.cpu:CpuPlatform",
        strategy_target="tests.rewards.judge_engines:ByLength",
        plugins=load_plugins().fingerprint(),
        log_file=folder / "reward-llm_judge-0.log",
        working_dir=folder,
    )
    settings = {"name": "by length", "deadline_s": None, "count_as_zero": count_as_zero}
    arguments = (EQUIVALENCE, "base", SamplingParams(max_new_tokens=8), settings)
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    return WorkerGroup.launch(
        JudgeActor, [spec], [None], CpuPlatform(), environment, arguments=arguments, restartable=True, threads=4
    )


def test_a_judges_worker_scores_as_any_reward_and_survives_its_death(session: Session, tmp_path: Path) -> None:
    group = judges(tmp_path, count_as_zero=True)
    waiter, told = Waiter(120.0), list[str]()
    router = RewardRouter({"llm_judge": group}, told.append)
    try:
        # It knows nothing of sums, and a run with it would not start.
        assert waiter.wait(group.submit("self_test")) == [
            ["the judge by length finds 'The answer is 4.' wrong, asked what 2 + 2 is"]
        ]
        [call] = router.submit("llm_judge", SAMPLES)
        [result] = waiter.wait([call])
        scores = router.collect(call, result)
        assert {name: score.score for name, score in scores.items()} == {"right": 1.0, "wrong": 0.0, "ungraded": 0.0}
        assert scores["ungraded"].status is Status.COULD_NOT_GRADE and scores["ungraded"].is_counted_as_zero
        metrics = router.take_metrics()
        assert metrics["rewards/llm_judge/judge_requests"] == 2.0
        assert metrics["rewards/llm_judge/ungraded_ratio"] == 1 / 3
        os.kill(result[1], signal.SIGKILL)
        end = time.monotonic() + 60
        while Path(f"/proc/{result[1]}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        [call] = router.submit("llm_judge", SAMPLES)
        [again] = waiter.wait([call])
        assert router.collect(call, again) == scores and again[1] != result[1]
        assert router.restarts == 1 and "its samples were scored anew" in told[0]
    finally:
        group.kill()
