"""Reading and writing published checkpoints: exactly, or one error that says everything."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from rlinf_plugin_openvla.weights import save
from safetensors.torch import load_file, save_file

from rlinf_core.api import CheckpointError, Mode, RequestError


def test_a_checkpoint_goes_in_and_out_byte_for_byte(tiny, make_policy, tmp_path):
    policy = make_policy()
    save(policy, tmp_path / "again", tiny)
    names = sorted(path.name for path in tiny.iterdir())
    assert len([n for n in names if n.endswith(".safetensors")]) > 1
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == names
    for name in names:
        assert (tiny / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    with pytest.raises(RequestError, match="exists"):
        save(policy, tmp_path / "again", tiny)


def test_what_was_trained_is_what_is_read_again(tiny, make_policy, observe, tmp_path):
    policy = make_policy()
    with torch.no_grad():
        policy.language_model.lm_head.weight.mul_(-1)
    save(policy, tmp_path / "trained", tiny)
    again = make_policy(checkpoint=str(tmp_path / "trained"))
    acts = [p.act(observe(3), None, Mode.GREEDY) for p in (policy, again, make_policy())]
    assert torch.equal(acts[0].actions, acts[1].actions)
    assert not torch.equal(acts[0].actions, acts[2].actions)


@pytest.fixture
def spoil(tiny, tmp_path):
    """Return a function that changes the tensors of a copy, all in one file."""

    def spoil(change):
        folder = tmp_path / "spoilt"
        shutil.copytree(tiny, folder)
        tensors = {}
        for path in sorted(folder.glob("*.safetensors")):
            tensors |= load_file(path)
            path.unlink()
        (folder / "model.safetensors.index.json").unlink()
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
        return str(folder)

    return spoil


def test_everything_that_does_not_fit_is_listed_at_once(spoil, make_policy):
    def change(tensors):
        del tensors["projector.fc1.bias"]
        del tensors["vision_backbone.featurizer.blocks.0.ls1.scale_factor"]
        tensors["projector.fc4.weight"] = torch.zeros(2)
        tensors["language_model.model.norm.weight"] = torch.zeros(31)

    with pytest.raises(CheckpointError) as refused:
        make_policy(checkpoint=spoil(change))
    for part in (
        "missing ['projector.fc1.bias', 'vision_backbone.featurizer.blocks.0.ls1.scale_factor']",
        "extra ['projector.fc4.weight']",
        "language_model.model.norm.weight: found [31], wanted [32]",
    ):
        assert part in str(refused.value)


def test_a_critic_is_read_where_there_is_one(spoil, make_policy):
    trained = {f"value_head.{n}": t + 1 for n, t in make_policy().value_head.state_dict().items()}
    folder = spoil(lambda tensors: tensors.update(trained))
    policy = make_policy(checkpoint=folder)
    assert all(torch.equal(policy.state_dict()[name], tensor) for name, tensor in trained.items())
    assert make_policy(checkpoint=folder, value_head=False).value_head is None


def test_initial_weights_of_the_seed_need_no_file(tiny, make_policy, tmp_path):
    for name in ("config.json", "preprocessor_config.json", "tokenizer.json"):
        shutil.copy(tiny / name, tmp_path / name)
    one, same = (make_policy(checkpoint=str(tmp_path), weights="random") for _ in range(2))
    assert all(torch.equal(t, same.state_dict()[n]) for n, t in one.state_dict().items())
    with pytest.raises(CheckpointError, match=r"wanted model\.safetensors"):
        make_policy(checkpoint=str(tmp_path))


def test_statistics_of_a_fine_tuned_checkpoint_go_first(tiny, make_policy, tmp_path):
    folder = tmp_path / "tuned"
    shutil.copytree(tiny, folder)
    tuned = {"toy": {"action": {"q01": [0, 0, 0], "q99": [0.1, 0.2, 1], "mask": [True] * 3}}}
    (folder / "dataset_statistics.json").write_text(json.dumps(tuned))
    policy = make_policy(checkpoint=str(folder))
    assert policy.bounds.range.tolist() == [0.1, 0.2, 1.0]
    (folder / "preprocessor_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="has 0 tvf_normalize_params; wanted 2"):
        make_policy(checkpoint=str(folder))


def test_a_missing_tokenizer_is_named(tiny, make_policy, tmp_path):
    folder = tmp_path / "mute"
    shutil.copytree(tiny, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*tokenizer\.json"):
        make_policy(checkpoint=str(folder))
