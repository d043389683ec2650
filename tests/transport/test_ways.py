"""Which way is taken between which ends."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from rlinf_core.errors import WeightSyncError
from rlinf_core.transport.ways import WAYS, Endpoint, choose_way, detour
from rlinf_core.transport.wires import (
    ChannelWire,
    Form,
    HandleWire,
    ReferenceWire,
    flat_bytes,
    flatten,
    forms_of,
    here,
    make_wire,
    split,
)

CPU = Endpoint("training[0]", "left", "1", "cpu", "cpu", "gloo")
GPU = Endpoint("training[0]", "left", "1", "cuda:0", "GPU-a", "nccl")
NPU = Endpoint("training[0]", "left", "1", "npu:0", "0", "hccl")


@pytest.mark.parametrize(
    ("source", "change", "name", "shown"),
    [
        (CPU, {}, "reference", "reference"),
        (GPU, {}, "reference", "reference"),
        (CPU, {"process": "2"}, "shared_memory", "shared memory"),
        (CPU, {"host": "right"}, "gloo", "gloo"),
        (GPU, {"process": "2"}, "device_handle", "device handle"),
        (GPU, {"process": "2", "torch_name": "cuda:3"}, "device_handle", "device handle"),
        (GPU, {"process": "2", "device": "GPU-b"}, "collective", "nccl"),
        (NPU, {"process": "2", "device": "1"}, "collective", "hccl"),
        (GPU, {"host": "right"}, "collective", "nccl"),  # the same number on another machine
        (GPU, {"process": "2", "torch_name": "cpu"}, "shared_memory", "shared memory"),
        (GPU, {"process": "2", "torch_name": "npu:0"}, "shared_memory", "shared memory"),
        (GPU, {"host": "right", "torch_name": "cpu"}, "gloo", "gloo"),
    ],
)
def test_the_best_way_that_joins_both_ends_is_taken(source, change, name, shown):
    target = replace(source, name="rollout[0]", **change)
    way = choose_way(source, target)
    assert (way.name, way.shown(source)) == (name, shown)


@pytest.mark.parametrize(
    ("source", "change", "wanted", "said"),
    [
        (CPU, {"process": "2"}, "reference", "two processes.*auto, or one of shared_memory, gloo"),
        (CPU, {}, "shared_memory", "in one process.*one of reference"),
        (CPU, {}, "gloo", "in one process"),
        (CPU, {"host": "right"}, "shared_memory", "two machines.*one of gloo"),
        (CPU, {"process": "2"}, "device_handle", "an end is on a CPU"),
        (GPU, {"process": "2", "device": "GPU-b"}, "device_handle", "on two devices"),
        (CPU, {"process": "2"}, "collective", "no|not on two devices of one kind"),
        (GPU, {"process": "2"}, "collective", "on one device"),
        (GPU, {"process": "2"}, "collectve", "no way 'collectve'.*Did you mean 'collective'"),
    ],
)
def test_a_way_that_does_not_join_them_is_refused_with_those_that_do(source, change, wanted, said):
    target = replace(source, name="rollout[0]", **change)
    with pytest.raises(WeightSyncError, match=f"(?s){said}"):
        choose_way(source, target, wanted)


def test_a_way_that_joins_them_can_be_asked_for():
    target = replace(GPU, name="rollout[0]", process="2")
    for name in ("device_handle", "shared_memory", "gloo"):
        assert choose_way(GPU, target, name).name == name


AMD = replace(GPU, kind="rocm")


@pytest.mark.parametrize(
    ("source", "change", "name", "why"),
    [
        (CPU, {"process": "2"}, "shared_memory", ""),
        (CPU, {"host": "right"}, "gloo", "they are on two machines"),
        (GPU, {"process": "2"}, "device_handle", ""),
        (GPU, {"process": "2", "device": "GPU-b"}, "collective", ""),
        (AMD, {"process": "2"}, "device_handle", ""),
        (AMD, {"process": "2", "device": "GPU-b"}, "collective", ""),
        (
            AMD,  # torch calls both "cuda"
            {"host": "right", "kind": "cuda"},
            "gloo",
            "rocm and cuda have no collective in common and they are on two machines",
        ),
        (
            GPU,
            {"process": "2", "torch_name": "npu:0", "kind": "ascend"},
            "shared_memory",
            "cuda and ascend have no collective in common",
        ),
        (GPU, {"process": "2", "torch_name": "cpu"}, "shared_memory", "an end is on a CPU"),
        (
            GPU,
            {"host": "right", "torch_name": "cpu"},
            "gloo",
            "an end is on a CPU and they are on two machines",
        ),
    ],
)
def test_a_detour_is_taken_for_a_reason(source, change, name, why):
    target = replace(source, name="rollout[0]", **change)
    for one, other in ((source, target), (target, source)):
        way = choose_way(one, other)
        assert way.name == name
        assert set(detour(way, one, other).split()) == set(why.split())


def test_a_device_whose_memory_no_other_process_can_open():
    source = replace(NPU, handles=False, kind="ascend")
    target = replace(source, name="rollout[0]", process="2")
    way = choose_way(source, target)
    assert way.name == "shared_memory"
    assert detour(way, source, target) == "no process can open another's memory of ascend"


def test_choosing_imports_no_torch():
    code = "import sys, rlinf_core.transport.ways; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_way_has_a_wire_that_can_be_made():
    for way in WAYS:
        make_wire(way, CPU, replace(CPU, process="2"), 1.0).close()


# --- ends and wires -------------------------------------------------------------------------------


def test_a_process_knows_where_it_is():
    mine = here("training[0]", "cpu")
    assert (mine.process, mine.type, mine.collective) == (str(os.getpid()), "cpu", "gloo")
    code = "from rlinf_core.transport.wires import here; print(here('x', 'cpu').host)"
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert other.stdout.rstrip("\n") == mine.host


TENSORS = [
    torch.arange(5, dtype=torch.int64),
    torch.tensor(1.5, dtype=torch.bfloat16),
    torch.zeros(0, 3),
    torch.randn(3, 4).t(),
    torch.tensor([True, False, True]),
]


def test_tensors_in_one_piece_of_memory_come_back_equal():
    flat = flatten(TENSORS, torch.device("cpu"))
    assert flat.numel() == flat_bytes(forms_of(TENSORS)) == 64 + 64 + 0 + 64 + 64
    for one, other in zip(split(flat, forms_of(TENSORS)), TENSORS, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    buffer = torch.zeros(1000, dtype=torch.uint8)
    assert flatten(TENSORS, buffer.device, buffer).data_ptr() == buffer.data_ptr()


def test_what_goes_by_reference_is_a_copy():
    wire, mine = ReferenceWire(CPU, CPU, 1.0), torch.ones(3)
    (there,) = wire.unpack(wire.pack([mine]), [Form((3,), torch.float32)])
    mine.zero_()
    assert there.tolist() == [1, 1, 1]


def test_what_the_channel_copies_is_not_copied_before():
    wire, mine = ChannelWire(CPU, CPU, 1.0), torch.ones(3)
    assert wire.pack([mine])[0].data_ptr() == mine.data_ptr()


def test_a_handle_that_cannot_be_opened_says_between_whom():
    def fail():
        raise RuntimeError("invalid device context")

    wire = HandleWire(GPU, replace(GPU, name="rollout[1]", process="2"), 1.0)
    said = r"rollout\[1\] cannot open the device memory of training\[0\].*invalid.*shared_memory"
    with pytest.raises(WeightSyncError, match=said):
        wire.unpack((fail, ()), [])


@pytest.mark.gpu
def test_a_handle_of_a_gpu_can_be_packed():
    end = here("training[0]", "cuda:0")
    wire = HandleWire(end, end, 1.0)
    _, arguments = wire.pack([torch.ones(3, device="cuda"), torch.zeros(2, 2)])
    assert arguments
