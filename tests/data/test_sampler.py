from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.data.sampler import PromptSampler
from roll_core.errors import CheckpointError, DataError

MIXED = ["math"] * 10 + ["code"] * 7 + ["math"] * 3


def test_the_same_seed_draws_the_same_prompts_and_another_does_not():
    one, two, other = (PromptSampler(["math"] * 50, 8, seed) for seed in (1, 1, 2))
    batches = [one.next_batch() for _ in range(20)]
    assert batches == [two.next_batch() for _ in range(20)]
    assert batches != [other.next_batch() for _ in range(20)]


def test_the_order_is_the_same_on_every_machine():
    assert PromptSampler(["math"] * 10, 5, seed=42).next_batch() == [4, 1, 6, 0, 2]


def test_epochs_differ_and_one_seed_is_not_another_ones_next_epoch():
    sampler = PromptSampler(["math"] * 20, 20, seed=0)
    first, second = sampler.next_batch(), sampler.next_batch()
    assert first != second
    assert PromptSampler(["math"] * 20, 20, seed=1).next_batch() not in (first, second)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 30), seed=st.integers(0, 5), counts=st.lists(st.integers(1, 12), min_size=1, max_size=30))
def test_every_epoch_visits_each_prompt_once_and_no_draw_holds_one_twice(size, seed, counts):
    sampler = PromptSampler(["math"] * size, 1, seed)
    drawn = []
    for count in counts:
        draw = sampler.draw("math", min(count, size))
        assert len(set(draw)) == len(draw) == min(count, size)
        drawn += draw
    for start in range(0, len(drawn) - size + 1, size):
        assert sorted(drawn[start : start + size]) == list(range(size))
    assert sampler.epochs == {"math": len(drawn) / size}


def probs_for(batch: int) -> dict[str, float]:
    return {"math": 0.5, "code": 0.5} if batch > 1 else {"math": 0, "code": 1}


@settings(max_examples=60, deadline=None)
@given(stop=st.integers(0, 12), batch=st.integers(1, 7), refill=st.integers(0, 5), seed=st.integers(0, 3))
def test_a_resumed_run_draws_what_an_uninterrupted_one_draws(stop, batch, refill, seed):
    def step(sampler: PromptSampler) -> list[int]:
        drawn = sampler.next_batch()
        return drawn + sampler.draw("code", refill, avoid=drawn)

    straight = PromptSampler(MIXED, batch, seed, probs_for(batch))
    expected = [step(straight) for _ in range(12)]
    before = PromptSampler(MIXED, batch, seed, probs_for(batch))
    actual = [step(before) for _ in range(stop)]
    after = PromptSampler(MIXED, batch, seed, probs_for(batch))
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.epochs == before.epochs
    assert actual + [step(after) for _ in range(12 - stop)] == expected


def test_a_batch_holds_each_domains_share_and_the_last_takes_the_rest():
    sampler = PromptSampler(MIXED, 8, 0, {"math": 0.6, "code": 0.4})
    assert sampler.shares == {"math": 4, "code": 4}
    for _ in range(10):
        assert Counter(MIXED[index] for index in sampler.next_batch()) == {"math": 4, "code": 4}


def test_shares_are_exact_where_binary_numbers_are_not():
    sampler = PromptSampler(["math"] * 100 + ["code"] * 100, 100, 0, {"math": 0.29, "code": 0.71})
    assert sampler.shares == {"math": 29, "code": 71}


def test_the_rest_goes_to_a_domain_that_has_a_share():
    sampler = PromptSampler(MIXED, 5, 0, {"math": 0.5, "code": 0.5, "unused": 0})
    assert sampler.shares == {"math": 2, "code": 3}


def test_without_shares_domains_are_mixed_by_size():
    assert PromptSampler(["math"] * 30 + ["code"] * 10, 8, 0).shares == {"math": 6, "code": 2}


def test_domains_have_epochs_of_their_own():
    sampler = PromptSampler(["math"] * 8 + ["code"] * 4, 4, 0, {"math": 0.5, "code": 0.5})
    for _ in range(4):
        sampler.next_batch()
    assert sampler.epochs == {"math": 1.0, "code": 2.0}


def test_a_draw_into_the_next_epoch_gives_prompts_in_use_last():
    sampler = PromptSampler(["math"] * 6, 4, 0)
    first = sampler.next_batch()
    rest = sampler.draw("math", 2, avoid=first)
    assert set(first) | set(rest) == set(range(6))
    again = sampler.draw("math", 3, avoid=first)
    assert set(rest) <= set(again)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ({"math": 0.5, "code": 0.6}, "domain_interleave_probs must be shares that add up to 1, given math: 0.5, code"),
        ({"math": 1.5, "code": -0.5}, "domain_interleave_probs must be shares that add up to 1"),
        ({"math": 0.5, "chess": 0.5}, "domain_interleave_probs asks for chess, of which there is no prompt"),
        ({"math": 1.0}, "domain_interleave_probs leaves out code, so those prompts would never be drawn"),
        ({"math": 0.05, "code": 0.95}, "domain 'math' would never be drawn: 0.05 of a batch of 4 is no prompt"),
    ],
)
def test_shares_that_cannot_be_kept_are_refused(probs, message):
    with pytest.raises(DataError) as error:
        PromptSampler(MIXED, 4, 0, probs)
    assert str(error.value).startswith(message)


def test_fewer_prompts_than_a_batch_is_refused():
    with pytest.raises(DataError) as error:
        PromptSampler(["math"], 4, 0)
    assert str(error.value) == (
        "domain 'math' has 1 prompts, fewer than its 4 of a batch of 4\n"
        "  try: a smaller rollout_batch_size, more rows, or a longer prompt_length if rows were dropped"
    )


def test_drawing_what_there_is_not_is_refused():
    sampler = PromptSampler(["math"] * 3, 2, 0)
    with pytest.raises(DataError, match="no prompts of domain 'code'; the data has: math"):
        sampler.draw("code", 1)
    with pytest.raises(DataError, match="4 different prompts asked of a domain that has 3"):
        sampler.draw("math", 4)


def test_a_state_of_other_prompts_is_refused():
    state = PromptSampler(["math"] * 8, 2, 0, fingerprint="aaa").state_dict()
    for other in (
        PromptSampler(["math"] * 8, 2, 0, fingerprint="bbb"),
        PromptSampler(["math"] * 9, 2, 0, fingerprint="aaa"),
        PromptSampler(["code"] * 8, 2, 0, fingerprint="aaa"),
        PromptSampler(["math"] * 8, 2, 1, fingerprint="aaa"),
    ):
        with pytest.raises(CheckpointError, match="the training prompts are not those of the checkpoint"):
            other.load_state_dict(state)


def test_the_refusal_of_a_state_says_what_changed():
    with pytest.raises(CheckpointError) as error:
        PromptSampler(["math"] * 8, 2, 1).load_state_dict(PromptSampler(["math"] * 9, 2, 1).state_dict())
    assert "\n  prompts: 9 in the checkpoint, 8 now\n  try: restore the data files" in str(error.value)
