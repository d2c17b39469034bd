"""What a role's config asks for that FSDP2 cannot do, found without torch."""

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from transformers import AutoModelForCausalLM

from roll_core.backend import Availability
from roll_core.context import WorkerContext
from roll_core.errors import ConfigError, PluginError
from roll_core.platforms.cpu import CpuPlatform
from roll_core.training import ModelPatch
from roll_core.training.fsdp2 import Fsdp2Strategy
from roll_core.training.fsdp2_config import Fsdp2Config, WrapPolicy
from roll_core.training.patches import apply_patch, requested_patches
from roll_core.training.process_group import join, mesh
from roll_core.training.shard import shard, units
from tests.training.support import role, strategy_for, write_model


def found(**keys: Any) -> list[str]:
    return [str(problem) for problem in Fsdp2Strategy.problems(role(Path("model"), **keys), CpuPlatform())]


def test_the_usual_has_no_problem() -> None:
    strategy = {"fsdp_size": 16, "param_dtype": "bf16", "reduce_dtype": "float32", "reshard_after_forward": True}
    assert found(strategy=strategy | {"offload_policy": True, "wrap_policy": {"wrap_embeddings": True}}) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"strategy": {"ep_size": 2}}, "strategy_config.ep_size: expert parallelism is not available in fsdp2"),
        ({"strategy": {"efsdp_size": 2}}, "strategy_config.efsdp_size: expert parallelism is not available in fsdp2"),
        ({"strategy": {"moe_use_grouped_mm": True}}, "grouped expert kernels are chosen by the model"),
        ({"strategy": {"async_save_ckpt": True}}, "it is never written in the background"),
        ({"strategy": {"fsdp_sise": 2}}, "strategy_config.fsdp_sise: Extra inputs are not permitted"),
        ({"strategy": {"wrap_policy": {"wrap_embedding": True}}}, "strategy_config.wrap_policy.wrap_embedding"),
        ({"strategy": {"param_dtype": "int8"}}, "strategy_config.param_dtype: Input should be '"),
        ({"strategy": {"param_dtype": "fp16"}}, "training in float16 needs loss scaling"),
        ({"model_args": {"dtype": "fp16"}}, "model_args.dtype: training in float16 needs loss scaling"),
        ({"strategy": {"fsdp_size": 2}, "world_size": 3}, "strategy_config.fsdp_size: must divide the role's 3 ranks"),
        ({"strategy": {"wrap_policy": {"moe_experts": ["Qwen3MoeMLP"]}}}, "wrap_policy.moe_experts: experts that are"),
        ({"strategy": {"apply_tiled_mlp": True}}, "strategy_config.apply_tiled_mlp: no model patch named 'tiled_mlp'"),
        ({"strategy": {"apply_expert_patch": True}}, "no model patch named 'expert_patch'"),
        ({"model_args": {"attn_implementation": "fa2"}}, "platform 'cpu' does not offer 'flash_attention_2'"),
        ({"model_args": {"model_type": "trl"}}, "fsdp2 loads causal language models"),
        ({"model_args": {"lora_target": "all-linear"}}, "model_args.lora_target: fsdp2 trains whole models"),
        ({"model_args": {"ulysses_size": 2}}, "fsdp2 does not split sequences over ranks"),
        ({"use_sequence_packing": True}, "use_sequence_packing: fsdp2 sorts rows by length"),
        ({"router_replay": {"mode": "R3"}}, "router_replay.mode: fsdp2 does not replay expert choices"),
        ({"training_args": {"lr_scheduler_type": "reduce_lr_on_plateau"}}, "lr_scheduler_type: must be one of linear"),
        ({"training_args": {"lr_scheduler_type": "cosin"}}, "lr_scheduler_type: must be one of linear"),
    ],
)
def test_what_cannot_be_done_is_a_problem_and_never_left_out(
    keys: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLL_PLUGINS", "")
    problems = found(**keys)
    assert len(problems) == 1 and expected in problems[0]


def test_several_problems_are_found_together() -> None:
    assert len(found(strategy={"ep_size": 2, "async_save_ckpt": True}, model_args={"ulysses_size": 4})) == 3


def test_checking_a_config_loads_nothing_heavy() -> None:
    code = (
        "import sys; from roll_core.training.fsdp2 import Fsdp2Strategy;"
        "from roll_core.platforms.cpu import CpuPlatform;"
        "from roll_core.config.schema import WorkerConfig;"
        "config = {'strategy_args': {'strategy_config': {'apply_tiled_mlp': True}}};"
        "Fsdp2Strategy.problems(WorkerConfig.model_validate(config), CpuPlatform());"
        "print([name for name in ('torch', 'transformers', 'ray', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Doubling(ModelPatch):
    """Doubles one weight; knows only models of four layers."""

    name: ClassVar[str] = "doubling"

    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        layers = model_config.num_hidden_layers
        return Availability(layers == 2, f"it has {layers} layers, and the patch knows 2")

    def apply(self, model: Any, options: Any) -> None:
        model.lm_head.weight.data.mul_(options["factor"])


def test_a_patch_changes_the_model_with_its_options(model: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(model)
    before = plain.lm_head.weight.clone()
    apply_patch(plain, Doubling(), {"factor": 2.0})
    assert plain.lm_head.weight.equal(before * 2)


def test_a_patch_that_does_not_fit_is_an_error_with_its_reason(tmp_path: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(write_model(tmp_path, num_hidden_layers=3))
    with pytest.raises(PluginError) as raised:
        apply_patch(plain, Doubling(), {"factor": 2.0})
    expected = "model patch 'doubling' does not fit Qwen3ForCausalLM: it has 3 layers, and the patch knows 2"
    assert str(raised.value) == expected


def test_patches_are_asked_for_by_key_with_their_options() -> None:
    config = Fsdp2Config(apply_tiled_mlp=True, tiled_num_shards=8, model_type="qwen3")
    assert requested_patches(config) == {"tiled_mlp": {"num_shards": 8, "model_type": "qwen3"}}


def test_a_patch_that_no_plugin_brings_stops_the_set_up(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLL_PLUGINS", "")
    with pytest.raises(PluginError, match="no model patch named 'tiled_mlp'"):
        strategy_for(role(model, strategy={"apply_tiled_mlp": True}))


def names_of_units(folder: Path, **policy: Any) -> list[str]:
    plain = AutoModelForCausalLM.from_pretrained(folder)
    names = {module: name for name, module in plain.named_modules()}
    return [names[module] for module in units(plain, WrapPolicy(**policy))]


def test_units_are_the_models_own_layers_by_default(model: Path) -> None:
    assert names_of_units(model) == ["model.layers.0", "model.layers.1"]


def test_of_classes_inside_each_other_only_the_innermost_become_units(model: Path) -> None:
    chosen = names_of_units(model, transformer_layer_cls_to_wrap=["Qwen3DecoderLayer", "Qwen3MLP"])
    assert chosen == ["model.layers.0.mlp", "model.layers.1.mlp"]


def test_embeddings_and_output_projection_become_units_when_asked(model: Path) -> None:
    chosen = names_of_units(model, wrap_embeddings=True, wrap_lm_output=True)
    assert chosen == ["model.embed_tokens", "model.layers.0", "model.layers.1", "lm_head"]


def test_tied_embeddings_cannot_be_units(tied: Path) -> None:
    with pytest.raises(ConfigError, match="input and output embeddings are one tensor and must stay in one unit"):
        names_of_units(tied, wrap_embeddings=True)


def test_a_class_that_the_model_lacks_is_an_error_that_shows_what_it_has(model: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        names_of_units(model, transformer_layer_cls_to_wrap=["LlamaDecoderLayer"])
    assert "wrap_policy.transformer_layer_cls_to_wrap: the model has no LlamaDecoderLayer" in str(raised.value)
    assert "Qwen3DecoderLayer" in str(raised.value)


def test_separate_experts_need_the_patch_where_torch_cannot_sum_unused_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FSDPModule, "set_reduce_scatter_unused_params", raising=False)
    layer = torch.nn.Module()
    layer.experts = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
    model = torch.nn.Sequential(layer)
    owns_group = join(CpuPlatform(), WorkerContext("test"))
    config = Fsdp2Config(wrap_policy=WrapPolicy(transformer_layer_cls_to_wrap=["Linear"]))
    try:
        with pytest.raises(ConfigError, match=r"apply_expert_patch: .* runs each expert only where it has tokens"):
            shard(model, mesh(CpuPlatform(), 1, 1), config, torch.float32)
    finally:
        if owns_group:
            torch.distributed.destroy_process_group()
