import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from roll_core.errors import ConfigError
from roll_core.inference import key_value_cache
from roll_core.inference.compact import CompactDecoder
from roll_core.inference.compact_model import why_not_compact
from roll_core.inference.decoder import Compaction, Decoder
from roll_core.inference.hf import HfInferStrategy
from roll_core.inference.transformers_decoder import TransformersDecoder, why_not_transformers
from tests.inference.models import COMPACT, CONFIGS, by_id, prompts_of, reference, request

PAIRS = [(kind, "compact") for kind in COMPACT] + [(kind, "transformers") for kind in CONFIGS]
LENGTHS = (3, 20, 9, 9, 1, 40)
Start = Callable[..., HfInferStrategy]
Folders = Callable[..., Path]


def decoder_for(folder: Path, name: str, dtype: torch.dtype = torch.float32) -> Decoder:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval().requires_grad_(False)
    return CompactDecoder(model) if name == "compact" else TransformersDecoder(model)


def next_logits(model: torch.nn.Module, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    with torch.inference_mode():
        return torch.stack([model(torch.tensor([list(text)])).logits[0, -1] for text in texts])


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_logits_are_those_of_the_models_own_code(folder_of: Folders, kind: str, name: str) -> None:
    model, decoder = reference(folder_of(kind)), decoder_for(folder_of(kind), name)
    texts = [list(prompt) for prompt in prompts_of(*LENGTHS)]
    with torch.inference_mode():
        read = decoder.prefill(texts)
        torch.testing.assert_close(
            torch.stack([prompt.logits for prompt in read]), next_logits(model, texts), atol=1e-4, rtol=0
        )
        decoder.enter(read)
        for step in range(80):
            tokens = [(7 * step + row) % 90 for row in range(len(texts))]
            for text, token in zip(texts, tokens):
                text.append(token)
            logits = decoder.step(torch.tensor(tokens))
            if step % 20 == 19:
                torch.testing.assert_close(logits, next_logits(model, texts), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("kind", "name"), PAIRS)
@pytest.mark.parametrize("large_bytes", [key_value_cache.LARGE_BYTES, 0])
def test_rows_come_and_go_without_touching_the_others(
    folder_of: Folders, kind: str, name: str, large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_value_cache, "LARGE_BYTES", large_bytes)
    model, decoder = reference(folder_of(kind)), decoder_for(folder_of(kind), name)
    texts: list[list[int]] = []
    random = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        for event in range(12):
            new = prompts_of(*torch.randint(1, 50, (3,), generator=random).tolist(), seed=event)
            decoder.enter(decoder.prefill(new))
            texts += [list(prompt) for prompt in new]
            for _ in range(4):
                tokens = torch.randint(0, 90, (len(texts),), generator=random)
                logits = decoder.step(tokens)
                for text, token in zip(texts, tokens.tolist()):
                    text.append(token)
            torch.testing.assert_close(logits, next_logits(model, texts), atol=1e-4, rtol=0)
            ended = [row for row in range(len(texts)) if torch.rand((), generator=random) < 0.4]
            compaction = Compaction.without(ended, len(texts))
            decoder.leave(compaction)
            texts = [texts[row] for row in compaction.order()]


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_greedy_completions_equal_those_of_generate(start: Start, folder_of: Folders, kind: str, name: str) -> None:
    model, engine, prompts = reference(folder_of(kind)), start(kind, decoder=name), prompts_of(*LENGTHS)
    got = by_id(
        engine.generate([request(p, str(i), temperature=0.0, max_new_tokens=30) for i, p in enumerate(prompts)])
    )
    for index, prompt in enumerate(prompts):
        ids = torch.tensor([prompt])
        whole = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30, pad_token_id=0
        )
        assert list(got[str(index)].token_ids) == whole[0, len(prompt) :].tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 1.7])
@pytest.mark.parametrize("name", ["compact", "transformers"])
def test_log_probs_are_those_of_one_forward_pass(
    start: Start, folder_of: Folders, name: str, temperature: float
) -> None:
    model, engine, prompts = reference(folder_of("qwen2")), start("qwen2", decoder=name), prompts_of(*LENGTHS)
    requests = [
        request(p, str(i), seed=i, temperature=temperature, top_k=20, top_p=0.9, max_new_tokens=10 + i)
        for i, p in enumerate(prompts)
    ]
    for completion in engine.generate(requests):
        prompt = prompts[int(completion.request_id)]
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *completion.token_ids]])).logits[0, len(prompt) - 1 : -1]
        scores = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
        expected = scores.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        # Logits of either are up to 7e-6 from those in float64.
        torch.testing.assert_close(torch.tensor(completion.log_probs), expected, atol=3e-5, rtol=0)


