"""Roles and values as objects: what is derived, what is kept as written, what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from roll_core.config.schema import RLVRConfig, WorkerConfig
from roll_core.config.validation import validate

Small = Callable[..., RLVRConfig]


def test_workers_are_counted_from_devices() -> None:
    assert WorkerConfig(device_mapping="list(range(0,8))").world_size == 8
    assert WorkerConfig(device_mapping=[0, 1, 2, 3], num_gpus_per_worker=2).world_size == 2


def test_an_engine_spans_the_devices_of_its_parallel_sizes() -> None:
    options = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    role = WorkerConfig(
        device_mapping="list(range(0,8))", strategy_args={"strategy_name": "vllm", "strategy_config": options}
    )
    assert (role.num_gpus_per_worker, role.world_size) == (4, 2)


def test_a_role_without_devices_has_the_processes_it_asks_for() -> None:
    assert (WorkerConfig(world_size=8).world_size, WorkerConfig(world_size=8).devices) == (8, [])
    assert WorkerConfig().world_size == 1


def test_megatron_ranks_that_share_a_model_have_the_same_rows() -> None:
    options = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    strategy = {"strategy_name": "megatron_train", "strategy_config": options}
    assert WorkerConfig(device_mapping="list(range(0,8))", strategy_args=strategy).data_parallel_size == 2


def test_node_counts_are_never_changed(small: Small) -> None:
    config = small({"num_nodes": 2, "num_gpus_per_node": 1})
    assert (config.num_nodes, config.num_gpus_per_node) == (2, 1)
    assert (small().num_nodes, small().num_gpus_per_node) == (None, None)


def test_each_role_gets_the_model_of_the_pipeline_unless_it_names_its_own(small: Small) -> None:
    config = small({"actor_infer.model_args": {"model_name_or_path": "other"}})
    assert config.actor_train.model_args.model_name_or_path == "model"
    assert config.actor_infer.model_args.model_name_or_path == "other"


def test_sampling_is_filled_in_only_where_nothing_was_written(small: Small) -> None:
    filled = small().actor_infer.generating_args
    assert filled is not None
    assert (filled.max_new_tokens, filled.num_return_sequences) == (32, 4)
    kept = small({"actor_infer.generating_args": {"max_new_tokens": 7, "num_return_sequences": 4}})
    assert kept.actor_infer.generating_args is not None
    assert kept.actor_infer.generating_args.max_new_tokens == 7


def test_the_seed_reaches_every_role_that_has_none(small: Small) -> None:
    config = small({"seed": 7, "actor_infer.training_args": {"seed": 9}})
    assert (config.actor_train.training_args.seed, config.actor_infer.training_args.seed) == (7, 9)


def test_the_response_window_follows_from_either_length(small: Small) -> None:
    assert small().response_window == 32
    assert small({"response_length": None, "sequence_length": 100}).response_window == 68


def test_a_reference_is_made_only_for_a_divergence_that_is_used(small: Small) -> None:
    assert not small({"init_kl_coef": 0.2}).needs_reference
    assert small({"use_kl_loss": True}).needs_reference
    assert small({"add_token_level_kl": True}).needs_reference
    assert small({"enable_reference": True}).needs_reference


def test_numbers_may_be_written_as_text() -> None:
    assert WorkerConfig(training_args={"learning_rate": "1e-6"}).training_args.learning_rate == 1e-6
    assert WorkerConfig(training_args={"learning_rate": "1.0e-6"}).training_args.learning_rate == 1e-6


@pytest.mark.parametrize("value", [True, "fast", [1], None, float("nan"), float("inf"), -1])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        WorkerConfig(training_args={"learning_rate": value})


def test_variables_are_text_and_numbers_become_text() -> None:
    assert WorkerConfig(system_envs={"A": 1, "B": 0.5, "C": "x"}).system_envs == {"A": "1", "B": "0.5", "C": "x"}


@pytest.mark.parametrize(("value", "word"), [(True, "true"), (False, "false"), (None, "null")])
def test_a_variable_that_is_no_text_says_how_to_write_it(value: Any, word: str) -> None:
    with pytest.raises(ValidationError, match=f"variable A has the value {word}, which is no text; put it in quotes"):
        WorkerConfig(system_envs={"A": value})


def test_secrets_are_not_shown(small: Small) -> None:
    changes = {
        "tracker_kwargs": {"api_key": "sk-12345", "project": "p"},
        "rewards": {"llm_judge": {"judge_api_key": "sk-67890"}},
    }
    config = small(changes)
    shown = f"{config!r}{config}{config.model_dump(mode='json')}"
    assert "sk-12345" not in shown
    assert "sk-67890" not in shown
    assert config.tracker_kwargs["api_key"].get_secret_value() == "sk-12345"


def test_a_config_travels_between_processes(small: Small) -> None:
    config = small()
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_config_cannot_be_changed_after_loading(small: Small) -> None:
    config = small()
    with pytest.raises(ValidationError):
        config.seed = 3


def test_the_users_home_may_stand_in_every_path(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    config = small({"pretrain": "~/model", "output_dir": "~/out", "resume_from_checkpoint": "~/out/checkpoint-3"})
    assert config.actor_train.model_args.model_name_or_path == "/home/somebody/model"
    assert str(config.checkpoint_dir).startswith("/home/somebody/out")
    assert config.resume_from_checkpoint == "/home/somebody/out/checkpoint-3"


@pytest.mark.parametrize("role", ["actor_train", "actor_infer"])
def test_how_often_engines_get_weights_may_be_said_of_either_end(small: Small, role: str) -> None:
    assert small({f"{role}.model_update_frequency": 3}).model_update_frequency == 3


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("seed", -1, "must be at least 0"),
        ("target_kl", 0, "must be more than 0"),
        ("exp_name", " ", "names folders below others: not empty, not absolute, and without '..'"),
        ("exp_name", "../mine", "names folders below others: not empty, not absolute, and without '..'"),
        ("exp_name", "/mine", "names folders below others: not empty, not absolute, and without '..'"),
    ],
)
def test_values_that_a_run_would_stumble_over_later_are_refused(key: str, value: object, rule: str) -> None:
    found = validate({"response_length": 8, key: value}, RLVRConfig).problems
    assert [(problem.path, problem.rule) for problem in found] == [(key, rule)]
