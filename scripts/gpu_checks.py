"""What ``scripts/gpu_check`` checks, each in a process of its own: ``gpu_checks.py NAME DEVICE``.

A check is a function of torch's type of device, "cuda" or "cpu"; it returns a note, raises
:class:`NotHere` where there is nothing to check, and anything else where it fails. Add one with
:func:`check`; they run in the order of this file. On the CPU each goes as far as a CPU reaches.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class NotHere(Exception):
    """There is nothing to check, and why."""


class Check(NamedTuple):
    """One check: what does it, and the seconds that it may take."""

    run: Callable[[str], str]
    seconds: float


CHECKS: dict[str, Check] = {}
"""By name, in order."""


def check(name: str, seconds: float = 120.0) -> Callable[[Callable[[str], str]], None]:
    """Register a check."""

    def register(function: Callable[[str], str]) -> None:
        CHECKS[name] = Check(function, seconds)

    return register


def main(name: str, device: str) -> None:
    """Do one check, and print what came of it as one line of JSON, the last on standard output."""
    try:
        result, note = "ok", CHECKS[name].run(device)
    except NotHere as reason:
        result, note = "not here", str(reason)
    except BaseException as error:
        traceback.print_exc()
        result, note = "failed", f"{type(error).__name__}: {error}"
    sys.stdout.flush()
    print(json.dumps({"result": result, "note": " ".join(note.split())[:300]}))


# --- the device -----------------------------------------------------------------------------------


@check("device")
def _device(device: str) -> str:
    """It is counted and measured without torch, and torch then says the same."""
    from rlinf_core.builtin.accelerators import Cpu, Cuda

    found = {"cuda": Cuda, "cpu": Cpu}[device]()
    count, memory = found.count(), found.memory(0)
    assert "torch" not in sys.modules, "counting imported torch"
    assert count > 0, "none found"
    if device == "cpu":
        return f"{count}, {_gib(memory)}"
    import torch

    assert count == torch.cuda.device_count(), f"{count}, and torch has {torch.cuda.device_count()}"
    assert memory is not None, "its memory cannot be told without torch"
    whole = torch.cuda.get_device_properties(0).total_memory
    # The driver keeps some back: what CUDA gives is a little less than what the device has.
    assert 0.9 <= whole / memory <= 1.0, f"{memory} bytes, and torch says {whole}"
    return f"{count} x {torch.cuda.get_device_name(0)}, {_gib(memory)}, of which CUDA {_gib(whole)}"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"


# --- numbers --------------------------------------------------------------------------------------


def _policy(seed: int = 3) -> Callable[[], Any]:
    """Return what makes the quick start's policy, with the same weights every time."""
    from rlinf_core.config.validate import load_run
    from rlinf_core.runs.workers.build import policy_factory

    run = load_run("quickstart")
    chosen = run.components["model"]
    ref, spaces = run.registry.ref(chosen.component), run.facts["simulator"].spaces
    return policy_factory(ref, chosen.config, spaces, 1, seed)


def _observations(rows: int) -> Any:
    import torch

    from rlinf_core.api import Batch
    from rlinf_core.config.validate import load_run

    space = load_run("quickstart").facts["simulator"].spaces.observation
    generator = torch.Generator().manual_seed(1)
    shapes = {name: box.shape for name, box in space.spaces.items()}
    return Batch(
        {name: torch.randn(rows, *shape, generator=generator) for name, shape in shapes.items()}
    )


def _act(device: str, rows: int = 256) -> Any:
    from rlinf_core.api import Mode
    from rlinf_core.builtin.config import DirectConfig
    from rlinf_core.builtin.direct import DirectEngine
    from rlinf_core.data.draws import DrawsAhead

    engine = DirectEngine(DirectConfig(), device)
    engine.build(_policy())
    return engine.act(_observations(rows), DrawsAhead(5).at(list(range(rows)), 7), Mode.SAMPLE)


