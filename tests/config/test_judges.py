"""A judge that is an engine of the run: its section is read, placed on devices of its own, and checked before a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roll_core.config.compose import load_config
from roll_core.config.judges import judge_engines, judge_prompt, judge_sampling, judge_template
from roll_core.config.machine import files_problems
from roll_core.config.planning import make_plan
from roll_core.config.resolution import started_roles
from roll_core.config.rules import notices_of, problems_of
from roll_core.config.schema import RLVRConfig
from roll_core.config.unavailable import unavailable_problems
from roll_core.plugins import load_plugins
from roll_core.rewards.judge_prompts import EQUIVALENCE

Small = Callable[..., RLVRConfig]
PUBLISHED = Path(__file__).parent / "published" / "rlvr"
ENGINE: dict[str, Any] = {
    "model_args": {"model_name_or_path": "/models/judge"},
    "strategy_args": {"strategy_name": "hf_infer"},
    "device_mapping": [6, 7],
}
JUDGE: dict[str, Any] = ENGINE | {"judge_model_type": "inference", "tag_included": ["RLVR"]}
CLUSTER: dict[str, Any] = {
    "rewards.llm_judge": {"judge_model_type": "cluster", "tag_included": ["RLVR"]},
    "reward_model": ENGINE,
}


def said(config: RLVRConfig) -> list[str]:
    return [str(problem) for problem in problems_of(config)]


def test_a_judge_is_a_role_that_is_started_on_its_devices(small: Small) -> None:
    config = small({"rewards.llm_judge": JUDGE})
    assert said(config) == [] and notices_of(config) == []
    assert list(unavailable_problems(config)) == []
    assert started_roles(config)["rewards.llm_judge"].devices == [6, 7]
    assert config.rewards["llm_judge"].world_size == 2


def test_a_judge_may_be_described_by_a_section_of_its_own(small: Small) -> None:
    config = small(CLUSTER)
    assert said(config) == [] and notices_of(config) == []
    assert judge_engines(config) == {"reward_model": config.reward_model}
    assert "reward_model" in started_roles(config) and "rewards.llm_judge" not in started_roles(config)


def test_a_section_that_no_reward_asks_for_has_no_effect(small: Small) -> None:
    config = small({"reward_model": ENGINE})
    assert notices_of(config) == ["reward_model: has no effect; no reward has judge_model_type: cluster"]
    assert "reward_model" not in started_roles(config)


@pytest.mark.parametrize("role", ["actor_train", "actor_infer"])
@pytest.mark.parametrize("path", ["rewards.llm_judge", "reward_model"])
def test_devices_of_an_actor_are_refused(small: Small, role: str, path: str) -> None:
    judged = {"rewards.llm_judge": JUDGE} if path == "rewards.llm_judge" else CLUSTER
    others = {"actor_train.device_mapping": [0, 1], "actor_infer.device_mapping": [2, 3]}
    config = small(judged | others | {f"{role}.device_mapping": [5, 6]})
    assert said(config) == [
        f"{path}.device_mapping: a judge has devices of its own all the time, and {role} uses 6 too\n"
        "    try:   devices that no other role names"
    ]


def without(section: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name != key}


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (without(JUDGE, "strategy_args"), ".strategy_args: must name the engine that the judge's model runs in"),
        (without(JUDGE, "device_mapping"), ".device_mapping: must name the judge's own devices"),
        (without(JUDGE, "model_args"), ".model_args.model_name_or_path: must be the folder of the judge's model"),
        (JUDGE | {"data_args": {"template": "qwen9"}}, ".data_args.template: no chat template has this name"),
        (JUDGE | {"judge_prompt": "fair"}, ".judge_prompt: no judge prompt named 'fair'"),
        (JUDGE | {"judge_model_type": "oracle"}, ".judge_model_type: must be one of: api, inference, cluster"),
        (JUDGE | {"reward_args": {"tries": 3}}, ".reward_args.tries: a judge with an engine of its own has no such"),
        (JUDGE | {"generating_args": {"num_return_sequences": 4}}, ".generating_args.num_return_sequences: a judge is"),
        (
            JUDGE | {"strategy_args": {"strategy_name": "hf_infer", "strategy_config": {"load_format": "dummy"}}},
            ".strategy_args.strategy_config.load_format: nobody sends a judge its weights",
        ),
        ({"judge_model_type": "cluster"}, ".judge_model_type: cluster takes the engine that the section reward_model"),
        (without(JUDGE, "judge_model_type"), ".device_mapping: only a judge with judge_model_type: inference has an"),
    ],
)
def test_what_a_judge_lacks_is_told_before_a_run(small: Small, section: dict[str, Any], told: str) -> None:
    found = said(small({"rewards.llm_judge": section}))
    assert any(problem.startswith(f"rewards.llm_judge{told}") for problem in found), found


def test_an_engine_judges_one_domain(small: Small) -> None:
    config = small(CLUSTER | {"rewards.other": {"worker_cls": "llm_judge", "judge_model_type": "cluster"}})
    assert said(config) == [
        "reward_model: judges one domain, and rewards.llm_judge and rewards.other name it\n"
        "    try:   one reward with all their tags in tag_included"
    ]


def test_a_servers_address_means_nothing_to_an_engine(small: Small) -> None:
    config = small({"rewards.llm_judge": JUDGE | {"judge_api_url": "http://host/v1"}})
    assert notices_of(config) == [
        "rewards.llm_judge.judge_api_url: has no effect; the judge is an engine of this run",
    ]


def test_replies_are_sampled_as_written_and_else_the_likeliest(small: Small) -> None:
    config = small({"rewards.llm_judge": JUDGE})
    plain = judge_sampling(config.rewards["llm_judge"])
    assert (plain.do_sample, plain.max_new_tokens) == (False, 1024)
    written = {"generating_args": {"temperature": 0.8, "max_new_tokens": 100}, "data_args": {"template": "chatml"}}
    reward = small({"rewards.llm_judge": JUDGE | written}).rewards["llm_judge"]
    assert (judge_sampling(reward).do_sample, judge_sampling(reward).max_new_tokens) == (True, 100)
    assert judge_template(reward) == "chatml" and judge_prompt(reward) == EQUIVALENCE


@pytest.mark.parametrize(("written", "bound"), [({}, None), ({"infer_batch_size": 4}, 4)])
def test_hf_infer_judges_as_many_at_once_as_is_written(
    small: Small, written: dict[str, Any], bound: int | None
) -> None:
    [engine] = judge_engines(small({"rewards.llm_judge": JUDGE | written})).values()
    assert engine.strategy_config.get("max_running_requests") == bound
    own = {"strategy_args": ENGINE["strategy_args"] | {"strategy_config": {"max_running_requests": 8}}}
    [engine] = judge_engines(small({"rewards.llm_judge": JUDGE | written | own})).values()
    assert engine.strategy_config["max_running_requests"] == 8


def test_rows_without_a_reference_are_named_before_a_run(tmp_path: Path, small: Small) -> None:
    rows = [{"ground_truth": "4"}, {"ground_truth": " "}]
    lines = [json.dumps({"id": str(n), "prompt": "p", "tag": "RLVR"} | row) for n, row in enumerate(rows)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    config = small({"actor_train.data_args.dataset_dir": str(tmp_path), "rewards.llm_judge": JUDGE})
    [found] = [str(problem) for problem in files_problems(config) if "train.jsonl" in problem.path]
    assert "train.jsonl:2" in found and "compares with ground_truth" in found


def test_a_plan_places_the_judge(small: Small) -> None:
    config = small({"rewards.llm_judge": JUDGE})
    plan = make_plan(config, load_plugins(), "rlvr", [])
    [role] = [role for role in plan.roles if role.name == "rewards.llm_judge"]
    assert role.strategy == "hf_infer" and role.target.endswith(":HfInferStrategy")
    assert [place.device for worker in role.workers for place in worker.devices] == [6, 7]


@pytest.mark.parametrize("name", ["sglang_judge", "judge_cluster"])
def test_published_judges_break_no_rule_of_judges(name: str) -> None:
    config = load_config(str(PUBLISHED), name)
    assert isinstance(config, RLVRConfig)
    assert len(judge_engines(config)) == 1
    assert [text for text in said(config) if text.startswith(("rewards.llm_judge", "reward_model"))] == []


def test_a_published_judge_that_shares_with_the_trainer_is_beyond_this_version() -> None:
    config = load_config(str(PUBLISHED), "megatron_dense")
    [problem] = [problem for problem in problems_of(config) if problem.path == "rewards.llm_judge.device_mapping"]
    assert problem.is_not_built and "actor_train uses 12, 13, 14, 15 too" in problem.rule
