from __future__ import annotations

import pytest
import torch

from rlinf_core.data.batch import Batch
from rlinf_core.errors import BatchError, MissingKeyError


def nested() -> Batch:
    return Batch(
        {
            "state": torch.arange(6.0).reshape(3, 2),
            "images": {"front": torch.zeros(3, 4, 4, 3, dtype=torch.uint8)},
            "task": ["a", "b", "c"],
        }
    )


def test_rows_must_agree_and_the_error_names_the_entry():
    with pytest.raises(BatchError, match="'b' has 3 rows; the entries before it have 2"):
        Batch({"a": torch.zeros(2), "b": torch.zeros(3)})


def test_a_scalar_is_no_entry():
    with pytest.raises(BatchError, match="row dimension"):
        Batch({"a": torch.tensor(1.0)})


def test_case_e08_a_misspelt_mask_key_raises():
    with pytest.raises(MissingKeyError, match="'maks'.*Did you mean 'mask'"):
        Batch({"mask": torch.ones(2), "reward": torch.ones(2)})["maks"]
    with pytest.raises(MissingKeyError):  # no silent default either
        Batch({"mask": torch.ones(2)}).get("maks", None) or Batch({"mask": torch.ones(2)})["maks"]


def test_rows_by_slice_mask_and_index_keep_tensors_and_strings_together():
    batch = nested()
    for index in (slice(1, 3), torch.tensor([False, True, True]), torch.tensor([1, 2])):
        part = batch.rows(index)
        assert part["state"].tolist() == [[2.0, 3.0], [4.0, 5.0]]
        assert part["task"] == ["b", "c"]
        assert part["images"]["front"].shape == (2, 4, 4, 3)
    assert batch.rows(torch.tensor([2, 0]))["task"] == ["c", "a"]


def test_a_row_mask_of_another_length_is_refused():
    with pytest.raises(BatchError, match="rows: 3"):
        nested().rows(torch.tensor([True, False]))


def test_split_and_cat_are_inverse():
    batch = nested()
    again = Batch.cat(batch.split(2))
    assert torch.equal(again["state"], batch["state"])
    assert again["task"] == batch["task"]


def test_cat_refuses_different_entries():
    with pytest.raises(BatchError, match="cannot join"):
        Batch.cat([Batch({"a": torch.ones(1)}), Batch({"b": torch.ones(1)})])


def test_stack_then_flatten_is_time_major():
    steps = [Batch({"x": torch.full((2,), float(t))}) for t in range(3)]
    trajectory = Batch.stack(steps)  # [3, 2]
    assert trajectory.flatten()["x"].tolist() == [0, 0, 1, 1, 2, 2]


def test_without_strings_a_batch_can_be_stacked():
    with pytest.raises(BatchError, match="'task' holds strings"):
        Batch.stack([nested()] * 2)
    left = nested().without_strings()
    assert dict(left.leaves()).keys() == {"state", "images.front"}
    assert Batch.stack([left] * 2)["images"]["front"].shape == (2, 3, 4, 4, 3)
    assert len(Batch({"task": ["a", "b"]}).without_strings()) == 2


def test_where_chooses_row_by_row():
    batch = nested()
    other = batch.map(lambda t: t + 100)
    mixed = batch.where(torch.tensor([True, False, True]), other.with_entries(task=["x", "y", "z"]))
    assert mixed["state"][:, 0].tolist() == [0.0, 102.0, 4.0]
    assert mixed["task"] == ["a", "y", "c"]


def test_with_entries_leaves_the_original_alone():
    batch = nested()
    more = batch.with_entries(mask=torch.ones(3))
    assert "mask" in more
    assert "mask" not in batch


def test_leaves_gives_dotted_paths():
    assert [path for path, _ in nested().leaves()] == ["state", "images.front", "task"]


def test_tensordict_round_trip():
    tensordict = pytest.importorskip("tensordict")
    batch = nested().select("state", "images")
    there = batch.to_tensordict()
    assert isinstance(there, tensordict.TensorDict)
    assert torch.equal(Batch.from_tensordict(there)["images"]["front"], batch["images"]["front"])
