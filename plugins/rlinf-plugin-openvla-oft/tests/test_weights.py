"""Reading and writing what OFT publishes: weights, and the files of parts beside them."""

from __future__ import annotations

import shutil

import pytest
import torch
from rlinf_plugin_openvla_oft.parts import save

from rlinf_core.api import CheckpointError, Mode

EVERYTHING = {"film": True, "proprio": True, "head": "l1", "stop_token": True}


@pytest.mark.parametrize("options", [{}, {"proprio": True}, EVERYTHING])
def test_a_checkpoint_goes_in_and_out_byte_for_byte(options, tiny, make_policy, tmp_path):
    save(make_policy(2, **options), tmp_path / "again", tiny)
    names = sorted(path.name for path in tiny.iterdir())
    assert len([n for n in names if n.endswith(".pt")]) == 3
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == names
    for name in names:
        assert (tiny / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_what_was_trained_is_what_is_read_again(tiny, make_policy, observe, tmp_path):
    policy = make_policy(2, **EVERYTHING)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if name.startswith(("action_head", "proprio", "vision_backbone")):
                parameter.mul_(-1).copy_(parameter.bfloat16())
    save(policy, tmp_path / "trained", tiny)
    again = make_policy(2, checkpoint=str(tmp_path / "trained"), **EVERYTHING)
    acts = [p.act(observe(2), None, Mode.GREEDY) for p in (policy, again)]
    assert torch.equal(acts[0].actions, acts[1].actions)


@pytest.fixture
def copy(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "copy")
    return tmp_path / "copy"


def test_parts_that_are_missing_or_there_twice_are_named(copy, make_policy):
    (copy / "action_head--150000_checkpoint.pt").unlink()
    make_policy(2, checkpoint=str(copy))  # nothing else needs it
    with pytest.raises(CheckpointError, match=r"\[\] for action_head; wanted one file"):
        make_policy(2, checkpoint=str(copy), **EVERYTHING)
    twice = copy / "proprio_projector--150000_checkpoint.pt"
    shutil.copy(twice, copy / "proprio_projector--5000_checkpoint.pt")
    with pytest.raises(CheckpointError, match="5000_checkpoint.pt'.* for proprio_projector"):
        make_policy(2, checkpoint=str(copy), proprio=True)


def test_what_does_not_fit_in_any_file_is_one_error(copy, make_policy):
    path = copy / "proprio_projector--150000_checkpoint.pt"
    content = torch.load(path)
    content["module.fc3.weight"] = torch.zeros(1)
    content["module.fc1.weight"] = torch.zeros(32, 8)
    torch.save(content, path)
    head = copy / "action_head--150000_checkpoint.pt"
    content = torch.load(head)
    del content["model.fc2.bias"]
    torch.save(content, head)
    with pytest.raises(CheckpointError) as refused:
        make_policy(2, checkpoint=str(copy), **EVERYTHING)
    for part in (
        "missing ['action_head.model.fc2.bias']",
        "extra ['proprio_projector.fc3.weight']",
        "proprio_projector.fc1.weight: found [32, 8], wanted [32, 5]",
    ):
        assert part in str(refused.value)


@pytest.mark.parametrize("spoil", ["cut", "list"])
def test_a_damaged_part_is_named(spoil, copy, make_policy):
    path = copy / "proprio_projector--150000_checkpoint.pt"
    if spoil == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        torch.save([torch.zeros(1)], path)
    with pytest.raises(CheckpointError, match="proprio_projector--150000_checkpoint.pt"):
        make_policy(2, checkpoint=str(copy), proprio=True)
