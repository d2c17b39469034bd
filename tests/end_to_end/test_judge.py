"""A run whose answers are judged by an engine on devices of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.runs import Run
from tests.rewards.judge_engines import save_tokenizer

SCRIPT = Path(__file__).parent / "judge_run.py"


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0, 1])
def test_a_judge_on_its_own_devices_scores_a_run(make_run: Callable[..., Run], tmp_path: Path, ratio: int) -> None:
    folder = save_tokenizer(tmp_path / "judge")
    (folder / "config.json").write_text("{}")
    judge = {
        "worker_cls": "llm_judge",
        "judge_model_type": "inference",
        "model_args.model_name_or_path": str(folder),
        "strategy_args.strategy_name": "stand_in",
        "data_args.template": "base",
        "device_mapping": "[1,2]",
        "world_size": "2",
    }
    run = make_run(
        f"judge-{ratio}",
        *(f"rewards.math_rule.{key}={value}" for key, value in judge.items()),
        f"async_generation_ratio={ratio}",
        "actor_infer.device_mapping=[3]",
        "max_steps=3",
        "save_steps=0",
        "eval_steps=3",
    )
    code, output = run.finish(script=SCRIPT)
    assert code == 0, output
    last = run.metrics()[3]
    assert last["rewards/math_rule/judge_requests"] >= 16
    assert last["rewards/math_rule/judge_failures"] == 0
    assert last["rewards/math_rule/ungraded_ratio"] == 0
    assert 0 < run.metrics()[1]["critic/score/mean"] < 1
    logs = sorted(path.name for path in run.folder.rglob("reward-math_rule-*.log"))
    assert logs == ["reward-math_rule-0.log", "reward-math_rule-1.log"]
