"""AMD GPUs, as the kernel's driver would list them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rlinf_plugin_rocm import accelerator
from rlinf_plugin_rocm.accelerator import Rocm

VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
GIB = 2**30


def properties(folder: Path, **facts: int) -> None:
    folder.mkdir(parents=True)
    lines = [f"{name} {value}\n" for name, value in facts.items()]
    (folder / "properties").write_text("".join(lines))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a machine of two processors and three GPUs, of which this process may open two."""
    nodes, render = tmp_path / "nodes", tmp_path / "dri"
    render.mkdir()
    for number in (0, 1):
        properties(nodes / str(number), cpu_cores_count=64, simd_count=0, drm_render_minor=0)
        properties(nodes / str(number) / "mem_banks" / "0", heap_type=0, size_in_bytes=512 * GIB)
    for number, minor, gib in ((2, 128, 64), (3, 129, 128), (10, 130, 192)):
        node = nodes / str(number)
        properties(
            node, cpu_cores_count=0, simd_count=304, unique_id=0xA0 + number, drm_render_minor=minor
        )
        properties(node / "mem_banks" / "0", heap_type=1, size_in_bytes=gib * GIB)
    (render / "renderD128").touch()
    (render / "renderD130").touch()
    monkeypatch.setattr(accelerator, "NODES", nodes)
    monkeypatch.setattr(accelerator, "RENDER", render)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def found() -> list[int | None]:
    rocm = Rocm()
    sizes = [rocm.memory(index) for index in range(rocm.count())]
    assert rocm.memory(len(sizes)) is None
    assert rocm.memory(-1) is None
    return [size and size // GIB for size in sizes]


def test_gpus_are_counted_in_order_as_far_as_they_may_be_opened(machine):
    assert found() == [64, 192]


@pytest.mark.parametrize(
    ("rocr", "hip", "cuda", "gib"),
    [
        ("1", None, None, [192]),
        ("1,0", None, None, [192, 64]),
        (None, "1", None, [192]),
        (None, None, "1", [192]),
        (None, "0", "1", [64]),
        ("1,0", "1", None, [64]),  # of the two that are left, the second
        ("1", "1", None, []),
        ("", None, None, []),
        (None, "-1", None, []),
        (None, "0,5,1", None, [64]),
        ("GPU-00000000000000aa", None, None, [192]),
        ("GPU-00000000000000AA,0", None, None, [192, 64]),
        ("GPU-4b2c1a9f-8d3e-6f7a-b5c9-2e4d8a1f6c3b", None, None, [None]),
    ],
)
def test_visibility_variables(machine, rocr, hip, cuda, gib):
    for name, value in zip(VARIABLES, (rocr, hip, cuda), strict=True):
        if value is not None:
            machine.setenv(name, value)
    assert found() == gib


def test_memory_that_no_bank_tells_is_unknown(machine):
    bank = accelerator.NODES / "2" / "mem_banks" / "0" / "properties"
    bank.write_text("heap_type 1\nsize_in_bytes much\n")
    assert found() == [None, 192]
    bank.unlink()
    assert found() == [None, 192]


def test_a_node_that_is_hidden_is_no_gpu(machine):
    (accelerator.NODES / "2" / "properties").write_text("")
    assert found() == [192]


def test_there_is_none_without_the_driver(machine, tmp_path):
    machine.setattr(accelerator, "NODES", tmp_path / "nowhere")
    assert Rocm().count() == 0
    assert Rocm().memory(0) is None


def test_finding_them_imports_no_torch():
    code = (
        "import sys; from rlinf_plugin_rocm.accelerator import Rocm; Rocm().count(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


def test_it_says_what_a_plan_must_know():
    assert (Rocm.torch_name, Rocm.collective, Rocm.torch_build) == ("cuda", "nccl", "ROCm")
    assert Rocm.visibility_variable in VARIABLES
