"""NPUs, as the driver would list them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rlinf_plugin_ascend import accelerator
from rlinf_plugin_ascend.accelerator import Ascend
from rlinf_plugin_ascend.probe import probe


@pytest.fixture
def machine(tmp_path, monkeypatch):
    for name in ("davinci2", "davinci3", "davinci10", "davinci_manager", "tty0", "davinci"):
        (tmp_path / name).touch()
    monkeypatch.setattr(accelerator, "DEVICES", tmp_path)
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("shown", "count"),
    [(None, 3), ("", 0), ("0", 1), ("0,1,2", 3), ("1,3", 1), ("0,-1,2", 1), ("2", 1), ("3", 0)],
)
def test_npus_are_counted_as_far_as_they_are_shown(machine, shown, count):
    if shown is not None:
        machine.setenv("ASCEND_RT_VISIBLE_DEVICES", shown)
    assert Ascend().count() == count


def test_there_is_none_without_the_driver(machine, tmp_path):
    machine.setattr(accelerator, "DEVICES", tmp_path / "nowhere")
    assert Ascend().count() == 0


def test_memory_is_unknown():
    assert Ascend().memory(0) is None


def test_it_says_what_a_plan_must_know():
    assert (Ascend.torch_name, Ascend.collective, Ascend.torch_build) == ("npu", "hccl", "cpu")


def test_finding_them_imports_no_torch():
    code = (
        "import sys; from rlinf_plugin_ascend.accelerator import Ascend; Ascend().count(); "
        "assert not {'torch', 'torch_npu'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_probe_says_whether_torch_npu_is_there_and_imports_it_not(tmp_path, monkeypatch):
    (found,) = probe()
    assert (found.ready, found.found) == (False, "not installed")
    assert "torch_npu" in found.remedy
    (tmp_path / "torch_npu.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = probe()
    assert found.ready
