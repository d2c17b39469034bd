"""Which rows of which put a list of ids asks for."""

import random

import numpy as np

from roll_core.transport.row_ids import Places, locate, row_ids_of


def test_rows_that_follow_each_other_are_slices() -> None:
    ids = row_ids_of("a.1", range(20))
    assert locate(ids) == {"a.1": Places(slice(0, 20), slice(0, 20))}
    assert locate(ids[5:9]) == {"a.1": Places(slice(5, 9), slice(0, 4))}
    assert locate([*ids[3:5], "b.0", "b.1"]) == {
        "a.1": Places(slice(3, 5), slice(0, 2)),
        "b": Places(slice(0, 2), slice(2, 4)),
    }


def test_any_choice_of_ids_is_that_of_a_list() -> None:
    ids, choice = row_ids_of("a.1", range(30)) + row_ids_of("b.0", range(9)), random.Random(0)
    for _ in range(200):
        start = choice.randrange(39)
        asked = choice.choices(ids, k=choice.randrange(1, 50)) if choice.random() < 0.5 else list(ids[start:])
        if choice.random() < 0.2:
            asked.reverse()
        found = [""] * len(asked)
        for chunk, places in locate(asked).items():
            numbers = np.frombuffer(places.row_bytes(), np.int64)
            for position, number in zip(np.arange(len(asked))[places.positions], numbers):
                found[position] = f"{chunk}.{number}"
        assert found == asked
