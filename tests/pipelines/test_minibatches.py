import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_core.data import DataProto
from roll_core.pipelines.minibatches import mini_batches, shares, undeal


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 3), st.integers(0, 5))
def test_every_epoch_visits_each_row_once(num_rows: int, rows_each: int, epochs: int, seed: int) -> None:
    batches = list(mini_batches(num_rows, rows_each, epochs, seed))
    assert len(batches) == epochs * -(-num_rows // rows_each)
    assert sorted(np.concatenate(batches).tolist()) == sorted(list(range(num_rows)) * epochs)


def test_a_single_mini_batch_keeps_the_order_of_the_rows() -> None:
    assert next(mini_batches(5, 5, 1, seed=3)).tolist() == [0, 1, 2, 3, 4]


def test_the_same_seed_cuts_alike_and_another_does_not() -> None:
    first, again, other = (np.concatenate(list(mini_batches(40, 8, 1, seed))).tolist() for seed in (1, 1, 2))
    assert first == again != other


@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(1, 5))
def test_shares_hold_every_row_once_and_balanced(lengths: list[int], num_shares: int) -> None:
    dealt = shares(torch.tensor(lengths), num_shares)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(lengths)))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    tokens = [sum(lengths[row] for row in share) for share in dealt]
    assert max(tokens) - min(tokens) <= 2 * max(lengths)


def test_what_ranks_return_comes_back_in_the_order_of_the_batch() -> None:
    batch = DataProto(
        {"prompt_lengths": torch.tensor([3, 9, 1, 5]), "response_lengths": torch.zeros(4, dtype=torch.int64)}
    )
    rows = shares(batch["prompt_lengths"] + batch["response_lengths"], 3)
    parts = [batch.index(part) for part in rows]
    assert torch.equal(undeal(parts, rows)["prompt_lengths"], batch["prompt_lengths"])


def test_more_ranks_than_rows_leaves_some_without() -> None:
    batch = DataProto({"prompt_lengths": torch.tensor([3]), "response_lengths": torch.tensor([1])})
    rows = shares(batch["prompt_lengths"] + batch["response_lengths"], 2)
    parts = [batch.index(part) for part in rows]
    assert [len(part) for part in parts] == [1, 0]
    assert len(undeal(parts, rows)) == 1


def test_ranks_get_about_the_same_tokens() -> None:
    lengths = torch.tensor([8, 7, 6, 5, 4, 3, 2, 1])
    assert [int(lengths[rows].sum()) for rows in shares(lengths, 2)] == [18, 18]
