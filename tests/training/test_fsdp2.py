"""One rank: scoring and steps against plain transformers and plain torch."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from roll_core.data import DataProto
from roll_core.errors import ConfigError
from roll_core.training import TrainPlan, forward
from roll_core.training.fsdp2 import Fsdp2Strategy
from tests.training.support import (
    SquaredValueLoss,
    advantage_loss,
    batch,
    distance,
    gradients,
    role,
    strategy_for,
    write_model,
)


@pytest.fixture(scope="module", params=["qwen3", "llama", "tied"])
def any_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family = "qwen3" if request.param == "tied" else request.param
    return write_model(tmp_path_factory.mktemp(request.param), tied=request.param == "tied", family=family)


def start(opened: list[Fsdp2Strategy], model: Path, plan: TrainPlan | None = None, **keys: Any) -> Fsdp2Strategy:
    opened.append(strategy_for(role(model, **keys), plan=plan))
    return opened[-1]


def expected_scores(model: Path, rows: DataProto, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """One row at a time through the plain model, with no padding at all."""
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    log_probs, entropy = torch.zeros(rows["responses"].shape), torch.zeros(rows["responses"].shape)
    for row in range(len(rows)):
        prompt, response = int(rows["prompt_lengths"][row]), int(rows["response_lengths"][row])
        tokens = torch.cat([rows["prompts"][row][-prompt:], rows["responses"][row][:response]])
        with torch.no_grad():
            every = (plain(tokens[None]).logits[0, prompt - 1 : -1] / temperature).log_softmax(-1)
        log_probs[row, :response] = every.gather(1, tokens[prompt:, None])[:, 0]
        entropy[row, :response] = torch.distributions.Categorical(logits=every).entropy()
    return log_probs, entropy


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_equal_a_plain_forward_of_each_row(
    any_model: Path, opened: list[Fsdp2Strategy], temperature: float
) -> None:
    rows = batch(11)
    scored = start(opened, any_model).log_probs(rows, temperature=temperature, entropy=True)
    log_probs, entropy = expected_scores(any_model, rows, temperature)
    torch.testing.assert_close(scored["log_probs"], log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(scored["entropy"], entropy, rtol=0, atol=1e-5)
    assert float(scored["log_probs"].std()) > 0.5


def test_entropy_is_left_out_unless_asked_for(model: Path, opened: list[Fsdp2Strategy]) -> None:
    assert start(opened, model).log_probs(batch(2)).columns == ["log_probs"]


def test_no_rows_score_to_no_rows(model: Path, opened: list[Fsdp2Strategy]) -> None:
    assert start(opened, model).log_probs(batch(3).slice(0, 0))["log_probs"].shape == (0, 9)


def test_scores_do_not_depend_on_how_the_vocabulary_is_cut(
    model: Path, opened: list[Fsdp2Strategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, strategy = batch(5), start(opened, model, TrainPlan(4))
    loss = advantage_loss(rows, entropy_weight=0.1)
    whole, whole_gradients = strategy.log_probs(rows, entropy=True), gradients(strategy, rows, loss)
    monkeypatch.setattr(forward, "PIECE_ENTRIES", 61 * 4)
    cut, cut_gradients = strategy.log_probs(rows, entropy=True), gradients(strategy, rows, loss)
    assert torch.equal(whole["log_probs"], cut["log_probs"]) and torch.equal(whole["entropy"], cut["entropy"])
    assert distance(cut_gradients, whole_gradients) < 1e-6


CUTS = {
    "one row each": {"training_args": {"per_device_train_batch_size": 1}},
    "three rows each": {"training_args": {"per_device_train_batch_size": 3}},
    "a token budget": {"use_dynamic_batching_in_train": True, "max_tokens_per_microbatch_in_train": 48},
    "a tight token budget": {"use_dynamic_batching_in_train": True, "max_tokens_per_microbatch_in_train": 16},
    "one, with recomputed activations": {
        "training_args": {"per_device_train_batch_size": 11},
        "model_args": {"disable_gradient_checkpointing": False},
    },
    "three rows each, in FSDP2 units": {"strategy": {"offload_policy": True}},
}


@pytest.mark.parametrize("name", CUTS)
def test_gradients_equal_plain_torch_for_any_cut_into_micro_batches(
    any_model: Path, opened: list[Fsdp2Strategy], name: str
) -> None:
    rows = batch(11)
    loss = advantage_loss(rows, entropy_weight=0.1)
    found = gradients(start(opened, any_model, TrainPlan(4), **CUTS[name]), rows, loss)
    assert distance(found, plain_gradients(any_model, rows, loss.num_tokens)) < 1e-6


def plain_gradients(model: Path, rows: DataProto, num_tokens: int) -> dict[str, torch.Tensor]:
    """Of the same loss, row by row through the plain model."""
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for row in range(len(rows)):
        prompt, response = int(rows["prompt_lengths"][row]), int(rows["response_lengths"][row])
        tokens = torch.cat([rows["prompts"][row][-prompt:], rows["responses"][row][:response]])
        every = plain(tokens[None]).logits[0, prompt - 1 : -1].log_softmax(-1)
        chosen, entropy = every.gather(1, tokens[prompt:, None])[:, 0], -(every.exp() * every).sum(-1)
        advantage = rows["advantages"][row, :response]
        ((-advantage * chosen - 0.1 * entropy).sum() / num_tokens).backward()
    return {name: parameter.grad for name, parameter in plain.named_parameters() if parameter.grad is not None}


def test_a_step_equals_plain_adamw_with_clipping(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(6)
    strategy = start(
        opened, model, TrainPlan(10, max_grad_norm=0.5), training_args={"weight_decay": 0.1, "adam_beta2": 0.95}
    )
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adam = torch.optim.AdamW(plain.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    for name, gradient in gradients(strategy, rows, advantage_loss(rows)).items():
        plain.get_parameter(name).grad = gradient
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
    adam.step()
    metrics = strategy.train_step(rows, advantage_loss(rows))
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-6) and float(norm) > 0.5
    for name, tensor in strategy.model.tensors().items():
        torch.testing.assert_close(tensor, plain.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_metrics_are_means_over_tokens_and_sums_over_shares(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(7)
    log_probs, _ = expected_scores(model, rows, 1.0)
    mask = rows["response_mask"]
    per_token = (-rows["advantages"] * log_probs)[mask]
    metrics = start(opened, model, TrainPlan(10)).train_step(rows, advantage_loss(rows))
    assert metrics["mean_log_prob"] == pytest.approx(float(log_probs[mask].mean()), rel=1e-5)
    assert metrics["lowest"] == pytest.approx(float(per_token.min()), rel=1e-5)
    assert metrics["loss"] == pytest.approx(float(per_token.mean()), rel=1e-4, abs=1e-5)
    assert metrics["skipped_steps"] == 0.0


def test_the_temperature_of_a_batch_scales_its_logits(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(7)
    rows.meta_info["temperature"] = 0.6
    log_probs, _ = expected_scores(model, rows, 0.6)
    metrics = start(opened, model, TrainPlan(10)).train_step(rows, advantage_loss(rows))
    assert metrics["mean_log_prob"] == pytest.approx(float(log_probs[rows["response_mask"]].mean()), rel=1e-5)


def test_a_gradient_that_is_not_finite_moves_neither_weights_nor_schedule(
    model: Path, opened: list[Fsdp2Strategy]
) -> None:
    rows = batch(5)
    broken = rows.with_columns(advantages=rows["advantages"].clone().fill_(float("nan")))
    strategy = start(opened, model, TrainPlan(10), training_args={"lr_scheduler_type": "linear"})
    before = {name: tensor.clone() for name, tensor in strategy.model.tensors().items()}
    metrics = strategy.train_step(broken, advantage_loss(rows))
    assert metrics["skipped_steps"] == 1.0 and math.isnan(metrics["grad_norm"])
    assert all(torch.equal(before[name], tensor) for name, tensor in strategy.model.tensors().items())
    after = strategy.train_step(rows, advantage_loss(rows))
    assert after["lr"] == metrics["lr"] == 1e-2 and after["skipped_steps"] == 0.0 and math.isfinite(after["grad_norm"])
    fresh = start(opened, model, TrainPlan(10), training_args={"lr_scheduler_type": "linear"})
    assert fresh.train_step(rows, advantage_loss(rows)) == after


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"lr_scheduler_type": "linear", "warmup_steps": 2}, [0.0, 0.5, 1.0, 2 / 3, 1 / 3, 0.0]),
        ({"lr_scheduler_type": "linear", "warmup_ratio": 0.4}, [0.0, 0.5, 1.0, 2 / 3, 1 / 3, 0.0]),
        ({"lr_scheduler_type": "linear", "warmup_steps": 1, "warmup_ratio": 0.9}, [0.0, 1.0, 0.75, 0.5, 0.25, 0.0]),
        ({"lr_scheduler_type": "cosine"}, [0.5 + 0.5 * math.cos(math.pi * step / 5) for step in range(6)]),
        ({"lr_scheduler_type": "constant"}, [1.0] * 6),
    ],
)
def test_the_rate_of_each_step_follows_the_schedule(
    model: Path, opened: list[Fsdp2Strategy], arguments: dict[str, Any], expected: list[float]
) -> None:
    rows = batch(2)
    strategy = start(opened, model, TrainPlan(5), training_args=arguments | {"learning_rate": 0.02})
    rates = [strategy.train_step(rows, advantage_loss(rows))["lr"] for _ in range(6)]
    assert rates == pytest.approx([0.02 * share for share in expected])


def test_weights_are_those_of_the_folder_under_each_name_in_buckets(
    any_model: Path, opened: list[Fsdp2Strategy]
) -> None:
    expected = AutoModelForCausalLM.from_pretrained(any_model, dtype=torch.float32).state_dict()
    buckets = list(start(opened, any_model).weights(8000))
    assert [name for bucket in buckets for name, _ in bucket] == list(expected)
    assert all(torch.equal(expected[name], tensor) for bucket in buckets for name, tensor in bucket)
    assert all(len(bucket) == 1 or sum(tensor.nbytes for _, tensor in bucket) <= 8000 for bucket in buckets)
    assert 1 < len(buckets) < len(expected)


def test_a_model_that_trains_in_bf16_keeps_float32_weights_and_sends_bf16(
    model: Path, opened: list[Fsdp2Strategy]
) -> None:
    rows = batch(6)
    strategy = start(opened, model, TrainPlan(10), model_args={"dtype": "bf16"})
    metrics = strategy.train_step(rows, advantage_loss(rows))
    exact = start(opened, model, TrainPlan(10)).train_step(rows, advantage_loss(rows))
    assert metrics["mean_log_prob"] == pytest.approx(exact["mean_log_prob"], rel=0.02)
    assert metrics["mean_log_prob"] != exact["mean_log_prob"]
    assert {tensor.dtype for tensor in strategy.model.tensors().values()} == {torch.float32}
    assert {tensor.dtype for bucket in strategy.weights(1 << 20) for _, tensor in bucket} == {torch.bfloat16}


def test_offload_and_reload_change_no_number(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(5)
    moved, still = start(opened, model, TrainPlan(10)), start(opened, model, TrainPlan(10))
    for _ in range(2):
        moved.offload()
        moved.reload()
        assert moved.train_step(rows, advantage_loss(rows)) == still.train_step(rows, advantage_loss(rows))


def test_a_critic_gives_the_value_of_the_state_before_each_token(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(7)
    critic = start(opened, model, TrainPlan(30), name="critic")
    values = critic.values(rows)["values"]
    weights = dict(item for bucket in critic.weights(1 << 20) for item in bucket)
    plain = AutoModelForTokenClassification.from_pretrained(model, dtype=torch.float32, num_labels=1).eval()
    plain.load_state_dict(weights)
    for row in range(len(rows)):
        prompt, response = int(rows["prompt_lengths"][row]), int(rows["response_lengths"][row])
        tokens = torch.cat([rows["prompts"][row][-prompt:], rows["responses"][row][:response]])
        with torch.no_grad():
            expected = plain(tokens[None]).logits[0, prompt - 1 : -1, 0]
        torch.testing.assert_close(values[row, :response], expected, rtol=0, atol=1e-5)
        assert not values[row, response:].any()


def test_a_critic_learns_the_returns_it_is_shown(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(7)
    rows = rows.with_columns(returns=torch.where(rows["response_mask"], rows["advantages"].sign(), 0.0))
    loss = SquaredValueLoss(int(rows["response_mask"].sum()))
    critic = start(opened, model, TrainPlan(30), name="critic")
    losses = [critic.train_step(rows, loss)["loss"] for _ in range(30)]
    assert losses[-1] < 0.2 * losses[0]


def test_two_critics_of_one_seed_start_alike(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(3)
    first, second = (start(opened, model, name="critic").values(rows)["values"] for _ in range(2))
    assert torch.equal(first, second)


def test_an_actor_has_no_values(model: Path, opened: list[Fsdp2Strategy]) -> None:
    with pytest.raises(NotImplementedError, match="role 'actor_train' is no critic"):
        start(opened, model).values(batch(2))


def test_a_role_without_a_plan_cannot_be_trained(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(2)
    with pytest.raises(RuntimeError, match="was set up without a plan"):
        start(opened, model).train_step(rows, advantage_loss(rows))


def test_a_loss_of_values_is_refused_by_an_actor_and_one_of_tokens_by_a_critic(
    model: Path, opened: list[Fsdp2Strategy]
) -> None:
    rows = batch(2)
    with pytest.raises(ValueError, match="role 'actor_train' gives tokens, and SquaredValueLoss is a loss of values"):
        start(opened, model, TrainPlan(4)).train_step(rows, SquaredValueLoss(1))
    with pytest.raises(ValueError, match="role 'critic' gives values, and AdvantageLoss is a loss of tokens"):
        start(opened, model, TrainPlan(4), name="critic").train_step(rows, advantage_loss(rows))


def test_a_mini_batch_without_rows_is_an_error(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(2)
    with pytest.raises(ValueError, match="without a row on any rank"):
        start(opened, model, TrainPlan(4)).train_step(rows.slice(0, 0), advantage_loss(rows))


def test_frozen_modules_keep_their_weights(model: Path, opened: list[Fsdp2Strategy]) -> None:
    rows = batch(5)
    strategy = start(
        opened, model, TrainPlan(4), model_args={"freeze_module_prefix": "model.embed_tokens, model.layers.0"}
    )
    before = {name: tensor.clone() for name, tensor in strategy.model.tensors().items()}
    strategy.train_step(rows, advantage_loss(rows))
    changed = {name for name, tensor in strategy.model.tensors().items() if not torch.equal(before[name], tensor)}
    assert changed and all("layers.1" in name or name in ("model.norm.weight", "lm_head.weight") for name in changed)


@pytest.mark.parametrize(
    ("model_args", "message"),
    [
        ({"model_name_or_path": "no/such/folder"}, "it has no config.json"),
        ({"freeze_module_prefix": "model.layer."}, "no parameter begins with 'model.layer.'"),
        ({"model_config_kwargs": {"rope_thetaa": 1}}, "Qwen3Config has no key 'rope_thetaa'"),
    ],
)
def test_what_does_not_fit_the_model_is_an_error_that_names_the_key(
    model: Path, opened: list[Fsdp2Strategy], model_args: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        start(opened, model, TrainPlan(4), model_args=model_args)


def test_the_saved_folder_loads_as_the_model_that_was_trained(
    any_model: Path, opened: list[Fsdp2Strategy], tmp_path: Path
) -> None:
    rows = batch(5)
    strategy = start(opened, any_model, TrainPlan(4))
    strategy.train_step(rows, advantage_loss(rows))
    strategy.save(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    for bucket in strategy.weights(1 << 20):
        for name, tensor in bucket:
            assert torch.equal(loaded[name], tensor)
    assert (tmp_path / "tokenizer.json").read_text(encoding="utf-8") == "{}"
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    original = json.loads((any_model / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == original["architectures"] and config["dtype"] == "float32"


def test_only_the_model_folder_is_written_when_asked(model: Path, opened: list[Fsdp2Strategy], tmp_path: Path) -> None:
    start(opened, model, TrainPlan(4), strategy={"save_only_model": True}).save(tmp_path)
    assert (tmp_path / "model.safetensors").is_file() and not (tmp_path / "dcp").exists()