def _train(device: str, updates: int = 10, **options: Any) -> Any:
    """Return a training backend after some updates on the same rows."""
    import torch
    from rlinf_plugin_torch.backend import TorchBackend
    from rlinf_plugin_torch.config import TorchConfig

    from rlinf_core.api import Batch

    act = _act("cpu")
    generator = torch.Generator().manual_seed(2)
    wanted = torch.randn(len(act.logp), generator=generator)
    old = act.logp.flatten(1).sum(1)  # [N], whatever the policy's level
    batch = Batch({"replay": act.replay, "old": old, "wanted": wanted})
    # Not Adam: it makes a whole step of a gradient that is nothing but rounding.
    config = TorchConfig(optimizer="sgd", learning_rate=1e-2, momentum=0.9, **options)
    backend = TorchBackend(config, device)
    backend.build(_policy())

    def loss(micro: Any, found: Any) -> Any:
        logp = found.logp.float().flatten(1).sum(1)
        gain = micro["wanted"] * torch.exp(logp - micro["old"])
        value = (found.value.float() - micro["wanted"]) ** 2
        whole = (value - gain).sum() / len(batch)
        return whole, {"value_loss": (value.detach().sum(), torch.tensor(float(len(value))))}

    for _ in range(updates):
        numbers = backend.update(batch.split(64), loss)
        assert math.isfinite(numbers["loss"]), f"the loss is {numbers['loss']}"
    return backend


