"""Several ranks: the same gradients, steps and weights as one, however rows and weights are spread."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from roll_core.data import DataProto
from roll_core.training import TrainPlan
from tests.training import rank_jobs as jobs
from tests.training.support import (
    advantage_loss,
    batch,
    distance,
    gradients,
    role,
    run_ranks,
    strategy_for,
    write_expert_model,
)

ROWS = 7
STEPS = 3
STRATEGIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole gradients until the last micro-batch": {"reduce_scatter_during_grad_accumulation": False},
    "resharded after forward": {"reshard_after_forward": True},
    "not resharded after forward": {"reshard_after_forward": False},
    "offloaded": {"offload_policy": True},
    "offloaded, whole gradients": {"offload_policy": True, "reduce_scatter_during_grad_accumulation": False},
    "wrapped by name": {"wrap_policy": {"transformer_layer_cls_to_wrap": ["Qwen3Attention", "Qwen3MLP"]}},
    "embeddings apart": {"wrap_policy": {"wrap_embeddings": True, "wrap_lm_output": True}},
}
SHARES = {"4 and 3": [4, 3], "6 and 1": [6, 1], "7 and 0": [7, 0], "0 and 7": [0, 7]}
CUTS: dict[str, dict[str, Any]] = {
    "one row": {"training_args": {"per_device_train_batch_size": 1}},
    "token budget": {"use_dynamic_batching_in_train": True, "max_tokens_per_microbatch_in_train": 32},
    "recomputed": {"model_args": {"disable_gradient_checkpointing": False}},
}


@pytest.fixture(scope="module")
def rows() -> DataProto:
    return batch(ROWS)


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_expert_model(tmp_path_factory.mktemp("experts"))


@pytest.fixture(scope="module")
def two(
    model: Path, tied: Path, experts: Path, rows: DataProto, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """Everything that two ranks do in this file, done once: starting processes takes most of the time."""
    bf16 = {"strategy": {"param_dtype": "bf16", "reduce_dtype": "bf16"}}
    work: dict[str, Any] = {}
    for name, strategy in STRATEGIES.items():
        work[name] = (jobs.gradients_of_share, (model, rows, [4, 3], {"strategy": strategy}))
    for name, sizes in SHARES.items():
        work[name] = (jobs.gradients_of_share, (model, rows, sizes, {}))
    for name, keys in CUTS.items():
        work[name] = (jobs.gradients_of_share, (model, rows, [6, 1], keys))
    work["tied"] = (jobs.gradients_of_share, (tied, rows, [6, 1], {}))
    work["steps"] = (jobs.train, (model, rows, [5, 2], STEPS, {}))
    work["steps, tied"] = (jobs.train, (tied, rows, [5, 2], STEPS, {}))
    work["steps, empty share"] = (jobs.train, (model, rows, [7, 0], STEPS, {}))
    work["steps, offloaded"] = (jobs.train, (model, rows, [5, 2], STEPS, {"strategy": {"offload_policy": True}}))
    work["steps, bf16"] = (jobs.train, (model, rows, [5, 2], STEPS, bf16))
    work["experts"] = (jobs.gradients_of_share, (experts, rows, [6, 1], {}))
    work["weights of experts"] = (jobs.train, (experts, rows, [5, 2], 0, {}))
    work["critic"] = (jobs.critic_values, (model, rows, [5, 2]))
    return run_ranks(work, 2, tmp_path_factory.mktemp("two"))


def one(model: Path, rows: DataProto) -> dict[str, torch.Tensor]:
    strategy = strategy_for(role(model, training_args={"per_device_train_batch_size": ROWS}), plan=TrainPlan(4))
    found = gradients(strategy, rows, advantage_loss(rows, entropy_weight=0.1))
    strategy.close()
    return found


@pytest.mark.parametrize("name", [*STRATEGIES, *SHARES, *CUTS])
def test_two_ranks_have_the_gradients_of_one(
    two: dict[str, list[Any]], model: Path, rows: DataProto, name: str
) -> None:
    expected = one(model, rows)
    for found in two[name]:
        assert distance(found, expected) < 1e-6


def test_two_ranks_of_a_tied_model_have_the_gradients_of_one(
    two: dict[str, list[Any]], tied: Path, rows: DataProto
) -> None:
    expected = one(tied, rows)
    for found in two["tied"]:
        assert distance(found, expected) < 1e-6


@pytest.mark.parametrize("name", ["steps", "steps, tied", "steps, empty share", "steps, offloaded"])
def test_two_ranks_step_score_and_send_as_one(
    two: dict[str, list[Any]], model: Path, tied: Path, rows: DataProto, name: str
) -> None:
    folder = tied if "tied" in name else model
    metrics, weights, scored = jobs.train(0, 1, folder, rows, [ROWS], STEPS, {})
    scores = torch.cat([rank[2] for rank in two[name]])
    torch.testing.assert_close(scores, scored, rtol=1e-3, atol=1e-3)
    for rank_metrics, rank_weights, _ in two[name]:
        assert rank_metrics == two[name][0][0]
        for step, expected in enumerate(metrics):
            assert rank_metrics[step] == pytest.approx(expected, rel=1e-3, abs=1e-4)
        assert list(rank_weights) == list(weights)
        for tensor_name, tensor in weights.items():
            torch.testing.assert_close(rank_weights[tensor_name], tensor, rtol=1e-3, atol=1e-3)


def test_the_weights_of_a_tied_model_carry_both_names(two: dict[str, list[Any]], tied: Path) -> None:
    weights = two["steps, tied"][1][1]
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    assert list(weights) == list(AutoModelForCausalLM.from_pretrained(tied).state_dict())


def test_two_ranks_of_a_mixture_of_experts_have_the_gradients_of_one(
    two: dict[str, list[Any]], experts: Path, rows: DataProto
) -> None:
    expected = one(experts, rows)
    for found in two["experts"]:
        assert distance(found, expected) < 1e-6


def test_weights_of_experts_are_sent_as_the_folder_names_them(two: dict[str, list[Any]], experts: Path) -> None:
    expected = load_file(experts / "model.safetensors")
    for _, weights, _ in two["weights of experts"]:
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_bf16_computes_nearly_the_same_and_sends_bf16(two: dict[str, list[Any]]) -> None:
    exact, low = two["steps"][0][0][0], two["steps, bf16"][0][0][0]
    assert low["mean_log_prob"] == pytest.approx(exact["mean_log_prob"], rel=0.02)
    assert low["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)
    assert low["grad_norm"] != exact["grad_norm"]
    assert {tensor.dtype for tensor in two["steps, bf16"][0][1].values()} == {torch.bfloat16}


def test_a_critic_over_two_ranks_has_the_values_of_one(two: dict[str, list[Any]], model: Path, rows: DataProto) -> None:
    expected = jobs.critic_values(0, 1, model, rows, [ROWS])
    torch.testing.assert_close(torch.cat(two["critic"]), expected, rtol=0, atol=1e-5)
    assert float(expected.abs().max()) > 0.1


def test_copies_of_a_sharded_model_side_by_side_have_the_gradients_of_one(
    model: Path, rows: DataProto, tmp_path: Path
) -> None:
    work: dict[str, Any] = {
        str(until_last): (
            jobs.gradients_of_share,
            (
                model,
                rows,
                [3, 0, 2, 2],
                {"strategy": {"fsdp_size": 2, "reduce_scatter_during_grad_accumulation": until_last}},
            ),
        )
        for until_last in (True, False)
    }
    expected = one(model, rows)
    for found in run_ranks(work, 4, tmp_path).values():
        assert all(distance(of_rank, expected) < 1e-6 for of_rank in found)
