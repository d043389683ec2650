"""What models share: refusals, sampling, heads and files of tensors."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rlinf_core.data.draws import Draws
from rlinf_core.errors import CheckpointError, RequestError, RLInputError
from rlinf_core.models.actions import ActionBins
from rlinf_core.models.heads import ValueHead
from rlinf_core.models.normalize import Bounds
from rlinf_core.models.statistics import choose_statistics
from rlinf_core.models.tensor_files import (
    INDEX,
    SINGLE,
    fill,
    in_memory,
    stored_tensors,
    write_checkpoint,
    write_shards,
)

LIBERO = {"action": {"q01": [0.0, -1.0], "q99": [1.0, 1.0], "mask": [True, False]}}
DATASETS = {"libero_spatial_no_noops": LIBERO, "libero_object": LIBERO, "bridge_orig": LIBERO}

# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "width", "says"),
    [
        (None, 2, "no key was given"),
        ("libero", 2, r"'libero' matches \['libero_object', 'libero_spatial_no_noops'\]"),
        ("bridge_orgi", 2, "no statistics have the key 'bridge_orgi'.*Did you mean 'bridge_orig'"),
        ("bridge_orig", 7, "widths {'q01': 2, 'q99': 2, 'mask': 2}, wanted 7"),
    ],
)
def test_case_m01_the_wrong_statistics_are_refused_with_the_keys_there_are(key, width, says):
    with pytest.raises(RequestError, match=says) as refused:
        choose_statistics(DATASETS, key, width=width)
    assert all(repr(name) in str(refused.value) for name in DATASETS)


def test_case_m01_a_vector_or_a_number_that_is_not_there_is_refused():
    with pytest.raises(RequestError, match=r"none of 'proprio', but of \['action'\]"):
        choose_statistics(DATASETS, "bridge_orig", of="proprio")
    with pytest.raises(RequestError, match=r"lack \['mean'\]; they have \['mask', 'q01', 'q99'\]"):
        choose_statistics(DATASETS, "bridge_orig", names=("mean",))
    with pytest.raises(RequestError, match=r"dataset_statistics\.json"):
        choose_statistics({}, "bridge_orig")


def test_a_key_is_found_whole_by_its_beginning_or_because_it_is_the_only_one():
    assert choose_statistics(DATASETS, "bridge_orig").key == "bridge_orig"
    assert choose_statistics(DATASETS, "libero_spatial").key == "libero_spatial_no_noops"
    assert choose_statistics({"one": LIBERO}, None).width == 2
    longer = {"libero": LIBERO, "libero_object": LIBERO}
    assert choose_statistics(longer, "libero").key == "libero"  # the whole name goes first


def test_bounds_go_there_and_back_and_leave_out_what_the_mask_does():
    bounds = Bounds.of(choose_statistics(DATASETS, "bridge_orig"), epsilon=0.0)
    x = torch.tensor([[0.25, 0.7], [2.0, -3.0]])
    normal = bounds.normalize(x)
    assert normal.tolist()[0] == pytest.approx([-0.5, 0.7])
    torch.testing.assert_close(bounds.unnormalize(normal).float(), x)
    assert bounds.normalize(x, clip=True).tolist()[1] == [1.0, -1.0]


# --- action bins ----------------------------------------------------------------------------------


def test_case_m03_the_likeliest_bin_is_taken_whatever_the_temperature():
    bins = ActionBins(4, 10)
    logits = torch.tensor([9.0, 0, 0, 0, 0, 0, 1.0, 3.0, 2.0, 0.0, 8.0])
    for temperature in (0.1, 1.0, 1.6, 100.0):
        assert bins.choose(logits, temperature, None) == 7  # 0 and 10 are no action


def test_samples_are_distributed_as_their_log_probs_say():
    bins, rows = ActionBins(4, 8), 20_000
    logits = torch.tensor([5.0, 5, 5, 5, 0.0, 1.0, 2.0, -1.0]).expand(rows, 8)
    noise = Draws(0, range(rows), [0] * rows).gumbel(4)
    ids = bins.choose(logits, 1.6, noise)
    logp, entropy = bins.score(logits, ids, 1.6)
    frequency = torch.bincount(ids, minlength=8)[4:] / rows
    expected = torch.softmax(logits[0, 4:] / 1.6, dim=0)
    torch.testing.assert_close(frequency, expected, atol=4 * math.sqrt(0.25 / rows), rtol=0)
    torch.testing.assert_close(logp.exp(), expected[ids - 4])
    torch.testing.assert_close(entropy[0], -(expected * expected.log()).sum())
    with pytest.raises(RLInputError, match="temperature is 0"):
        bins.score(logits, ids, 0)


def test_a_value_head_of_other_widths():
    head = ValueHead(6, 3, hidden=(5, 4), activation="relu", last_bias=True)
    assert list(head.state_dict())[-2:] == ["mlp.4.weight", "mlp.4.bias"]
    assert head(torch.ones(2, 6)).shape == (2, 3)
    half = ValueHead(6).bfloat16()
    assert half(torch.ones(2, 6)).dtype == torch.float32


# --- files of tensors -----------------------------------------------------------------------------


@pytest.fixture
def module():
    return nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1, bias=False)})


def test_a_checkpoint_that_does_not_fit_is_one_error_that_lists_everything(module):
    before = {name: t.clone() for name, t in module.state_dict().items()}
    stored = in_memory(
        {"a.weight": torch.ones(3, 2), "b.weight": torch.ones(2, 3), "c": torch.ones(1)}
    )
    with pytest.raises(CheckpointError) as refused:
        fill(module, stored, "it")
    for part in ("missing ['a.bias']", "extra ['c']", "b.weight: found [2, 3], wanted [1, 3]"):
        assert part in str(refused.value)
    assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())


def test_shards_are_written_and_read(module, tmp_path):
    write_shards(tmp_path, module.state_dict(), most=32)
    assert sorted(p.name for p in tmp_path.iterdir())[-1] == INDEX
    other = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1, bias=False)})
    fill(other, stored_tensors(tmp_path), "it")
    assert all(torch.equal(t, module.state_dict()[n]) for n, t in other.state_dict().items())
    next(tmp_path.glob("model-00001*")).unlink()
    with pytest.raises(CheckpointError, match=r"lacks \['model-00001-of-00002.safetensors'\]"):
        stored_tensors(tmp_path)


@pytest.mark.parametrize("most", [32, 1 << 20])
def test_a_checkpoint_is_written_again_byte_for_byte(most, module, tmp_path):
    like = tmp_path / "like"
    like.mkdir()
    write_shards(like, module.bfloat16().state_dict(), most)
    (like / "tokenizer.json").write_text("{}")
    wide = {name: s.read().float() for name, s in stored_tensors(like).items()}
    write_checkpoint(tmp_path / "again", wide, like)
    files = sorted(p.name for p in like.iterdir())
    assert files == sorted(p.name for p in (tmp_path / "again").iterdir())
    for name in files:
        assert (like / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    with pytest.raises(RequestError, match="exists and nothing is overwritten"):
        write_checkpoint(tmp_path / "again", wide, like)
    del wide["b.weight"]
    with pytest.raises(CheckpointError, match=r"differ in \['b.weight'\]"):
        write_checkpoint(tmp_path / "third", wide, like)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "like"]  # nothing half-written


def test_a_damaged_file_and_an_empty_folder_are_named(tmp_path):
    with pytest.raises(CheckpointError, match="wanted model.safetensors"):
        stored_tensors(tmp_path)
    save_file({"a": torch.ones(1000)}, tmp_path / SINGLE)
    data = (tmp_path / SINGLE).read_bytes()
    (tmp_path / SINGLE).write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=r"cannot read"):
        stored_tensors(tmp_path)