def _farthest(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return max(float((one[n].cpu().double() - other[n].cpu().double()).abs().max()) for n in one)


@check("rollout engine")
def _rollout(device: str) -> str:
    """The engine ``direct`` acts as on a CPU, with the same draws."""
    here, there = _act("cpu"), _act(device)
    pairs = {name: (getattr(here, name), getattr(there, name)) for name in ("actions", "logp")}
    pairs["value"] = (here.value, there.value)
    worst = {name: float((a - b).abs().max()) for name, (a, b) in pairs.items()}
    assert max(worst.values()) < 1e-3, f"farther from the CPU's than 1e-3: {worst}"
    return "farthest from the CPU's: " + ", ".join(f"{n} {d:.1e}" for n, d in worst.items())


@check("training backend")
def _training(device: str) -> str:
    """The backend ``torch`` comes to the CPU's weights, and to its own again bit for bit."""
    here, there = (_train(d).policy.state_dict() for d in ("cpu", device))
    again = _train(device).policy.state_dict()
    assert {tensor.device.type for tensor in there.values()} == {device}
    worst, repeated = _farthest(here, there), _farthest(there, again)
    assert worst < 1e-4, f"a weight is {worst:.1e} from the CPU's"
    return f"farthest weight {worst:.1e} from the CPU's, {repeated:.1e} from its own again"


@check("precisions")
def _precisions(device: str) -> str:
    """bf16 and fp16 train; where a gradient overflows, the loss scale halves and nothing moves."""
    import torch

    from rlinf_core.api import Batch

    full = _train(device).policy.state_dict()
    apart = {p: _farthest(full, _train(device, precision=p).policy.state_dict()) for p in _HALF}
    assert max(apart.values()) < 5e-2, f"too far from fp32: {apart}"
    backend = _train(device, updates=1, precision="fp16")
    before = {name: t.clone() for name, t in backend.policy.state_dict().items()}
    scale, act = backend._scaler.get_scale(), _act("cpu")

    def overflow(micro: Any, found: Any) -> Any:
        return found.value.float().sum() * 1e38, {"x": (torch.tensor(1.0), torch.tensor(1.0))}

    numbers = backend.update([Batch({"replay": act.replay})], overflow)
    assert numbers["skipped"] == 1.0, "a gradient that overflowed was used"
    assert backend._scaler.get_scale() == scale / 2, "the loss scale did not go down"
    assert _farthest(before, backend.policy.state_dict()) == 0.0, "weights moved"
    shown = ", ".join(f"{name} {far:.1e}" for name, far in apart.items())
    return f"from fp32: {shown}; loss scale {scale:g} halved by an overflow"


_HALF = ("bf16", "fp16")


@check("offload")
def _offload(device: str) -> str:
    """What is offloaded leaves the device's memory, and comes back bit for bit."""
    import torch

    backend = _train(device)
    before = {name: t.cpu().clone() for name, t in backend.policy.state_dict().items()}
    held = torch.cuda.memory_allocated() if device == "cuda" else 0
    backend.offload()
    left = torch.cuda.memory_allocated() if device == "cuda" else 0
    backend.onload()
    assert _farthest(before, backend.policy.state_dict()) == 0.0, "weights changed"
    if device == "cpu":
        return "weights unchanged; a CPU has nowhere to offload to"
    back = torch.cuda.memory_allocated()
    assert left < held / 2, f"{left} of {held} bytes stayed on the device"
    return f"{held} bytes held, {left} after offloading, {back} after onloading"


# --- runs -----------------------------------------------------------------------------------------


def _run(device: str, *options: str) -> tuple[Any, Any]:
    """Train the quick start for two iterations; return the result and its timeline."""
    from rlinf_core.config.validate import load_run
    from rlinf_core.flow.timeline import read_timeline
    from rlinf_core.runs.train import train

    short = ("steps=2", "evaluation.episodes=8", "evaluation.video=false", "loggers=[jsonl]")
    with tempfile.TemporaryDirectory(prefix="rlinf-gpu-check-") as folder:
        where = Path(folder, "run")
        run = load_run("quickstart", [*short, f"cluster.devices='1 x {device}'", *options])
        result = train(run, where, resume=False)
        timeline = read_timeline(where / "timeline.json")
    metrics = result.last_metrics
    broken = [n for n, v in metrics.items() if not math.isfinite(v) and n.startswith("train/")]
    assert result.outcome == "done", result.outcome
    assert not broken, f"not finite: {broken}"
    return result, timeline


def _told(result: Any) -> str:
    metrics = result.last_metrics
    return (
        f"return {metrics['episode/return']:.1f}, kl {metrics['train/approx_kl']:.4f}, "
        f"{metrics['time/iteration_s']:.1f} s an iteration"
    )


@check("quick start", seconds=180)
def _quickstart(device: str) -> str:
    """Two iterations, collocated in one process."""
    result, _ = _run(device)
    return _told(result)


@check("quick start by turns", seconds=180)
def _turns(device: str) -> str:
    """Collocated by turns in processes: whoever leaves the device offloads."""
    alone = "placement={simulation: 0, rollout: 0, training: 0}"
    result, timeline = _run(device, alone, "cluster.sharing=turns", "cluster.runtime=processes")
    switches = [i for call in timeline.calls for i in call.within if i[0] == "switch"]
    assert switches, "nobody left the device for another"
    return f"{len(switches)} switches; {_told(result)}"


@check("quick start, hybrid", seconds=180)
def _hybrid(device: str) -> str:
    """Simulation and rollout pipelined in processes of their own, on one device with training."""
    share = "placement={simulation: 0, rollout: 0, training: 0}"
    result, timeline = _run(device, share, "cluster.runtime=processes", "collect.stages=2")
    workers = {worker for there in timeline.devices.values() for worker in there}
    assert {"simulation[0]", "rollout[0]", "training[0]"} <= workers
    return _told(result)


# --- between processes ----------------------------------------------------------------------------


@check("channels")
def _channels(device: str) -> str:
    """Tensors of the device go through a channel between processes, and arrive as they were."""
    from gpu_workers import check_channels

    return check_channels(device)


def _by(way: str, device: str) -> str:
    """Train with weights that go one way, between processes; return a note."""
    share = "placement={simulation: 0, rollout: 0, training: 0}"
    result, _ = _run(device, share, "cluster.runtime=processes", f"weights.way={way}")
    return f"way {way}; {_told(result)}"


@check("weights by handle", seconds=180)
def _handle(device: str) -> str:
    """Weights between two processes on one device, through a handle to its memory."""
    return _by("shared_memory" if device == "cpu" else "device_handle", device)


@check("weights by collective", seconds=180)
def _collective(device: str) -> str:
    """Weights between GPUs by NCCL; with one GPU only that NCCL itself works, on one rank."""
    if device == "cpu":
        return _by("gloo", device)
    import torch
    import torch.distributed as dist

    if torch.cuda.device_count() > 1:
        apart = "placement={simulation: 0, rollout: 0, training: 1}"
        two = f"cluster.devices='2 x {device}'"
        options = (two, apart, "cluster.runtime=processes", "weights.way=collective")
        return f"way collective; {_told(_run(device, *options)[0])}"
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 1)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1)
        ones = torch.ones(1024, device=device)
        dist.all_reduce(ones)
        assert float(ones.sum()) == 1024.0
        dist.destroy_process_group()
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return f"one GPU: NCCL {version} adds up on one rank; between GPUs never run"


@check("ManiSkill on the GPU")
def _maniskill(device: str) -> str:
    """Simulation on the GPU."""
    raise NotHere("not built: rlinf-plugin-maniskill simulates on the CPU only")


@check("tests marked gpu", seconds=180)
def _marked(device: str) -> str:
    """The tests that are skipped elsewhere."""
    if importlib.util.find_spec("pytest") is None:
        raise NotHere("pytest is not installed")
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/test_*.py")]
    marked = [str(file) for file in sorted(files) if "mark.gpu" in file.read_text("utf-8")]
    options = ["-q", "-m", "gpu", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *marked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    said = lines[-1].strip("= ") if lines else done.stderr.strip()
    assert done.returncode == 0, said
    if device == "cpu":
        raise NotHere(said)
    return said


if __name__ == "__main__":
    main(*sys.argv[1:3])