@pytest.mark.parametrize(("kind", "name"), [("qwen3", "compact"), ("llama", "compact"), ("gpt_neox", "transformers")])
def test_half_precision_stays_as_close_to_float32_as_the_models_own_code(
    folder_of: Folders, kind: str, name: str
) -> None:
    exact, half = reference(folder_of(kind)), reference(folder_of(kind)).to(torch.bfloat16)
    decoder = decoder_for(folder_of(kind), name, torch.bfloat16)
    texts = [list(prompt) for prompt in prompts_of(*LENGTHS)]
    with torch.inference_mode():
        decoder.enter(decoder.prefill(texts))
        logits = decoder.step(torch.tensor([5] * len(texts))).float()
        texts = [[*text, 5] for text in texts]
        truth = next_logits(exact, texts)
        own_error = (next_logits(half, texts).float() - truth).abs().mean()
        assert (logits - truth).abs().mean() < 1.5 * own_error


def test_new_weights_in_the_module_are_what_the_compact_decoder_computes(folder_of: Folders) -> None:
    # Wide enough for every layout that weights are kept in.
    model = AutoModelForCausalLM.from_config(CONFIGS["qwen3"]().__class__(**_wide())).eval().requires_grad_(False)
    other, text = copy.deepcopy(model), prompts_of(12)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1).add_(0.01)
    decoder = CompactDecoder(model)
    for _ in range(2):
        with torch.no_grad(), decoder.changing():
            for name, tensor in model.state_dict().items():
                tensor.copy_(other.state_dict()[name])
    with torch.inference_mode():
        got = torch.stack([prompt.logits for prompt in decoder.prefill(text)])
    torch.testing.assert_close(got, next_logits(other, text), atol=1e-4, rtol=1e-5)


def _wide() -> dict[str, object]:
    return {
        "vocab_size": 600,
        "hidden_size": 256,
        "intermediate_size": 600,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "initializer_range": 0.1,
    }


@pytest.mark.parametrize("kind", COMPACT)
def test_auto_takes_the_compact_decoder_where_it_is_exact_and_says_so(start: Start, kind: str) -> None:
    model = start(kind).model
    assert model.is_compact
    assert model.choice == f"{type(model.module).__name__} is computed by the compact decoder"


def test_auto_takes_transformers_elsewhere_and_says_why(start: Start) -> None:
    model = start("gpt2").model
    assert not model.is_compact
    assert model.choice == (
        "GPT2LMHeadModel is computed by the transformers decoder; not by the compact one: "
        "it is written for LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, and the model is a GPT2LMHeadModel"
    )


def test_compact_asked_for_a_model_it_does_not_know_is_an_error(start: Start) -> None:
    with pytest.raises(ConfigError) as error:
        start("mistral", decoder="compact")
    assert str(error.value) == (
        "1 problem\n- strategy_args.strategy_config.decoder: the compact decoder does not fit: it is written for "
        "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, and the model is a MistralForCausalLM\n"
        "    given: 'compact'\n    try:   auto or transformers"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"use_sliding_window": True, "layer_types": ["sliding_attention"] * 2}, "full attention only"),
        ({"hidden_act": "gelu"}, "silu activation"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}}, "rotary embeddings"),
    ],
)
def test_variants_that_the_compact_decoder_does_not_compute_are_left_to_transformers(
    changes: dict[str, object], reason: str
) -> None:
    config = CONFIGS["qwen2"]()
    config.update(changes)
    assert reason in str(why_not_compact(AutoModelForCausalLM.from_config(config)))


def test_models_whose_state_has_no_rows_are_refused() -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS["qwen2"]())
    assert why_not_transformers(model) is None
    model.config.layer_types = ["linear_attention", "full_attention"]
    assert why_not_transformers(model) == (
        "Qwen2ForCausalLM has linear_attention, whose state hf_infer cannot split into rows"
    )
