"""Published weights of both layouts: read, written again byte for byte, converted, refused."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from rlinf_plugin_pi0 import checkpoint
from rlinf_plugin_pi0.checkpoint import EMBEDDING, HEADS, TIED, UNUSED
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config
from rlinf_plugin_pi0.model import PiModel
from rlinf_plugin_pi0.policy import Pi0Policy
from safetensors.torch import load_file, save_file

from rlinf_core.api import CheckpointError, RequestError

KINDS = {"pi0": (Pi0Config, False), "pi05": (Pi05Config, True)}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def published(tiny, kind="pi0", tied="lm_head", prefix="", dtype=torch.float32):
    """Return a tiny model, and tensors as a published file of it holds them."""
    make, adaptive = KINDS[kind]
    torch.manual_seed(5)
    model = PiModel(make(**tiny), adaptive)
    tensors = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    if tied in ("lm_head", "both"):
        tensors[TIED] = tensors[EMBEDDING].clone()
    if tied == "lm_head":
        del tensors[EMBEDDING]
    tensors[UNUSED] = torch.randn(300, 16).to(dtype)
    return model, {prefix + name: tensor.contiguous() for name, tensor in tensors.items()}


@pytest.fixture
def store(tmp_path):
    def write(tensors, name="published", **config):
        folder = tmp_path / name
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        if config:
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", ["lm_head", "embed_tokens", "both"])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_published_file_is_read_and_written_again_byte_for_byte(
    kind, tied, prefix, tiny, store, tmp_path
):
    model, tensors = published(tiny, kind, tied, prefix, torch.bfloat16)
    folder = store(tensors, chunk_size=4)
    make, adaptive = KINDS[kind]
    torch.manual_seed(6)
    other = PiModel(make(**tiny), adaptive)
    assert not torch.equal(other.action_in_proj.weight, model.action_in_proj.weight)
    checkpoint.load(other, str(folder))
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor.bfloat16().float()), name
    checkpoint.save(other, tmp_path / "again", like=str(folder))
    assert digest(tmp_path / "again" / "model.safetensors") == digest(folder / "model.safetensors")
    assert (tmp_path / "again" / "config.json").read_text() == '{"chunk_size": 4}'


def test_what_was_learned_is_written_and_heads_go_beside_it(tiny, spaces, store, tmp_path):
    _, tensors = published(tiny)
    folder = store(tensors)
    policy = Pi0Policy(Pi0Config(**{**tiny, "sampler": "flow_noise"}), spaces(), 2)
    checkpoint.load(policy, str(folder))
    with torch.no_grad():
        policy.action_out_proj.weight.add_(1.0)
    checkpoint.save(policy, tmp_path / "learned", like=str(folder))
    written = load_file(tmp_path / "learned" / "model.safetensors")
    assert written.keys() == tensors.keys()
    assert torch.equal(written["action_out_proj.weight"], tensors["action_out_proj.weight"] + 1.0)
    assert torch.equal(written[UNUSED], tensors[UNUSED])
    assert (tmp_path / "learned" / HEADS).is_file()
    torch.manual_seed(9)
    again = Pi0Policy(Pi0Config(**{**tiny, "sampler": "flow_noise"}), spaces(), 2)
    checkpoint.load(again, str(tmp_path / "learned"))
    for name, tensor in policy.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_heads_that_a_checkpoint_holds_itself_stay_in_it(tiny, spaces, store, tmp_path):
    policy = Pi0Policy(Pi0Config(**tiny), spaces(), 2)
    folder = store({name: tensor.contiguous() for name, tensor in policy.state_dict().items()})
    with torch.no_grad():
        policy.value_head.mlp[0].bias.add_(1.0)
    checkpoint.save(policy, tmp_path / "learned", like=str(folder))
    assert not (tmp_path / "learned" / HEADS).exists()
    written = load_file(tmp_path / "learned" / "model.safetensors")
    assert torch.equal(written["value_head.mlp.0.bias"], policy.value_head.mlp[0].bias)


@pytest.mark.parametrize("first", ["openpi", "lerobot"])
def test_converting_there_and_back_gives_the_same_bytes(first, tiny, store, tmp_path):
    other = {"openpi": "lerobot", "lerobot": "openpi"}[first]
    _, tensors = published(tiny, prefix=checkpoint.PREFIX[first])
    folder = store(tensors)
    checkpoint.convert(str(folder), tmp_path / "there", other)
    checkpoint.convert(str(tmp_path / "there"), tmp_path / "back", first)
    there = load_file(tmp_path / "there" / "model.safetensors")
    assert all(name.startswith("model.") == (other == "lerobot") for name in there)
    assert there.keys().isdisjoint(tensors)
    assert digest(tmp_path / "back" / "model.safetensors") == digest(folder / "model.safetensors")


def test_all_that_does_not_fit_is_one_error_and_nothing_is_loaded(tiny, store):
    _, tensors = published(tiny)
    del tensors["action_in_proj.bias"]
    tensors["action_out_proj.weight"] = torch.zeros(7, 16)
    tensors["surprise.weight"] = torch.zeros(1)
    folder = store(tensors)
    torch.manual_seed(6)
    other = PiModel(Pi0Config(**tiny), False)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        checkpoint.load(other, str(folder))
    text = str(error.value)
    assert "missing ['action_in_proj.bias']" in text
    assert "extra ['surprise.weight']" in text
    assert "action_out_proj.weight: found [7, 16], wanted [8, 16]" in text
    assert all(torch.equal(t, before[n]) for n, t in other.state_dict().items())


def test_a_checkpoint_of_pi05_is_not_one_of_pi0(tiny, store):
    folder = store(published(tiny, "pi05")[1])
    with pytest.raises(CheckpointError, match=r"missing \['action_time_mlp_in.bias'.*time_mlp_in"):
        checkpoint.load(PiModel(Pi0Config(**tiny), False), str(folder))


def test_copies_of_the_embedding_that_differ_are_refused(tiny, store):
    model, tensors = published(tiny, tied="both")
    tensors[TIED] = tensors[TIED] + 1
    with pytest.raises(CheckpointError, match="differ, wanted one tensor under both names"):
        checkpoint.load(model, str(store(tensors)))


def test_a_folder_that_is_not_there_and_one_that_exists(tiny, store, tmp_path):
    model, tensors = published(tiny)
    with pytest.raises(RequestError, match="there is no folder"):
        checkpoint.load(model, str(tmp_path / "nowhere"))
    folder = store(tensors)
    with pytest.raises(RequestError, match="exists and nothing is overwritten"):
        checkpoint.save(model, folder, like=str(folder))
    with pytest.raises(RequestError, match="exists and nothing is overwritten"):
        checkpoint.convert(str(folder), folder, "lerobot")


def test_a_model_with_a_tensor_that_the_published_file_has_no_place_for(tiny, store, tmp_path):
    model, tensors = published(tiny)
    del tensors["action_in_proj.bias"]
    folder = store(tensors)
    with pytest.raises(CheckpointError, match="no place for \\['action_in_proj.bias'\\]"):
        checkpoint.save(model, tmp_path / "new", like=str(folder))
    assert not (tmp_path / "new").exists()
