"""The core's own components, each by itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from rlinf_core.builtin import nvml
from rlinf_core.builtin.accelerators import Cpu, Cuda
from rlinf_core.builtin.config import ConsoleConfig, DirectConfig
from rlinf_core.builtin.console import ConsoleLogger
from rlinf_core.builtin.direct import DirectEngine
from rlinf_core.builtin.jsonl import JsonlLogger
from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import Draws
from rlinf_core.errors import RequestError
from rlinf_core.protocols.logger import RunInfo
from rlinf_core.protocols.policy import Mode
from rlinf_core.protocols.simulator import EnvSlots
from rlinf_core.runtime.dequeue import Fifo
from rlinf_core.testing import ToyConfig, ToyPolicy, ToySimulator
from rlinf_core.transport.weights import WeightStream


def policy() -> ToyPolicy:
    return ToyPolicy(None, ToySimulator(ToyConfig(), EnvSlots((0,), seed=0)).spaces, 1)


def info(folder, first_step=0, total=9) -> RunInfo:
    return RunInfo("name", folder, {}, first_step, total)


# --- direct ---------------------------------------------------------------------------------------


def test_direct_acts_in_pieces_with_the_same_numbers():
    obs = Batch({"state": torch.randn(7, 2)})
    acts = []
    for size in (None, 1, 3, 7, 100):
        engine = DirectEngine(DirectConfig(batch_size=size), "cpu")
        engine.build(policy)
        acts.append(engine.act(obs, Draws(0, range(7), [4] * 7), Mode.SAMPLE))
        values = engine.act(obs, None, Mode.VALUE)
        assert values.actions is None
        assert values.replay is None
        assert torch.equal(values.value, acts[0].value)
    for act in acts[1:]:
        assert torch.equal(act.actions, acts[0].actions)
        assert torch.equal(act.logp, acts[0].logp)
        assert torch.equal(act.replay["noise"], acts[0].replay["noise"])


def test_direct_keeps_weights_of_its_own_without_gradients():
    engine = DirectEngine(DirectConfig(), "cpu")
    engine.build(policy)
    assert engine.version == -1
    source = policy()
    torch.nn.init.constant_(source.gain, 0.5)
    engine.load(WeightStream.of(source, 3), 3)
    torch.nn.init.constant_(source.gain, 9.0)
    act = engine.act(Batch({"state": torch.ones(1, 2)}), None, Mode.GREEDY)
    assert act.actions[0, 0, 0] == -0.5
    assert engine.version == 3
    assert not act.value.requires_grad


def test_direct_refuses_to_generate_text():
    with pytest.raises(RequestError, match="does not generate text"):
        DirectEngine(DirectConfig(), "cpu").generate([])


# --- loggers --------------------------------------------------------------------------------------


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_case_l03_jsonl_writes_nan_as_null_and_keeps_times_apart(tmp_path):
    logger = JsonlLogger(None, info(tmp_path))
    logger.log(1, {"a": float("nan"), "b": 2.0, "time/x_s": 0.5})
    logger.close("done")
    assert lines(tmp_path) == [{"step": 1, "metrics": {"a": None, "b": 2.0}, "time": {"x_s": 0.5}}]


def test_case_l02_resuming_at_an_earlier_step_drops_what_will_be_repeated(tmp_path):
    logger = JsonlLogger(None, info(tmp_path))
    for step in range(1, 6):
        logger.log(step, {"a": float(step)})
    logger.close("failed")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "met')  # killed while writing
    logger = JsonlLogger(None, info(tmp_path, first_step=3))
    logger.log(4, {"a": 40.0})
    logger.close("done")
    assert [(line["step"], line["metrics"]["a"]) for line in lines(tmp_path)] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
        (4, 40.0),
    ]


def test_a_line_is_on_its_way_to_disk_when_log_returns(tmp_path):
    logger = JsonlLogger(None, info(tmp_path))
    logger.log(1, {"a": 1.0})
    assert len(lines(tmp_path)) == 1
    logger.close("done")


def test_console_prints_progress_to_standard_error_only(tmp_path, capsys):
    logger = ConsoleLogger(ConsoleConfig(every=1000.0), info(tmp_path, total=3))
    logger.log(1, {"episode/success_once": 0.5, "train/approx_kl": float("nan")})
    logger.log(2, {"episode/success_once": 0.75})  # too soon after the first
    logger.log(3, {"episode/success_once": 1.0})  # the last is always shown
    logger.message("[a message] in brackets")
    logger.close("done")
    out, err = capsys.readouterr()
    assert out == ""
    assert "iteration 1/3" in err
    assert "success 50%" in err
    assert "nan" not in err
    assert "iteration 2/3" not in err
    assert "iteration 3/3" in err
    assert "[a message] in brackets" in err


# --- accelerators and policies --------------------------------------------------------------------


def test_cpu_is_one_device_with_this_machines_memory():
    assert Cpu().count() == 1
    assert Cpu().memory(0) > 2**28


def test_cuda_counts_what_the_driver_lists_and_honours_the_visibility_variable(
    tmp_path, monkeypatch
):
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(nvml, "DRIVER_FOLDER", tmp_path)
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml-of-nobody.so")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert Cuda().count() == 2
    for shown, count in [("", 0), ("1", 1), ("0,1", 2), ("-1", 0), ("0,1,2,3", 2)]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert Cuda().count() == count, shown


def test_cuda_finds_none_without_a_driver_and_imports_no_torch():
    code = (
        "import sys; from rlinf_core.builtin.accelerators import Cuda, Cpu; "
        "Cuda().count(); Cpu().count(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fifo_hands_out_the_oldest():
    assert Fifo().choose([3.0, 1.0, 2.0], consumer=1, served=[0.0, 9.0]) == 0
