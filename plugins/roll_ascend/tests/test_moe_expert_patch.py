"""The patch for experts: the same numbers in both layouts, and ranks that stay in step where they would not."""

import copy
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import patch_ranks
import pytest
import torch
import transformers
from patch_ranks import NUM_EXPERTS, expert_model, step, whole_gradients, with_routed_experts
from roll_ascend.patches.moe_expert_patch import LockstepExperts, MoeExpertPatch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.errors import PluginError
from roll_core.platforms.cpu import CpuPlatform
from roll_core.training import TrainPlan
from roll_core.training.fsdp2 import Fsdp2Strategy
from roll_core.training.patches import apply_patch

SUPPORT = Path(patch_ranks.__file__)
TOKENS = torch.randint(0, 61, (2, 7), generator=torch.Generator().manual_seed(0))
FAMILIES = {"qwen3": Qwen3Config, "llama": LlamaConfig}


def patched(model: Any) -> Any:
    """A copy of the model with the patch."""
    model = copy.deepcopy(model)
    apply_patch(model, MoeExpertPatch(), {})
    return model


def as_modules(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients of fused experts under the names they have as modules."""
    found = {}
    for name, gradient in gradients.items():
        base, _, leaf = name.rpartition(".experts.")
        if leaf not in ("gate_up_proj", "down_proj"):
            found[name] = gradient
            continue
        for number, one in enumerate(gradient):
            parts = {"down_proj": one} if leaf == "down_proj" else dict(zip(("gate_proj", "up_proj"), one.chunk(2)))
            found |= {f"{base}.experts.{number}.{part}.weight": rows for part, rows in parts.items()}
    return found


@pytest.mark.parametrize("layout", ["of this transformers", "experts as modules"])
def test_outputs_and_gradients_are_those_of_the_unpatched_model(layout: str) -> None:
    model = expert_model().double()
    if layout == "experts as modules":
        model = with_routed_experts(model)
    changed = patched(model)
    torch.testing.assert_close(step(changed, TOKENS), step(model, TOKENS), rtol=1e-12, atol=1e-12)
    expected, found = as_modules(whole_gradients(model)), whole_gradients(changed)
    # Unpatched, an expert without tokens has no gradient; patched, it has one of zeros.
    expected = {name: torch.zeros_like(found[name]) if one is None else one for name, one in expected.items()}
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


class Qwen3MoeSparseMoeBlock(torch.nn.Module):
    """A block as in transformers 4.57: a plain gate, experts as modules, and a loop over those that have tokens."""

    def __init__(self, norm_topk_prob: bool) -> None:
        super().__init__()
        source = with_routed_experts(expert_model()).model.layers[0].mlp
        self.gate = torch.nn.Linear(32, NUM_EXPERTS, bias=False)
        self.gate.weight = torch.nn.Parameter(source.gate.weight.detach().clone())
        self.experts = torch.nn.ModuleList(source.experts)
        self.top_k, self.norm_topk_prob = 2, norm_topk_prob

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = hidden.reshape(-1, hidden.shape[-1])
        logits = self.gate(rows)
        shares, chosen = logits.softmax(-1, dtype=torch.float32).topk(self.top_k)
        if self.norm_topk_prob:
            shares = shares / shares.sum(-1, keepdim=True)
        outputs = [
            sum(share * self.experts[int(one)](row) for share, one in zip(shares[number].to(row.dtype), chosen[number]))
            for number, row in enumerate(rows)
        ]
        return torch.stack(outputs).reshape(hidden.shape), logits


@pytest.mark.parametrize("norm_topk_prob", [True, False])
def test_a_block_that_routes_by_itself_gives_the_same_result_and_logits(norm_topk_prob: bool) -> None:
    plain = Qwen3MoeSparseMoeBlock(norm_topk_prob).double()
    model = torch.nn.Sequential(copy.deepcopy(plain))
    model.config = expert_model().config
    MoeExpertPatch().apply(model, {})
    hidden = torch.randn(2, 5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for block in (plain, model[0]):
        result, _ = block(hidden)
        result.square().sum().backward()
    torch.testing.assert_close(model(hidden), plain(hidden), rtol=1e-12, atol=1e-12)
    expected = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in plain.named_parameters()
    }
    torch.testing.assert_close(whole_gradients(model[0]), expected, rtol=1e-6, atol=1e-9)


def test_every_expert_runs_even_for_one_token() -> None:
    model = patched(expert_model())
    ran: list[str] = []
    for name, module in model.named_modules():
        if type(module).__name__ == "Qwen3MoeMLP":
            module.register_forward_hook(lambda *_, name=name: ran.append(name))
    step(model, TOKENS[:1, :1])
    assert len(ran) == 2 * NUM_EXPERTS and len(set(ran)) == len(ran)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_applied_twice_it_is_applied_once() -> None:
    model = patched(expert_model())
    names = [name for name, _ in model.named_parameters()]
    again = patched(model)
    assert [name for name, _ in again.named_parameters()] == names
    assert step(again, TOKENS).equal(step(model, TOKENS))


def test_router_logits_are_still_there_for_who_asks() -> None:
    model = expert_model()
    for one, other in zip(
        model(TOKENS, output_router_logits=True).router_logits,
        patched(model)(TOKENS, output_router_logits=True).router_logits,
    ):
        torch.testing.assert_close(one, other)


def test_frozen_experts_stay_frozen() -> None:
    model = expert_model().requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in patched(model).parameters())


def test_engines_and_checkpoints_get_the_names_and_values_of_the_unpatched_model(tmp_path: Path) -> None:
    expert_model().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    weights = []
    for is_patched in (False, True):
        strategy = strategy_of(tmp_path / "model", apply_expert_patch=is_patched)
        if is_patched:
            assert isinstance(strategy.model.module.model.layers[0].mlp.experts, LockstepExperts)
        weights.append({name: tensor.clone() for bucket in strategy.weights(1 << 20) for name, tensor in bucket})
        strategy.save(tmp_path / f"patched-{is_patched}")
        strategy.close()
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=0)
    before, after = (
        AutoModelForCausalLM.from_pretrained(tmp_path / folder)(TOKENS).logits for folder in ("model", "patched-True")
    )
    assert before.equal(after)


def strategy_of(model: Path, **strategy_config: Any) -> Fsdp2Strategy:
    """fsdp2_train on one rank."""
    keys = {"strategy_name": "fsdp2_train", "strategy_config": strategy_config}
    model_args = {"model_name_or_path": str(model), "dtype": "fp32", "disable_gradient_checkpointing": True}
    role = WorkerConfig.model_validate({"name": "actor_train", "model_args": model_args, "strategy_args": keys})
    strategy = Fsdp2Strategy(role, CpuPlatform(), WorkerContext("actor_train"))
    strategy.setup(TrainPlan(1))
    return strategy


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_model_without_experts_is_an_error_with_its_reason(family: str) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = AutoModelForCausalLM.from_config(FAMILIES[family](**sizes, num_key_value_heads=2, vocab_size=61))
    with pytest.raises(PluginError) as raised:
        apply_patch(model, MoeExpertPatch(), {})
    assert str(raised.value) == (
        f"model patch 'expert_patch' does not fit {type(model).__name__}: "
        f"it is for models of type qwen3_moe, not {family}"
    )


def test_a_model_whose_layers_are_all_dense_is_an_error_with_its_reason() -> None:
    model = expert_model(mlp_only_layers=[0, 1])
    with pytest.raises(PluginError, match="Qwen3MoeForCausalLM: none of its 2 layers has experts"):
        apply_patch(model, MoeExpertPatch(), {})


def test_an_unknown_layout_of_experts_is_an_error_that_shows_it() -> None:
    model = expert_model()
    model.model.layers[0].mlp.experts = torch.nn.Linear(4, 4)
    with pytest.raises(PluginError) as raised:
        apply_patch(model, MoeExpertPatch(), {})
    assert str(raised.value) == (
        "model patch 'expert_patch' knows no experts such as those of model.layers.0.mlp: weight, bias"
    )


def run_two_ranks(kind: str, folder: Path) -> list[dict[str, Any]]:
    """What each of two processes saw. Neither outlives the test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ranks = [
        subprocess.Popen([sys.executable, str(SUPPORT), str(rank), str(port), kind, str(folder)], env=environ)
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            rank.wait(timeout=200)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


def test_two_ranks_with_unbalanced_routing_train_as_one_process_would(tmp_path: Path) -> None:
    few, many = run_two_ranks("patched", tmp_path)
    assert all(len(layer) == 2 for layer in few["used"]) and all(len(layer) > 2 for layer in many["used"])
    for rank in (few, many):
        assert rank["outputs"] < 1e-5 and rank["gradients"] < 1e-5


def test_without_the_patch_ranks_mix_experts_and_then_wait_for_each_other(tmp_path: Path) -> None:
    """The layout in which it does: experts as modules, each a unit of FSDP2 (`wrap_policy.moe_experts`).

    One layer, forward only. As long as both ranks run equally many experts, gathers pair up and return a weight whose
    halves are of two experts: wrong numbers and no error. Once one rank runs fewer, the other waits in a gather until
    gloo gives up; a collective backend without a timeout would wait for ever. (With more layers gloo sees sizes that
    differ and aborts instead.) Where experts are fused, and where a layer is one unit, nothing goes wrong.
    """
    few, many = run_two_ranks("unpatched", tmp_path)
    assert len(few["used_by_one_token"]) == len(many["used_by_one_token"]) == 2
    assert few["used_by_one_token"] != many["used_by_one_token"]
    assert few["one_token"] > 0.01 and many["one_token"] > 0.01
    assert len(few["used"][0]) < len(many["used"][0])
    assert few["forward"] == "ended" and "forward" not in many
    # The rank that waits is the one with more experts; the other ended its forward and left.
    assert "Timed out waiting" in many["error"] or "closed" in many["error"]
    assert many["after_s"] >= 0.9 * patch_ranks.HANGS_AFTER_S


def test_both_layouts_of_transformers_are_known() -> None:
    experts = expert_model().model.layers[0].mlp.experts
    is_fused = hasattr(experts, "gate_up_proj")
    assert is_fused == (int(transformers.__version__.split(".")[0]) >= 5)
    assert is_fused or isinstance(experts, torch.nn.ModuleList)
