from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from roll_core.config.compose import load_config_file
from roll_core.data.jsonl import load_rows
from roll_core.data.prompts import PromptDataset

FEW = 2


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with everything the quickstart needs, its model hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "examples" / "quickstart"))
        import prepare

        folder = tmp_path_factory.mktemp("quickstart")
        prepare.prepare(folder, seed=0, steps=FEW)
        return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_data_files_are_what_core_reads(made):
    routes = {"math_rule": "math_rule"}
    rows = load_rows(["train.jsonl", "heldout.jsonl"], str(made / "data"), routes)
    assert len(rows) == 4000 + 256
    assert all(int(row.ground_truth) == asked_sum(row.prompt) for row in rows)


def asked_sum(prompt: str) -> int:
    left, right = prompt.removeprefix("What is ").removesuffix("?").split(" + ")
    return int(left) + int(right)


def test_every_prompt_fits_the_config(made, quickstart):
    config = load_config_file(quickstart / "rlvr.yaml", [], pipeline="rlvr")
    tokenizer = AutoTokenizer.from_pretrained(made / "model")
    rows = load_rows(["train.jsonl", "heldout.jsonl"], str(made / "data"), {"math_rule": "math_rule"})
    assert PromptDataset(rows, tokenizer, config.prompt_length).report.dropped == 0


def test_every_demonstration_fits_the_response_length(made, quickstart):
    import random

    import addition

    config = load_config_file(quickstart / "rlvr.yaml", [], pipeline="rlvr")
    tokenizer = AutoTokenizer.from_pretrained(made / "model")
    choice = random.Random(0)
    answers = [addition.demonstration(pair, choice, forget=0) + "<|im_end|>" for pair in addition.pairs()[0][:2000]]
    assert max(len(ids) for ids in tokenizer(answers)["input_ids"]) <= config.response_length


def test_the_config_names_the_files_that_are_made(quickstart):
    import prepare

    config = load_config_file(quickstart / "rlvr.yaml", [], pipeline="rlvr")
    assets = prepare.Assets(prepare.FOLDER)
    assert Path(config.pretrain) == assets.model
    for data in (config.actor_train.data_args, config.validation.data_args):
        assert Path(data.dataset_dir) == assets.data
    assert (config.samples_per_step, config.optimizer_steps_per_step) == (256, 1)
    assert not config.needs_reference and not config.needs_critic
    assert config.notices == []


def test_the_tokenizer_keeps_digits_apart_and_encodes_any_text(made):
    tokenizer = AutoTokenizer.from_pretrained(made / "model")
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 2)
    assert len(tokenizer("347+285=").input_ids) == 8
    for text in ("3+2=5+1=6\n\\boxed{632}", "Grüße, 世界!\t🙂", ""):
        assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_the_chat_template_marks_the_answer_and_its_end_for_training(made):
    tokenizer = AutoTokenizer.from_pretrained(made / "model")
    dialogue = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    encoded = tokenizer.apply_chat_template(dialogue, return_dict=True, return_assistant_tokens_mask=True)
    marked = [i for i, mask in zip(encoded["input_ids"], encoded["assistant_masks"]) if mask]
    assert tokenizer.decode(marked) == "2<|im_end|>"


def test_the_model_loads_and_is_what_engines_can_serve(made):
    model = AutoModelForCausalLM.from_pretrained(made / "model")
    assert model.config.model_type == "qwen3" and model.config.head_dim == 32
    assert model.dtype == torch.float32
    assert (model.config.pad_token_id, model.config.eos_token_id) == (0, 2)
    assert sum(parameter.numel() for parameter in model.parameters()) < 200_000


def test_the_same_seed_makes_the_same_files_and_another_only_another_model(made, tmp_path):
    import prepare

    prepare.prepare(tmp_path / "same", seed=0, steps=FEW)
    prepare.prepare(tmp_path / "other", seed=1, steps=FEW)
    same, other, first = contents(tmp_path / "same"), contents(tmp_path / "other"), contents(made)
    assert same == first
    assert {name for name in first if first[name] != other[name]} == {"assets.json", "model/model.safetensors"}


def test_files_that_are_there_are_kept_and_another_seed_makes_others(tmp_path):
    import prepare

    trained: list[int] = []

    def make(seed: int) -> bool:
        trained.clear()
        prepare.prepare(tmp_path, seed, FEW, lambda step, loss: trained.append(step))
        return bool(trained)

    assert make(0) and not make(0)
    assert make(1) and not make(1)


@pytest.mark.slow
def test_the_warm_started_model_adds_but_mostly_forgets_the_carry(tmp_path):
    import addition
    import prepare
    import warm_start

    assets = prepare.prepare(tmp_path, seed=0)
    model = AutoModelForCausalLM.from_pretrained(assets.model)
    tokenizer = AutoTokenizer.from_pretrained(assets.model)
    _, held_out = addition.pairs()
    torch.manual_seed(0)
    sampled = warm_start.answer(model, tokenizer, held_out, greedy=False)
    greedy = warm_start.answer(model, tokenizer, held_out, greedy=True)
    assert 0.35 <= warm_start.accuracy(sampled) <= 0.55
    assert 0.28 <= warm_start.accuracy(greedy) <= 0.38
    assert addition.errors_by_kind(greedy)["other"] <= 5
