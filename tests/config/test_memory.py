"""The memory estimate against sums done by hand, on models small enough for that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roll_core.config.memory import (
    MicroBatch,
    Need,
    Sharding,
    Training,
    cache_bytes,
    layer_bytes,
    scoring_need,
    training_need,
)
from roll_core.config.memory_devices import on_devices, parse_size
from roll_core.config.memory_engines import Load, hf_need, reserving_need
from roll_core.config.memory_names import PUBLISHED, SAME_AS, published
from roll_core.config.memory_plan import span
from roll_core.config.memory_shapes import ModelShape
from roll_core.config.memory_size import ModelSize, model_size, shape_of
from roll_core.errors import ConfigError

GIB = 2**30
# Per layer: 2*8*8 + 2*8*4 = 192 of attention, 2*8 of norms, 3*8*10 = 240 of the MLP: 448. With 2 layers, embeddings
# and projection of 20*8 each, and the last norm of 8: 2*448 + 320 + 8 = 1224.
SMALL = ModelShape(hidden=8, layers=2, heads=2, key_heads=1, head_dim=4, intermediate=10, vocabulary=20)
SIZE = ModelSize(SMALL.parameters, SMALL, "by hand")
# 3 rows of 4 + 5 - 1 = 8 tokens, 15 of them predicted.
BATCH = MicroBatch(rows=3, prompt=4, response=5)
PLAIN = Sharding(ranks=1, compute_bytes=4, is_sharded=False)


def test_parameters_are_counted() -> None:
    assert SMALL.layer_parameters == 448
    assert SMALL.embedding_parameters == 320
    assert SMALL.parameters == 1224


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("llama-3.1-8b", 8_030_261_248),
    ],
)
def test_published_models_have_as_many_parameters_as_their_files(name: str, parameters: int) -> None:
    assert PUBLISHED[name].parameters == parameters


def test_every_published_name_finds_itself() -> None:
    assert [name for name in (*PUBLISHED, *SAME_AS) if (found := published(name)) is None or found[0] != name] == []


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("/data/models/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen2.5-Math-7B", "qwen2.5-math-7b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1-distill-qwen-32b"),
    ],
)
def test_a_models_name_is_known_with_its_owner_and_its_variant(name: str, known: str) -> None:
    size = model_size(name)
    assert size.source == f"published sizes of {known}"
    assert size.shape is PUBLISHED[SAME_AS.get(known, known)]


def test_a_name_with_its_billions_gives_parameters_and_says_that_the_rest_is_unknown() -> None:
    size = model_size("acme/Falcon-13B-chat")
    assert (size.parameters, size.shape) == (13_000_000_000, None)
    assert "its layers are not known" in size.source
    assert model_size("acme/thing_1.5b").parameters == 1_500_000_000


@pytest.mark.parametrize("name", [None, "", "acme/thing", "acme/Qwen3-A3B", "acme/b7", "/models/checkpoint-100"])
def test_what_says_nothing_is_unknown(name: str | None) -> None:
    assert model_size(name).parameters is None


def test_a_folder_is_read_before_its_name_counts(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 10,
        "vocab_size": 20,
    }
    (folder / "config.json").write_text(json.dumps(config))
    assert model_size(str(folder)).shape == SMALL
    assert model_size(str(folder), {"num_hidden_layers": 3}).parameters == 1224 + 448
    (folder / "config.json").write_text("{}")
    assert model_size(str(folder)).parameters is None


def test_experts_and_tied_embeddings_are_read() -> None:
    config = {
        "model_type": "qwen3_moe",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "head_dim": 4,
        "intermediate_size": 10,
        "moe_intermediate_size": 3,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 20,
        "tie_word_embeddings": True,
    }
    shape = shape_of(config)
    assert shape is not None
    # 4*8*8 + 2*4 of attention, 16 of norms, 8*4 of the router, 4 experts of 3*8*3.
    assert shape.layer_parameters == 264 + 16 + 32 + 288
    assert shape.parameters == 160 + 2 * 600 + 8
    assert shape_of({**config, "kv_lora_rank": 512}) is None


def test_a_layer_keeps_its_norms_attention_and_mlp() -> None:
    # Two norms of 8 * (4 + 2*4), four times the queries' 8 * 4, four times the MLP's 10 * 4.
    assert layer_bytes(SMALL, 4) == 192 + 128 + 160
    assert layer_bytes(SMALL, 2) == 128 + 64 + 80
    assert layer_bytes(SMALL, 4, tiles=4) == 192 + 128


def test_training_on_one_rank_adds_up() -> None:
    need = training_need(SIZE, PLAIN, BATCH, Training(recomputes=False, accumulation=2))
    assert (need.weights, need.gradients, need.optimizer) == (4 * 1224, 4 * 1224, 8 * 1224)
    mask = 3 * 8 * 8 * (1 + 4)
    kept = 2 * 480 * 24 + mask
    table = 24 * 8 * 12 + 15 * 20 * 4 * 3
    assert need.activations == kept + max(table, 24 * (30 + 16) * 4)
    assert need.peak == 16 * 1224 + need.activations
    assert need.host == 0


def test_gradients_of_a_single_micro_batch_are_not_there_when_backward_begins() -> None:
    once = training_need(SIZE, PLAIN, BATCH, Training(recomputes=False, accumulation=1))
    twice = training_need(SIZE, PLAIN, BATCH, Training(recomputes=False, accumulation=2))
    assert once.peak is not None and twice.peak is not None
    assert twice.peak - once.peak == 4 * 1224


def test_checkpointing_keeps_a_layers_input_and_one_layer() -> None:
    need = training_need(SIZE, PLAIN, BATCH, Training(recomputes=True, accumulation=2))
    mask = 3 * 8 * 8 * (1 + 4)
    table, layer = 24 * 8 * 12 + 15 * 20 * 12, 480 * 24 + 24 * (30 + 16) * 4
    assert need.activations == 2 * 8 * 4 * 24 + mask + max(table, layer)


def test_ranks_share_what_is_stored_and_gather_a_layer_at_a_time() -> None:
    split = Sharding(ranks=4, compute_bytes=2)
    need = training_need(SIZE, split, BATCH, Training(recomputes=True, accumulation=2))
    assert need.weights == 1224 + (320 + 2 * 448) * 2
    assert need.optimizer == 2 * 1224
    assert need.gradients == 1224 + 448 * (2 + 4)


def test_offloading_moves_what_is_stored_to_the_host() -> None:
    split = Sharding(ranks=4, compute_bytes=2, is_offloaded=True)
    need = training_need(SIZE, split, BATCH, Training(recomputes=True, accumulation=2))
    assert (need.weights, need.optimizer, need.host) == ((320 + 2 * 448) * 2, 0, 4 * 1224)


def test_scoring_keeps_weights_in_the_precision_it_computes_in() -> None:
    need = scoring_need(SIZE, Sharding(1, 2, is_sharded=False), BATCH, Training(recomputes=False, accumulation=1))
    assert (need.weights, need.gradients, need.optimizer) == (2 * 1224, 0, 0)
    assert need.activations == 24 * 8 * 2 + max(15 * 20 * (2 + 8), 24 * (30 + 16) * 2)


def test_the_cache_of_hf_infer_doubles_until_the_longest_row_fits() -> None:
    assert cache_bytes(SMALL, 4) == 2 * 2 * 4 * 4
    need = hf_need(SIZE, 4, Load(rows=3, prompt=100, longest=250, prefill_tokens=8192))
    # 201 columns do not hold 250 tokens, so they are copied to 403.
    assert need.cache == 3 * (201 + 403) * 64
    assert need.weights == 4 * 1224
    # Reading 300 tokens, with a layer's 480 bytes for each, takes more than the cache does later; beside it come the
    # logits of 3 rows, three times.
    assert need.peak == 4 * 1224 + 300 * (2 * 64 + 480) + 3 * 20 * 12
    later = hf_need(SIZE, 4, Load(rows=3, prompt=100, longest=1000, prefill_tokens=8192))
    assert later.peak == 4 * 1224 + 3 * (807 + 1615) * 64 + 3 * 20 * 12


def test_an_engine_that_reserves_a_share_fills_it_with_cache() -> None:
    need = reserving_need(SIZE, 2, 1, 10, 0.5, 10_000)
    assert (need.weights, need.cache, need.peak) == (2448, 5000 - 2448, 5000)
    assert need.remarks == ("takes 50% of the device, so that at most 79 tokens fit into its cache",)


def test_an_engine_whose_share_holds_no_sequence_needs_more_than_it() -> None:
    need = reserving_need(SIZE, 2, 1, 100, 0.5, 10_000)
    assert need.peak == 2448 + 100 * 32


def test_without_a_shape_the_total_is_unknown_and_the_parts_that_are_known_are_told() -> None:
    need = training_need(ModelSize(1000, None, "by name"), PLAIN, BATCH, Training(recomputes=True, accumulation=2))
    assert (need.weights, need.optimizer, need.activations, need.peak) == (4000, 8000, None, None)
    assert training_need(ModelSize(None, None, "?"), PLAIN, BATCH, Training(True, 2)) == Need(remarks=("?",))


NEEDS = {
    "actor_train": Need(weights=10, gradients=10, optimizer=20, activations=15, cache=0, peak=55),
    "reference": Need(weights=10, gradients=0, optimizer=0, activations=5, cache=0, peak=15),
    "actor_infer": Need(weights=10, gradients=0, optimizer=0, activations=2, cache=60, peak=72),
}
EVERYWHERE = {role: [0, 1] for role in NEEDS}


def test_roles_that_take_turns_need_as_much_as_the_largest_phase() -> None:
    [group] = on_devices(NEEDS, EVERYWHERE, ["actor_infer"], takes_turns=True, device_bytes=80)
    # Training: 55 beside the reference's 10; generation: 72; new weights: 30 + 10 + 10.
    assert (group.devices, group.peak, group.phase, group.verdict) == ((0, 1), 72, "generation", "tight")


def test_roles_that_cannot_leave_add_up() -> None:
    [group] = on_devices(NEEDS, EVERYWHERE, ["actor_infer"], takes_turns=False, device_bytes=80)
    assert (group.peak, group.phase, group.verdict) == (137, "actor_train at work", "does not fit")


def test_devices_with_other_roles_are_other_groups() -> None:
    placed = {"actor_train": [0, 1], "reference": [2, 3], "actor_infer": [2, 3]}
    groups = on_devices(NEEDS, placed, ["actor_infer"], takes_turns=True, device_bytes=None)
    assert [(group.devices, group.roles, group.peak) for group in groups] == [
        ((0, 1), ("actor_train",), 55),
        ((2, 3), ("reference", "actor_infer"), 72),
    ]
    assert {group.verdict for group in groups} == {"memory of a device unknown"}


def test_a_device_whose_known_part_is_too_much_does_not_fit_whatever_is_unknown() -> None:
    needs = {"actor_train": Need(weights=50, gradients=50, optimizer=100)}
    [group] = on_devices(needs, {"actor_train": [0]}, [], takes_turns=True, device_bytes=150)
    assert (group.peak, group.known, group.verdict) == (None, 200, "does not fit")


@pytest.mark.parametrize(
    ("text", "size"), [("64GiB", 64 * GIB), ("80GB", 80 * 10**9), ("1.5gib", 3 * GIB // 2), ("100", 100)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "64 apples", "-1GiB", "0", "GiB", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no size of memory"):
        parse_size(text)


def test_numbers_are_told_in_ranges() -> None:
    assert span([0, 1, 2, 3, 7, 9, 10]) == "0-3, 7, 9-10"
