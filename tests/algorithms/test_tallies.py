import functools
import operator
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_core.algorithms.tallies import fetch, max_of, mean_of, min_of, sum_of
from roll_core.training import Tally


@given(
    rows=st.lists(st.tuples(st.integers(-8, 8), st.booleans()), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_parts_add_up_to_the_whole(rows: list[tuple[int, bool]], cuts: list[int]) -> None:
    values, mask = torch.tensor([float(v) for v, _ in rows]), torch.tensor([m for _, m in rows])
    tallies = []
    for part in torch.tensor_split(torch.arange(len(rows)), sorted(min(cut, len(rows)) for cut in cuts)):
        v, m = values[part], mask[part]
        kept_sum = torch.where(m, v, 0).sum()
        tallies.append(
            fetch({"mean": mean_of(v, m), "max": max_of(v, m), "min": min_of(v, m), "sum": sum_of(kept_sum)})
        )
    kept = [v for v, m in rows if m]
    total = {name: functools.reduce(operator.add, [t[name] for t in tallies]).value for name in tallies[0]}
    assert total["sum"] == sum(kept)
    assert total["mean"] == pytest.approx(sum(kept) / len(kept) if kept else 0.0)
    assert total["max"] == (max(kept) if kept else 0.0)
    assert total["min"] == (min(kept) if kept else 0.0)


def test_tallies_of_different_kinds_do_not_add() -> None:
    with pytest.raises(ValueError, match="a tally of kind mean added to one of kind max"):
        Tally(1.0) + Tally(1.0, reduction="max")


def test_a_tally_survives_the_way_between_processes() -> None:
    assert pickle.loads(pickle.dumps(Tally(1.0, 2.0, "max"))) == Tally(1.0, 2.0, "max")


def test_nothing_to_measure_needs_no_device() -> None:
    assert fetch({}) == {}
