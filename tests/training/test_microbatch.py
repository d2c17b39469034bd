import pytest
import torch

from roll_core.training.microbatch import Cut, Rows, plan, scatter, width
from tests.training.support import batch


def test_rows_are_grouped_by_length_and_each_appears_once() -> None:
    parts = plan([2, 2, 2, 2, 2], [9, 1, 8, 2, 3], Cut(max_rows=2))
    assert parts == [[0, 2], [4, 3], [1]]


def test_a_token_budget_counts_rows_times_the_width_they_are_padded_to() -> None:
    # Inputs are prompt + response - 1 wide: 10 for the first row, 5 for the others.
    assert plan([2, 2, 2, 2], [9, 4, 4, 4], Cut(max_tokens=10)) == [[0], [1, 2], [3]]
    assert plan([2, 2, 2, 2], [9, 4, 4, 4], Cut(max_tokens=20)) == [[0, 1], [2, 3]]


def test_a_long_prompt_beside_a_long_response_is_counted_at_the_width_of_both() -> None:
    parts = plan([9, 2], [2, 9], Cut(max_tokens=30))
    assert parts == [[0], [1]]


def test_every_part_of_random_rows_keeps_to_the_budget() -> None:
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(1, 30, (200,), generator=generator).tolist()
    responses = torch.randint(0, 60, (200,), generator=generator).tolist()
    parts = plan(prompts, responses, Cut(max_tokens=256, width_multiple=4))
    assert sorted(row for part in parts for row in part) == list(range(200))
    for part in parts:
        columns = width(max(prompts[row] for row in part), max(responses[row] for row in part), 4)
        assert columns % 4 == 0 and columns * len(part) <= 256


def test_a_row_longer_than_the_budget_is_an_error_that_names_the_budget() -> None:
    with pytest.raises(ValueError, match="a row of 29 tokens does not fit into a micro-batch of 16 tokens"):
        plan([10], [20], Cut(max_tokens=16))


def test_no_rows_make_no_parts() -> None:
    assert plan([], [], Cut(max_rows=4)) == []


def test_inputs_are_trimmed_to_their_own_longest_prompt_and_response() -> None:
    rows = batch(7, prompt=6, response=9)
    chosen = [1, 3]
    given = Rows(rows).model_input(chosen, torch.device("cpu"))
    prompt = max(int(rows["prompt_lengths"][row]) for row in chosen)
    response = max(int(rows["response_lengths"][row]) for row in chosen)
    assert given.input_ids.shape == (2, prompt + response - 1)
    assert given.targets.shape == (2, response)
    assert given.attention_mask is not None and given.position_ids is not None
    for place, row in enumerate(chosen):
        length, answered = int(rows["prompt_lengths"][row]), int(rows["response_lengths"][row])
        real = [*rows["prompts"][row, 6 - length :].tolist(), *rows["responses"][row, :answered].tolist()]
        mask = given.attention_mask[place].bool()
        # The very last token of the widest response is left out of the input.
        seen = given.input_ids[place][mask].tolist()
        assert seen == real[: len(seen)] and len(real) - len(seen) in (0, 1)
        assert given.position_ids[place][mask].tolist() == list(range(len(seen)))


def test_equal_rows_need_no_mask() -> None:
    rows = batch(1).repeat(3)
    given = Rows(rows).model_input([0, 1, 2], torch.device("cpu"))
    assert given.attention_mask is None and given.position_ids is None and given.attended is None


def test_a_rounded_width_is_reached_by_padding_on_the_left() -> None:
    rows = batch(1, prompt=6, response=9).repeat(2)
    given = Rows(rows).model_input([0, 1], torch.device("cpu"), width_multiple=8)
    assert given.input_ids.shape == (2, 16)
    assert given.attention_mask is not None and given.attention_mask.sum(dim=1).tolist() == [14, 14]


def test_columns_per_token_are_trimmed_and_others_are_not() -> None:
    rows = batch(5).with_columns(old=torch.arange(5 * 9.0).reshape(5, 9), weight=torch.arange(5.0))
    rows.batch["pair"] = torch.zeros(5, 2)
    columns = Rows(rows).columns([1], torch.device("cpu"))
    assert columns["old"].tolist() == [[9.0]]
    assert columns["weight"].tolist() == [1.0]
    assert columns["pair"].shape == (1, 2)


def test_an_empty_prompt_is_an_error_that_names_the_row() -> None:
    rows = batch(3)
    rows.batch["prompt_lengths"][2] = 0
    with pytest.raises(ValueError, match="row 2 has an empty prompt"):
        Rows(rows)


def test_results_return_in_the_order_of_the_rows() -> None:
    whole = scatter([([2, 0], torch.tensor([[1.0, 2.0], [3.0, 4.0]])), ([1], torch.tensor([[5.0]]))], 3, 3)
    assert whole.tolist() == [[3.0, 4.0, 0.0], [5.0, 0.0, 0.0], [1.0, 2.0, 0.0]]
