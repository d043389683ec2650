from __future__ import annotations

import pytest
import torch

from rlinf_core.data.tree import load_tree, save_tree
from rlinf_core.errors import CheckpointError


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path):
    tree = {
        "a": [torch.tensor([0.1, float("nan")]), {"deep": torch.tensor(True)}],
        "plain": [1, 0.1, "text", None, False, float("inf")],
        "empty": {},
        "half": torch.arange(4, dtype=torch.float16).reshape(2, 2).T,
    }
    save_tree(tmp_path / "new", "x", tree)
    again = load_tree(tmp_path / "new", "x")
    assert again["plain"] == tree["plain"]
    assert again["empty"] == {}
    assert torch.equal(again["a"][0], tree["a"][0]) or torch.isnan(again["a"][0][1])
    assert again["a"][1]["deep"].item() is True
    assert again["half"].dtype == torch.float16
    assert torch.equal(again["half"], tree["half"])


def test_what_json_cannot_hold_is_refused_with_its_place(tmp_path):
    with pytest.raises(CheckpointError, match=r"/a/1 is a set"):
        save_tree(tmp_path, "x", {"a": [1, {2}]})
    with pytest.raises(CheckpointError, match="keys"):
        save_tree(tmp_path, "x", {"a": {1: 2}})


def test_a_torn_file_is_named(tmp_path):
    save_tree(tmp_path, "x", {"a": torch.ones(3)})
    (tmp_path / "x.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="cannot read x"):
        load_tree(tmp_path, "x")
