from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from roll_core.errors import BadRequest
from roll_core.inference import GenerationRequest, SamplingParams
from roll_core.inference.request_rules import check_request
from roll_core.inference.sampling import LARGEST_DRAW, Sampler, check_params, draws

DEVICE = torch.device("cpu")
LOGITS = torch.tensor([2.0, 1.5, -0.5, 0.3, 1.1, -3.0, 0.0, 0.9])
NUM_DRAWS = 4_000


@dataclass
class Row:
    params: SamplingParams
    seed: int = 0
    seen: torch.Tensor | None = None
    draws: Any = field(init=False)

    def __post_init__(self) -> None:
        self.draws = draws(self.seed)


def sampler(*rows: Row) -> Sampler:
    return Sampler(rows, len(LOGITS), DEVICE)


def params(**given: Any) -> SamplingParams:
    return SamplingParams(**({"max_new_tokens": 4} | given))


def counts(one: SamplingParams, seen: torch.Tensor | None = None, num_draws: int = NUM_DRAWS) -> torch.Tensor:
    rows = [Row(one, seed, seen) for seed in range(num_draws)]
    tokens, _ = sampler(*rows).draw(LOGITS.repeat(num_draws, 1))
    return torch.bincount(tokens, minlength=len(LOGITS)).double()


def chi_square(observed: torch.Tensor, probs: torch.Tensor) -> float:
    assert observed[probs == 0].sum() == 0
    expected = probs[probs > 0].double() * observed.sum()
    return float(((observed[probs > 0] - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.8), (5, 0.7), (1, 1.0), (0, 0.05), (99, 1.0)])
def test_tokens_are_as_frequent_as_transformers_makes_them_likely(temperature: float, top_k: int, top_p: float) -> None:
    shape = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        shape.append(TopKLogitsWarper(min(top_k, len(LOGITS))))
    if top_p < 1:
        shape.append(TopPLogitsWarper(top_p))
    probs = torch.softmax(shape(torch.zeros(1, 1, dtype=torch.long), LOGITS[None].clone())[0], dim=-1)
    observed = counts(params(temperature=temperature, top_k=top_k, top_p=top_p))
    # 7 degrees of freedom exceed 29.9 once in ten thousand times; the draws are fixed.
    assert chi_square(observed, probs) < 29.9


def test_repetition_penalty_is_that_of_transformers() -> None:
    context = torch.tensor([[0, 2, 5]])
    seen = torch.zeros(len(LOGITS), dtype=torch.bool)
    seen[context[0]] = True
    penalised = RepetitionPenaltyLogitsProcessor(1.8)(context, LOGITS[None].clone())
    probs = torch.softmax(penalised[0] / 0.8, dim=-1)
    assert chi_square(counts(params(temperature=0.8, repetition_penalty=1.8), seen), probs) < 29.9
    tokens, _ = sampler(Row(params(temperature=0.0, repetition_penalty=1.8), seen=seen)).draw(LOGITS[None])
    assert tokens.tolist() == [penalised.argmax().item()] != [LOGITS.argmax().item()]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 0.0},
        {"top_k": 2},
        {"top_p": 0.6},
        {"temperature": 1.4, "top_k": 4, "top_p": 0.9, "repetition_penalty": 1.5},
        {"temperature": 0.0, "repetition_penalty": 3.0},
    ],
)
def test_log_probs_are_before_penalty_and_limits(given: dict[str, Any]) -> None:
    one = params(**given)
    seen = torch.ones(len(LOGITS), dtype=torch.bool) if one.repetition_penalty != 1 else None
    tokens, log_probs = sampler(*[Row(one, seed, seen) for seed in range(50)]).draw(LOGITS.repeat(50, 1))
    expected = torch.log_softmax(LOGITS / (one.temperature or 1.0), dim=-1)[tokens]
    torch.testing.assert_close(log_probs, expected, atol=1e-6, rtol=0)


def test_a_request_draws_the_same_beside_any_others() -> None:
    kinds = [
        params(),
        params(temperature=0.7),
        params(temperature=0.0),
        params(top_k=3),
        params(top_p=0.7),
        params(top_k=6, top_p=0.9, temperature=1.3),
        params(repetition_penalty=1.4),
    ]
    steps = torch.randn(30, len(LOGITS), generator=torch.Generator().manual_seed(1))

    def rows() -> list[Row]:
        made = [Row(one, seed) for seed, one in enumerate(kinds)]
        for row in made:
            row.seen = torch.arange(len(LOGITS)) < 4 if row.params.repetition_penalty != 1 else None
        return made

    together = sampler(*rows())
    mixed = torch.stack([together.draw(logits.repeat(len(kinds), 1))[0] for logits in steps], dim=1)
    for index, row in enumerate(rows()):
        alone = sampler(row)
        assert [int(alone.draw(logits[None])[0]) for logits in steps] == mixed[index].tolist()


