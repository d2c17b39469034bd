"""What stands under a reward's name reaches the reward that scores its domain, or is told to have no effect."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roll_core.config.machine import files_problems
from roll_core.config.reward_options import reward_options
from roll_core.config.rules import notices_of, problems_of
from roll_core.config.schema import RLVRConfig

Small = Callable[..., RLVRConfig]
JUDGE = {"judge_api_url": "http://localhost:8000/v1", "judge_model_name": "judge", "judge_api_key": "sk-secret"}
PUBLISHED = "roll.pipeline.rlvr.rewards.crossthinkqa_rule_reward_worker.CrossThinkQARuleRewardWorker"


def test_keys_become_options_under_their_own_names(small: Small) -> None:
    config = small(
        {
            "rewards.llm_judge": JUDGE | {"judge_model_type": "api", "reward_args": {"max_tokens": 64}},
            "rewards.science": {"worker_cls": PUBLISHED, "reward_type": "soft"},
            "rewards.ifeval": {"reward_type": "loose"},
        }
    )
    assert reward_options("llm_judge", config.rewards["llm_judge"]) == {
        "url": "http://localhost:8000/v1",
        "model": "judge",
        "api_key": "sk-secret",
        "max_tokens": 64,
    }
    assert reward_options("science", config.rewards["science"]) == {"reward_type": "soft"}
    assert reward_options("math_rule", config.rewards["math_rule"]) == {}
    assert problems_of(config) == [] and notices_of(config) == []


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (
            {"llm_judge": {}},
            "rewards.llm_judge: reward 'llm_judge' cannot be made with options none: judge_api_url must",
        ),
        ({"llm_judge": JUDGE | {"judge_prompt": "fair"}}, "no judge prompt named 'fair'"),
        (
            {"llm_judge": JUDGE | {"reward_args": {"model": "x"}}},
            "rewards.llm_judge.reward_args.model: says what rewards.llm_judge.judge_model_name says too",
        ),
        ({"crossthinkqa": {"reward_type": "rule"}}, "reward_type must be one of loose, soft, strict, not 'rule'"),
        (
            {"ifeval": {"reward_args": {"lose": True}}},
            "IFEvalReward.__init__() got an unexpected keyword",
        ),
    ],
)
def test_options_that_a_reward_refuses_are_told_with_the_rules(small: Small, reward: dict[str, Any], told: str) -> None:
    [(name, section)] = reward.items()
    found = [str(problem) for problem in problems_of(small({f"rewards.{name}": section}))]
    assert len(found) == 1 and told in found[0] and "sk-secret" not in found[0]


def test_max_concurrency_is_what_one_reward_worker_scores_at_once(small: Small) -> None:
    config = small({"rewards.math_rule.max_concurrency": 3, "rewards.ifeval": {}})
    assert config.rewards["math_rule"].num_processes == 3 and config.rewards["ifeval"].num_processes is None
    assert notices_of(config) == []


@pytest.mark.parametrize(
    ("domain", "rows", "told"),
    [
        (
            "crossthinkqa",
            [{"ground_truth": "C"}, {"ground_truth": "Paris"}],
            ["2: ground_truth: the reference"],
        ),
        (
            "ifeval",
            [
                {"ground_truth": json.dumps({"func_name": "validate_no_commas"})},
                {"ground_truth": {"func_name": "validate_no_commas"}},
                {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
                {"ground_truth": json.dumps({"func_name": "validate_end"})},
                {"instruction_id_list": ["keywords:must_include"], "kwargs": [{}]},
                {},
            ],
            [
                "4: ground_truth: validate_end needs 'end_phrase'; it was given nothing",
                "5: no instruction id 'keywords:must_include'; there are: ",
                "6: the row has no instruction",
            ],
        ),
    ],
)
def test_rows_that_a_reward_could_not_grade_are_named_before_a_run(
    tmp_path: Path, small: Small, domain: str, rows: list[dict[str, Any]], told: list[str]
) -> None:
    lines = [json.dumps({"id": str(n), "prompt": "p", "tag": domain} | row) for n, row in enumerate(rows)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    config = small({"actor_train.data_args.dataset_dir": str(tmp_path), f"rewards.{domain}": {}})
    found = [str(problem) for problem in files_problems(config) if "train.jsonl" in problem.path]
    assert len(found) == len(told)
    assert all(f"train.jsonl:{start}" in line for start, line in zip(told, found))
