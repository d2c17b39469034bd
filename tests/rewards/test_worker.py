from __future__ import annotations

from pathlib import Path

import pytest

from roll_core.rewards import Reward, RewardSample, Score, Status
from roll_core.rewards.checked import checked_score
from roll_core.rewards.ifeval import IFEvalReward
from roll_core.rewards.llm_judge import LLMJudgeReward
from roll_core.rewards.worker import DEADLINE_S, RewardWorker

SAMPLES = [RewardSample("1", "", r"\boxed{C}", "C"), RewardSample("2", "", r"\boxed{C}", "no option")]


def test_samples_without_a_verdict_are_left_out_of_training() -> None:
    worker = RewardWorker("multiple_choice")
    try:
        right, ungraded = worker.compute_rewards(SAMPLES)
    finally:
        worker.close()
    assert right.is_graded and not ungraded.is_graded


def test_samples_without_a_verdict_count_as_zero_where_that_is_asked_and_keep_their_status() -> None:
    worker = RewardWorker("multiple_choice", count_as_zero=True)
    try:
        right, ungraded = worker.compute_rewards(SAMPLES)
    finally:
        worker.close()
    assert right == Score(1.0)
    assert (ungraded.status, ungraded.score, ungraded.reward) == (Status.COULD_NOT_GRADE, 0.0, 0.0)
    assert ungraded.is_graded and ungraded.is_counted_as_zero


def test_a_worker_takes_what_a_built_in_reward_asks_for_unless_told_otherwise(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def score(sample):\n    return 1.0\n")
    options = {"url": "http://localhost:1", "model": "judge"}
    workers = {
        "ifeval": RewardWorker("ifeval"),
        "llm_judge": RewardWorker("llm_judge", options),
        "told": RewardWorker("llm_judge", options, num_processes=3, deadline_s=9.0),
        "own": RewardWorker(f"{own}:score"),
    }
    found = {name: (worker._pool.num_workers, worker._pool.deadline_s) for name, worker in workers.items()}
    for worker in workers.values():
        worker.close()
    assert found == {
        "ifeval": (Reward.num_processes, IFEvalReward.deadline_s),
        "llm_judge": (LLMJudgeReward.num_processes, LLMJudgeReward.deadline_s),
        "told": (3, 9.0),
        "own": (1, DEADLINE_S),
    }


@pytest.mark.parametrize("costs", [None, 3.0, {"tokens": "many"}, {"tokens": float("nan")}, {"tokens": -1.0}])
def test_costs_that_are_no_numbers_are_an_error(costs: object) -> None:
    score = checked_score(Score(1.0, costs=costs), "mine")  # type: ignore[arg-type]
    assert score.status is Status.ERROR and "reward 'mine' returned a Score whose cost" in score.reason