def test_equal_seeds_draw_alike_and_different_ones_do_not() -> None:
    tokens = [list(islice(draws(seed), 300)) for seed in (5, 5, 6, 5 + 2**32, 2**63 - 1, -1)]
    assert tokens[0] == tokens[1]
    assert len({tuple(t) for t in tokens}) == 5
    assert all(0 <= number <= LARGEST_DRAW for number in tokens[0])


def test_the_largest_draw_still_finds_a_token_that_is_allowed() -> None:
    for size in (3, 8, 50_000):
        row = Row(params(top_k=2))
        row.draws = iter([LARGEST_DRAW] * 2)
        logits = torch.linspace(3, -3, size)[None]
        tokens, _ = Sampler([row], size, DEVICE).draw(logits)
        assert tokens.item() == 1
        row.params = replace(row.params, top_k=0)
        assert 0 <= Sampler([row], size, DEVICE).draw(logits)[0].item() < size


def test_the_smallest_draw_finds_no_excluded_token() -> None:
    row = Row(params(top_k=2))
    row.draws = iter([0.0])
    tokens, _ = Sampler([row], 4, DEVICE).draw(torch.tensor([[-1.0, 0.5, -2.0, 3.0]]))
    assert tokens.item() == 1


def test_a_row_without_limits_keeps_its_whole_tail_beside_one_with_top_p() -> None:
    logits = torch.linspace(0, -1, 1000).repeat(2, 1)
    rows = [Row(params()), Row(params(top_p=0.5))]
    for row in rows:
        row.draws = iter([LARGEST_DRAW])
    tokens, _ = Sampler(rows, 1000, DEVICE).draw(logits)
    assert tokens[0] == 999
    assert tokens[1] < 500


def test_ties_at_the_limit_are_all_kept() -> None:
    flat = torch.zeros(2000, 5)
    rows = [Row(params(top_k=2), seed) for seed in range(2000)]
    tokens, _ = Sampler(rows, 5, DEVICE).draw(flat)
    assert set(Counter(tokens.tolist())) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0\n  allowed: at least 1"),
        ({"temperature": -0.1}, "temperature is -0.1\n  allowed: 0 (greedy) or more"),
        ({"temperature": float("nan")}, "temperature is nan\n  allowed: 0 (greedy) or more"),
        ({"top_p": 0.0}, "top_p is 0.0\n  allowed: above 0 and at most 1 (every token)"),
        ({"top_k": -1}, "top_k is -1\n  allowed: 0 (every token) or more"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0\n  allowed: above 0; 1 is no penalty"),
        ({"stop": ("",)}, "an empty stop string would end every completion at once"),
    ],
)
def test_parameters_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as error:
        check_params(GenerationRequest("r7", (1,), params(**given), 0))
    assert str(error.value) == f"request 'r7': {message}"


@pytest.mark.parametrize("more", [{}, {"top_k": 3}, {"temperature": 0.0}, {"repetition_penalty": 1.5}])
def test_excluded_tokens_are_never_drawn_and_log_probs_are_over_all_tokens(more: dict[str, Any]) -> None:
    seen = torch.zeros(len(LOGITS), dtype=torch.bool) if "repetition_penalty" in more else None
    one = params(excluded_token_ids=(0, 4), **more)
    rows = [Row(one, seed, seen) for seed in range(500)] + [Row(params(**more), 7, seen)]
    tokens, log_probs = sampler(*rows).draw(LOGITS.repeat(len(rows), 1))
    assert not set(tokens[:-1].tolist()) & {0, 4}
    assert 1 in tokens
    torch.testing.assert_close(log_probs, LOGITS.log_softmax(0)[tokens], atol=1e-6, rtol=0)


def test_an_excluded_token_outside_the_vocabulary_is_refused() -> None:
    request = GenerationRequest("r", (1,), params(excluded_token_ids=(3, 8)), 0)
    with pytest.raises(BadRequest, match=r"request 'r': excluded token 8 is outside the vocabulary \(0\.\.7\)"):
        check_request(request, len(LOGITS), [])
