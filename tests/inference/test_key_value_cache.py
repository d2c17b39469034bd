import pytest
import torch

from roll_core.inference import key_value_cache
from roll_core.inference.decoder import Compaction
from roll_core.inference.key_value_cache import DENSE_COLUMNS, LARGE_BYTES, SPARE_COLUMNS, KeyValueCache

LAYERS, HEADS, SIZE = 2, 3, 4


@pytest.fixture(params=[LARGE_BYTES, 0], ids=["roomy", "dense"], autouse=True)
def large_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every promise holds for both layouts."""
    monkeypatch.setattr(key_value_cache, "LARGE_BYTES", request.param)
    return int(request.param)


def cache() -> KeyValueCache:
    return KeyValueCache(LAYERS, HEADS, SIZE, torch.float32, torch.device("cpu"))


def prompt(length: int, value: float) -> torch.Tensor:
    return torch.full((2 * LAYERS, HEADS, length, SIZE), value)


def write(block: KeyValueCache, values: list[float]) -> torch.Tensor:
    """One step; what attention reads of the first layer's keys, one number for each column [N, W]."""
    columns = block.next_columns()
    for target in columns.write:
        target.copy_(torch.tensor(values).view(-1, 1, 1).expand_as(target))
    shape = (block.num_rows, HEADS, -1, SIZE)
    for read in columns.read:
        same = read.reshape(shape)[:, :1, :, :1].expand(block.num_rows, HEADS, -1, SIZE)
        torch.testing.assert_close(read.reshape(shape), same, equal_nan=True)
    return columns.read[0].reshape(shape)[:, 0, :, 0]


def test_rows_end_in_the_same_column() -> None:
    block = cache()
    block.enter([prompt(1, 1.0), prompt(3, 2.0)])
    assert write(block, [8.0, 9.0]).tolist() == [[0, 0, 1, 8], [2, 2, 2, 9]]
    assert block.positions().tolist() == [1, 3]
    mask = block.mask()
    assert mask is not None
    assert mask.isinf().flatten(1).tolist() == [[True, True, False, False], [False] * 4]


def test_a_longer_prompt_widens_the_rows_that_run_with_zeros() -> None:
    block = cache()
    block.enter([prompt(2, 1.0)])
    write(block, [5.0])
    assert block.mask() is None
    block.enter([prompt(5, 2.0)])
    assert write(block, [6.0, 7.0]).tolist() == [[0, 0, 1, 1, 5, 6], [2, 2, 2, 2, 2, 7]]


def test_rows_that_leave_take_their_columns_with_them() -> None:
    block = cache()
    block.enter([prompt(6, 1.0), prompt(2, 2.0), prompt(3, 3.0)])
    block.leave(Compaction.without([0], 3))
    assert write(block, [8.0, 9.0]).tolist() == [[3, 3, 3, 8], [0, 2, 2, 9]]
    assert block.positions().tolist() == [3, 2]


def test_nothing_that_was_not_finite_is_left_in_the_padding() -> None:
    block = cache()
    nan = float("nan")
    block.enter([prompt(9, nan), prompt(9, nan), prompt(2, 1.0)])
    write(block, [nan, nan, 1.0])
    block.leave(Compaction.without([0, 1], 3))
    block.enter([prompt(1, 2.0)])
    assert write(block, [1.0, 2.0]).isfinite().all()
    block.enter([prompt(7, 3.0)])
    assert write(block, [1.0, 2.0, 3.0]).isfinite().all()


def test_a_row_grows_far_beyond_the_first_block() -> None:
    block = cache()
    block.enter([prompt(2, 1.0), prompt(1, 2.0)])
    for step in range(500):
        seen = write(block, [float(step), float(-step)])
    assert seen[0].tolist() == [1, 1, *range(500)]
    assert seen[1].tolist() == [0, 2, *(-step for step in range(500))]
    assert block.positions().tolist() == [501, 500]


def test_a_cleared_cache_is_laid_out_as_a_new_one_in_the_same_memory() -> None:
    used, new = cache(), cache()
    used.enter([prompt(90, 1.0)] * 4)
    for _ in range(200):
        write(used, [0.0] * 4)
    memory = used.memory.data_ptr()
    used.clear()
    for block in (used, new):
        block.enter([prompt(4, 1.0), prompt(7, 2.0)])
    assert used.data.shape == new.data.shape
    assert (used.first, used.end, used.starts) == (new.first, new.end, new.starts)
    assert used.memory.data_ptr() == memory
    assert write(used, [8.0, 9.0]).tolist() == write(new, [8.0, 9.0]).tolist()


def test_a_cache_that_all_rows_left_is_laid_out_as_a_new_one() -> None:
    used, new = cache(), cache()
    used.enter([prompt(90, 1.0)] * 4)
    write(used, [0.0] * 4)
    used.leave(Compaction.without([0, 1, 2, 3], 4))
    for block in (used, new):
        block.enter([prompt(4, 1.0), prompt(7, 2.0)])
    assert used.data.shape == new.data.shape
    assert (used.first, used.end, used.starts) == (new.first, new.end, new.starts)


def test_rows_that_do_not_fit_the_caches_have_few_spare_columns_between_them(large_bytes: int) -> None:
    block = cache()
    block.enter([prompt(8, 1.0)] * 4)
    memory = block.memory.data_ptr()
    spare = []
    for step in range(40):
        write(block, [float(step)] * 4)
        spare.append(block.data.shape[3] - (block.end - block.first))
    assert max(spare) == (SPARE_COLUMNS if large_bytes else DENSE_COLUMNS - 1)
    assert block.memory.data_ptr() == memory
    assert block.positions().tolist() == [47] * 4


def test_padding_stays_masked_while_rows_move() -> None:
    block = cache()
    block.enter([prompt(3, 1.0), prompt(9, 2.0)])
    for step in range(2 * SPARE_COLUMNS):
        write(block, [8.0, 9.0])
        mask = block.mask()
        assert mask is not None
        assert mask.flatten(1).isinf().tolist() == [[True] * 6 + [False] * (4 + step), [False] * (10 + step)]


def test_the_last_rows_move_into_the_gaps() -> None:
    assert Compaction.without([1, 4], 6) == Compaction((1,), (5,), 4)
    assert Compaction.without([1, 4], 6).order() == [0, 5, 2, 3]
    assert Compaction.without([0, 1, 2], 3).order() == []
    assert Compaction.without([5], 6).order() == [0, 1, 2, 3, 4]
