import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.algorithms.aggregation import masked_mean, token_weights, weighted_sum

MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


def loss_by_loops(
    losses: list[list[float]], mask: list[list[bool]], mode: str, weights: list[float], width: int
) -> float:
    """The loss of a mode, written as one would read it aloud."""
    rows = [[x for x, m in zip(row, row_mask) if m] for row, row_mask in zip(losses, mask)]
    tokens = sum(len(row) for row in rows)
    filled = [(weight, row) for weight, row in zip(weights, rows) if row]
    if not filled:
        return 0.0
    if mode == "token-mean":
        return sum(weight * x for weight, row in filled for x in row) / tokens
    per_row = {
        "seq-mean-token-sum": lambda row: sum(row),
        "seq-mean-token-mean": lambda row: sum(row) / len(row),
        "seq-mean-token-sum-norm": lambda row: sum(row) / width,
    }[mode]
    return sum(weight * per_row(row) for weight, row in filled) / len(filled)


def test_token_mean_never_counts_masked_tokens() -> None:
    losses = torch.tensor([[1.0, 100.0], [1.0, -50.0]], requires_grad=True)
    mask = torch.tensor([[True, False], [True, False]])
    loss = weighted_sum(losses, token_weights(mask, "token-mean"))
    loss.backward()
    assert loss.item() == 1.0
    assert losses.grad is not None and losses.grad.tolist() == [[0.5, 0.0], [0.5, 0.0]]


def test_token_mean_is_the_same_in_one_batch_or_two_micro_batches() -> None:
    losses = torch.tensor([[4.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, False, False], [True, True, True]])
    weights = token_weights(mask, "token-mean")
    assert weighted_sum(losses, weights).item() == 1.75
    assert sum(weighted_sum(losses[i : i + 1], weights[i : i + 1]).item() for i in (0, 1)) == 1.75


@pytest.mark.parametrize("mode", MODES)
def test_weights_give_the_loss_of_the_mode(mode: str) -> None:
    generator = torch.Generator().manual_seed(1)
    losses = torch.randn(5, 7, generator=generator)
    mask = torch.rand(5, 7, generator=generator) < 0.6
    mask[3] = False
    sample_weights = torch.rand(5, generator=generator)
    weights = token_weights(mask, mode, sample_weights, max_response_length=32)
    expected = loss_by_loops(losses.tolist(), mask.tolist(), mode, sample_weights.tolist(), 32)
    assert weighted_sum(losses, weights).item() == pytest.approx(expected, rel=1e-5)
    assert weights.dtype == torch.float32
    assert (weights[~mask] == 0).all()


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 8), max_size=4),
    seed=st.integers(0, 1000),
)
def test_any_cut_into_micro_batches_adds_up(mode: str, lengths: list[int], cuts: list[int], seed: int) -> None:
    mask = torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    losses = torch.randn(mask.shape, generator=torch.Generator().manual_seed(seed))
    weights = token_weights(mask, mode, max_response_length=16)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    parts = torch.tensor_split(order, sorted(min(cut, len(lengths)) for cut in cuts))
    shares = []
    for part in parts:
        width = int(mask[part].sum(-1).max()) if len(part) else 0
        shares.append(weighted_sum(losses[part, :width], weights[part, :width]).item())
    expected = loss_by_loops(losses.tolist(), mask.tolist(), mode, [1.0] * len(lengths), 16)
    assert sum(shares) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_padding_by_ten_columns_changes_no_weight(mode: str) -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    wide = torch.nn.functional.pad(mask, (0, 10))
    narrow_weights = token_weights(mask, mode, max_response_length=8)
    wide_weights = token_weights(wide, mode, max_response_length=8)
    assert torch.equal(wide_weights[:, :3], narrow_weights)
    assert (wide_weights[:, 3:] == 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_mask_gives_zeros(mode: str) -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    assert token_weights(mask, mode, torch.ones(2), max_response_length=8).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("garbage", [float("inf"), float("-inf"), float("nan"), 1e9])
def test_what_is_masked_reaches_neither_value_nor_gradient(garbage: float) -> None:
    losses = torch.tensor([[2.0, garbage], [4.0, garbage]], requires_grad=True)
    mask = torch.tensor([[True, False], [True, False]])
    loss = weighted_sum(losses, token_weights(mask, "token-mean"))
    loss.backward()
    assert loss.item() == 3.0
    assert losses.grad is not None and losses.grad.tolist() == [[0.5, 0.0], [0.5, 0.0]]
    assert masked_mean(losses, mask).tolist() == [[2.0], [4.0]]


def test_sample_weights_that_are_not_numbers_stay_out_of_rows_without_tokens() -> None:
    mask = torch.tensor([[True], [False]])
    assert token_weights(mask, "token-mean", torch.tensor([1.0, float("nan")])).tolist() == [[1.0], [0.0]]


def test_the_normalised_sum_needs_a_length() -> None:
    with pytest.raises(ValueError, match="seq-mean-token-sum-norm needs max_response_length >= 1, got None"):
        token_weights(torch.ones(1, 1, dtype=torch.bool), "seq-mean-token-sum-norm")


def test_an_unknown_mode_lists_the_known_ones() -> None:
    with pytest.raises(ValueError) as caught:
        token_weights(torch.ones(1, 1, dtype=torch.bool), "mean")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "no loss_agg_mode named 'mean'\n"
        "  there are: token-mean, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm"
    )
