"""Where answers are put, and when they are freed, in a transport of this process."""

from collections.abc import Callable

import pytest

from roll_core.data.answers import RemoteCompletion, RowStore, put_completions
from roll_core.errors import RollError
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.answer_shelf import AnswerShelf
from tests.pipelines.bare_steps import Everywhere


class Shelf(AnswerShelf):
    """With the end of the step in the test's hands."""

    def __init__(self) -> None:
        self.ends: list[Callable[[], None]] = []
        self.everywhere = Everywhere()
        super().__init__(self.everywhere, self.ends.append, "nowhere")

    def engine_puts(self, store: RowStore, *names: str) -> list[RemoteCompletion]:
        answers = [Completion(name, (1, 2), (-0.5, -0.25), "stop", 0) for name in names]
        requests = [GenerationRequest(name, (7,), SamplingParams(9), 0) for name in names]
        return put_completions(store, store.open(), answers, requests, [f"text of {name}" for name in names])

    def num_rows(self) -> int:
        return self.everywhere.stats().rows


def test_answers_of_a_step_end_with_it() -> None:
    shelf = Shelf()
    shelf.engine_puts(shelf.of_step(3).rows, "a", "b")
    assert shelf.num_rows() == 2
    [end] = shelf.ends
    end()
    assert shelf.num_rows() == 0


def test_answers_that_nobody_trains_on_end_with_their_block_also_when_it_fails() -> None:
    shelf = Shelf()
    with pytest.raises(RollError, match="an engine broke"), shelf.lent("val-3") as store:
        [answer] = shelf.engine_puts(store.rows, "a")
        assert shelf.texts(answer.row) == ["text of a"] and not store.has_images
        raise RollError("an engine broke")
    assert shelf.num_rows() == 0


def test_answers_of_old_versions_are_freed_and_those_of_others_stay() -> None:
    shelf = Shelf()
    for version in range(4):
        shelf.engine_puts(shelf.of_version(version, oldest=0).rows, f"of {version}")
    shelf.of_version(4, oldest=2)
    assert shelf.num_rows() == 2
    shelf.of_version(5, oldest=5)
    assert shelf.num_rows() == 0


def test_rows_that_are_held_are_freed_when_they_are_held_no_more() -> None:
    shelf = Shelf()
    held, other, lent = shelf.engine_puts(shelf.of_version(0, 0).rows, "held", "other", "lent")
    shelf.hold([held.row, lent.row])
    shelf.lend(lent.row)
    for rows in (held.row, other.row):
        shelf.free(rows)
    for end in shelf.ends:
        end()
    assert shelf.num_rows() == 2
    read = shelf.read([held.row, lent.row])
    assert [(one.token_ids, one.log_probs, one.text) for one in read.values()] == [
        ((1, 2), (-0.5, -0.25), "text of held"),
        ((1, 2), (-0.5, -0.25), "text of lent"),
    ]
    shelf.hold([lent.row])
    assert shelf.num_rows() == 1
    shelf.hold([])
    assert shelf.num_rows() == 0
