import pickle

import numpy as np
import pytest
import torch

from roll_core.data import DataProto


@pytest.fixture
def batch() -> DataProto:
    return DataProto(
        {"x": torch.arange(12).reshape(4, 3), "y": torch.tensor([1.5, 2.5, 3.5, 4.5], dtype=torch.bfloat16)},
        {"text": ["a", "b", "c", "d"]},
        {"step": 3},
    )


def test_rows_come_back_in_the_order_asked(batch: DataProto) -> None:
    picked = batch.index([2, 0, 2, -1])
    assert picked["x"][:, 0].tolist() == [6, 0, 6, 9]
    assert picked["text"].tolist() == ["c", "a", "c", "d"]


def test_last_row_by_negative_index_is_one_row(batch: DataProto) -> None:
    assert len(batch.index([-1])) == 1


def test_a_mask_must_fit(batch: DataProto) -> None:
    assert batch.index([True, False, False, True])["text"].tolist() == ["a", "d"]
    with pytest.raises(IndexError, match="a mask of 2 for 4 rows"):
        batch.index([True, False])


def test_an_index_out_of_range_is_refused(batch: DataProto) -> None:
    with pytest.raises(IndexError):
        batch.index([4])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="x 2, y 3"):
        DataProto({"x": torch.zeros(2), "y": torch.zeros(3)})


def test_pickle_keeps_dtype_and_is_private_and_writable(batch: DataProto) -> None:
    copy = pickle.loads(pickle.dumps(batch, protocol=5))
    assert copy["y"].dtype == torch.bfloat16 and torch.equal(copy["y"], batch["y"])
    copy["x"][0, 0] = 99
    assert batch["x"][0, 0] == 0
    assert copy.meta_info == {"step": 3}


def test_empty_columns_survive_pickling() -> None:
    copy = pickle.loads(pickle.dumps(DataProto({"x": torch.zeros(0, 5)}), protocol=5))
    assert copy["x"].shape == (0, 5)


def test_chunk_then_concat_is_the_same(batch: DataProto) -> None:
    parts = batch.chunk(3)
    assert [len(part) for part in parts] == [2, 1, 1]
    whole = DataProto.concat(parts)
    assert torch.equal(whole["x"], batch["x"]) and whole["text"].tolist() == batch["text"].tolist()


def test_repeat_keeps_a_prompts_rows_together(batch: DataProto) -> None:
    assert batch.repeat(2)["text"].tolist() == list("aabbccdd")
    assert batch.repeat(2, interleave=False)["text"].tolist() == list("abcdabcd")


def test_union_refuses_a_column_that_differs(batch: DataProto) -> None:
    assert "z" in batch.union(DataProto({"z": torch.zeros(4)}))
    with pytest.raises(ValueError, match="column 'x' differs"):
        batch.union(DataProto({"x": torch.zeros(4, 3, dtype=torch.int64)}))


def test_group_by_keeps_first_appearance() -> None:
    data = DataProto({"x": torch.arange(4)}, {"tag": ["b", "a", "b", "a"]})
    groups = data.group_by("tag")
    assert list(groups) == ["b", "a"] and groups["b"]["x"].tolist() == [0, 2]


def test_meta_is_not_shared_between_batches(batch: DataProto) -> None:
    part = batch.slice(0, 2)
    part.meta_info["step"] = 9
    assert batch.meta_info["step"] == 3


def test_a_missing_column_names_those_there_are(batch: DataProto) -> None:
    with pytest.raises(KeyError, match="x, y, text"):
        batch["z"]


def test_object_columns_hold_arrays_of_any_shape() -> None:
    data = DataProto(non_tensor_batch={"img": [np.zeros((2, 2)), np.zeros((2, 2))]})
    assert data["img"].shape == (2,) and data["img"][0].shape == (2, 2)
