"""Feed-forward layers by slices: the same numbers as the whole, from less memory."""

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from patch_ranks import expert_model, step, whole_gradients
from roll_ascend.patches.moe_expert_patch import MoeExpertPatch
from roll_ascend.patches.tiled_mlp import TiledMlp, tile
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

from roll_core.errors import PluginError
from roll_core.training.patches import apply_patch

FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
TOKENS = torch.randint(0, 61, (2, 7), generator=torch.Generator().manual_seed(0))
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "tiled_mlp.py"


def make(family: str) -> Any:
    """A random model of two layers in float64."""
    torch.manual_seed(5)
    if family == "qwen3_moe":
        return expert_model(mlp_only_layers=[0]).double()
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = FAMILIES[family](**sizes, num_key_value_heads=2, vocab_size=61, initializer_range=0.2)
    return AutoModelForCausalLM.from_config(config).double()


def tiled(model: Any, num_shards: int, **options: Any) -> Any:
    """A copy of the model with the patch."""
    model = copy.deepcopy(model)
    apply_patch(model, TiledMlp(), {"num_shards": num_shards, **options})
    return model


# 14 tokens: divisible, not divisible, fewer slices than asked for (14 in slices of 2 are 7), more slices than tokens.
@pytest.mark.parametrize("num_shards", [1, 2, 3, 9, 100])
@pytest.mark.parametrize("family", [*FAMILIES, "qwen3_moe"])
def test_outputs_and_gradients_are_those_of_the_unpatched_model(family: str, num_shards: int) -> None:
    model = make(family)
    changed = tiled(model, num_shards)
    torch.testing.assert_close(step(changed, TOKENS), step(model, TOKENS), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(whole_gradients(changed), whole_gradients(model), rtol=1e-10, atol=1e-12)


def test_both_patches_together_change_no_number() -> None:
    model = expert_model().double()
    changed = copy.deepcopy(model)
    for patch in (MoeExpertPatch(), TiledMlp()):
        apply_patch(changed, patch, {"num_shards": 2})
    torch.testing.assert_close(step(changed, TOKENS), step(model, TOKENS), rtol=1e-12, atol=1e-12)
    for name, gradient in whole_gradients(model).items():
        if "experts" not in name:
            torch.testing.assert_close(dict(changed.named_parameters())[name].grad, gradient, rtol=1e-10, atol=1e-12)


def test_gradients_that_are_there_are_added_to() -> None:
    model = make("qwen3")
    changed = tiled(model, 4)
    for one in (model, changed):
        step(one, TOKENS)
        step(one, TOKENS.flip(0))
    torch.testing.assert_close(whole_gradients(changed), whole_gradients(model), rtol=1e-10, atol=1e-12)


def test_with_recomputed_layers_the_gradients_stay() -> None:
    model = make("qwen3")
    changed = tiled(model, 3).train()
    changed.gradient_checkpointing_enable({"use_reentrant": False})
    step(model, TOKENS)
    step(changed, TOKENS)
    torch.testing.assert_close(whole_gradients(changed), whole_gradients(model), rtol=1e-10, atol=1e-12)


def test_frozen_layers_pass_gradients_on_and_get_none() -> None:
    model = make("qwen3")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("mlp" not in name)
    changed = tiled(model, 3)
    step(model, TOKENS)
    step(changed, TOKENS)
    expected = whole_gradients(model)
    assert expected["model.layers.0.mlp.up_proj.weight"] is None
    torch.testing.assert_close(whole_gradients(changed), expected, rtol=1e-10, atol=1e-12)


def test_slices_are_summed_in_float32_where_the_model_computes_in_bfloat16() -> None:
    torch.manual_seed(2)
    layer = make("qwen3").model.layers[0].mlp.float()
    hidden = torch.randn(512, 32)
    errors = []
    for num_shards in (None, 64):
        changed = copy.deepcopy(layer).bfloat16()
        if num_shards:
            tile(changed, num_shards)
        gradients = []
        for one in (layer, changed):
            one.zero_grad()
            one(hidden.to(one.up_proj.weight.dtype)).sum().backward()
            gradients.append(one.up_proj.weight.grad.float())
        errors.append(float((gradients[1] - gradients[0]).norm() / gradients[0].norm()))
    whole, in_slices = errors
    assert in_slices < 1.2 * whole


def test_scoring_works_without_gradients() -> None:
    model = make("qwen3")
    with torch.no_grad():
        torch.testing.assert_close(tiled(model, 4)(TOKENS).logits, model(TOKENS).logits, rtol=1e-12, atol=1e-12)


def test_a_second_time_changes_the_number_of_slices_only() -> None:
    model = tiled(make("qwen3"), 4)
    before = step(model, TOKENS)
    apply_patch(model, TiledMlp(), {"num_shards": 2})
    forward = model.model.layers[0].mlp.forward
    assert forward.keywords["num_shards"] == 2 and "num_shards" not in getattr(
        forward.keywords["whole"], "keywords", {}
    )
    torch.testing.assert_close(step(model, TOKENS), before, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("recomputes", [False, True])
def test_the_peak_of_activations_is_lower_the_more_slices_there_are(recomputes: bool) -> None:
    spec = importlib.util.spec_from_file_location("tiled_mlp_benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    tokens = torch.zeros(1, 1024, dtype=torch.long)
    peaks = [
        benchmark.peak_bytes(benchmark.step_of(benchmark.make("dense", num, recomputes=recomputes), tokens))
        for num in (None, 2, 8)
    ]
    assert peaks[0] > peaks[1] > peaks[2]
    assert peaks[2] < 0.75 * peaks[0]


def test_a_model_of_another_type_is_an_error_with_its_reason() -> None:
    model = AutoModelForCausalLM.from_config(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=61))
    with pytest.raises(PluginError) as raised:
        apply_patch(model, TiledMlp(), {"num_shards": 4, "model_type": None})
    assert str(raised.value) == (
        "model patch 'tiled_mlp' does not fit GPT2LMHeadModel: "
        "it is for models of type llama, qwen2, qwen3, qwen3_moe, not gpt2"
    )


def test_a_model_type_that_the_config_leaves_out_is_an_error_with_its_reason() -> None:
    with pytest.raises(PluginError) as raised:
        tiled(make("qwen3"), 4, model_type=["llama", "qwen2_5"])
    assert str(raised.value) == (
        "model patch 'tiled_mlp' does not fit Qwen3ForCausalLM: "
        "the model is of type qwen3, and strategy_config.model_type allows llama, qwen2_5"
    )


def test_the_guides_name_of_a_model_type_is_understood() -> None:
    assert tiled(make("qwen2"), 4, model_type="qwen2_5").model.layers[0].mlp.forward.keywords["num_shards"] == 4
