"""ProcessSimulator over toy environments."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rlinf_core.errors import SimulatorError
from rlinf_core.protocols.runtime import WorkerSpec
from rlinf_core.protocols.simulator import EnvSlots, Spaces, StateId, Step
from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.runtime.worker import Place, Worker
from rlinf_core.simulation import ProcessSimulator
from rlinf_core.testing import SimulatorContract

HERE = Path(__file__).parent
STATE = spaces.Box(-np.inf, np.inf, (4,), np.float32)
ACTION = spaces.Box(-1, 1, (2,), np.float32)
PLAIN = Spaces(spaces.Dict({"state": STATE}), ACTION)
RICH = Spaces(
    spaces.Dict(
        {
            "state": STATE,
            "images": spaces.Dict({"wrist": spaces.Box(0, 255, (4, 6, 3), np.uint8)}),
            "task": spaces.Text(100),
        }
    ),
    ACTION,
)
Make = Callable[..., ProcessSimulator]


def make_counting(slots: EnvSlots, processes: int = 2, **options: Any) -> ProcessSimulator:
    given = {name: options.pop(name) for name in ("frame", "timeout") if name in options}
    return ProcessSimulator(
        slots,
        RICH if options.get("images") else PLAIN,
        "simulation_toys:Counting",
        options,
        states={"train": 10**6, "test": 10},
        processes=processes,
        imports=["simulation_toys"],
        **given,
    )


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[ProcessSimulator] = []

    def build(count: int = 4, processes: int = 2, chunk: int = 1, **options: Any) -> Any:
        slots = EnvSlots(tuple(range(10, 10 + count)), seed=0, chunk=chunk)
        made.append(make_counting(slots, processes, **options))
        return made[-1]

    yield build
    for simulator in made:
        simulator.close()


def states(*indices: int) -> list[StateId]:
    return [StateId("train", index) for index in indices]


def everyone(count: int) -> Tensor:
    return torch.ones(count, dtype=torch.bool)


def only(count: int, *rows: int) -> Tensor:
    mask = torch.zeros(count, dtype=torch.bool)
    mask[list(rows)] = True
    return mask


def act(count: int, chunk: int = 1, seed: int = 0) -> Tensor:
    return torch.rand(count, chunk, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1


class TestContract(SimulatorContract):
    def make(self, slots: EnvSlots) -> ProcessSimulator:
        return make_counting(slots)


class TestContractWithImagesAndTasks(SimulatorContract):
    def make(self, slots: EnvSlots) -> ProcessSimulator:
        return make_counting(slots, images=True)


def test_case_e01_a_masked_reset_moves_only_its_own(make: Make) -> None:
    simulator = make(4, length=5)
    simulator.reset(everyone(4), states(0, 1, 2, 3))
    simulator.step(act(4, seed=1))
    before = simulator.step(act(4, seed=2)).obs["state"]
    after = simulator.reset(only(4, 1, 3), states(8, 9))["state"]
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert after[:, 1].tolist() == [2, 0, 2, 0]  # steps taken
    assert not torch.equal(after[1], before[1])
    ends = []
    for seed in range(5):
        step = simulator.step(act(4, seed=seed))
        ends.append((step.terminated | step.truncated)[:, 0].tolist())
    assert ends[2] == [True, False, True, False]  # their fifth step
    assert ends[4] == [False, True, False, True]


def test_case_e03_actions_after_the_end_of_an_episode_are_not_executed(make: Make) -> None:
    simulator = make(3, chunk=5, length=2)
    simulator.reset(everyone(3), states(0, 1, 2))
    actions = act(3, chunk=5)
    step = simulator.step(actions)
    assert step.valid.tolist() == [[True, True, False, False, False]] * 3
    assert step.terminated[:, 1].tolist() == [True, False, True]
    assert step.truncated[:, 1].tolist() == [False, True, False]
    assert step.success.tolist() == [[False, True, False, False, False]] * 3
    assert torch.allclose(step.reward[:, :2], actions[:, :2].sum(-1))
    assert not step.reward[:, 2:].any()
    assert torch.equal(step.obs["state"][:, 2:], actions[:, 1])  # the last one executed
    assert step.final_obs is None
    waiting = simulator.step(act(3, chunk=5, seed=1))
    assert not waiting.valid.any()
    assert not waiting.reward.any()
    assert torch.equal(waiting.obs["state"], step.obs["state"])
    simulator.reset(only(3, 1), states(7))
    assert simulator.step(actions).valid.any(1).tolist() == [False, True, False]


def test_nothing_is_executed_before_the_first_reset(make: Make) -> None:
    simulator = make(3)
    assert not simulator.step(act(3)).valid.any()
    simulator.reset(only(3, 2), states(0))
    assert simulator.step(act(3)).valid[:, 0].tolist() == [False, False, True]


def roll(simulator: ProcessSimulator, count: int, chunk: int) -> list[Step]:
    steps, started = [], count
    simulator.reset(everyone(count), states(*range(count)))
    for seed in range(12):
        step = simulator.step(act(count, chunk, seed))
        steps.append(step)
        ended = (step.terminated | step.truncated).any(1)
        number = int(ended.sum())
        simulator.reset(ended, states(*range(started, started + number)))
        started += number
    return steps


def test_results_do_not_depend_on_the_number_of_processes(make: Make) -> None:
    one, two, three = (roll(make(5, n, chunk=3, length=7), 5, 3) for n in (1, 2, 3))
    for a, b, c in zip(one, two, three, strict=True):
        for other in (b, c):
            assert torch.equal(a.obs["state"], other.obs["state"])
            for name in ("reward", "terminated", "truncated", "success", "valid"):
                assert torch.equal(getattr(a, name), getattr(other, name))


def test_case_e05_the_same_state_gives_the_same_episode(make: Make) -> None:
    simulator = make(2)
    first, other, third = (
        simulator.reset(everyone(2), states(n, n))["state"].clone() for n in (42, 7, 42)
    )
    assert torch.equal(first, third)
    assert not torch.equal(first, other)
    assert torch.equal(first[0], first[1])


def test_images_tasks_and_frames(make: Make) -> None:
    simulator = make(3, images=True, frame=(4, 6))
    obs = simulator.reset(everyone(3), states(5, 6, 7))
    assert obs["task"] == ["count from 5", "count from 6", "count from 7"]
    obs = simulator.step(act(3)).obs
    assert obs["images"]["wrist"].dtype == torch.uint8
    assert (obs["images"]["wrist"] == 1).all()
    frames = simulator.render()
    assert frames is not None
    assert frames.shape == (3, 4, 6, 3)
    assert (frames == 10).all()
    obs = simulator.reset(only(3, 1), states(9))
    assert obs["task"] == ["count from 5", "count from 9", "count from 7"]
    assert obs["images"]["wrist"].flatten(1).float().mean(1).tolist() == [1, 0, 1]


def test_what_cannot_be_drawn_is_none_with_one_warning(make: Make) -> None:
    simulator = make(2, frame=(4, 6))
    simulator.reset(everyone(2), states(0, 1))
    with pytest.warns(RuntimeWarning, match="counting has no looks"):
        assert simulator.render() is None
    assert simulator.render() is None  # a second warning would be an error here
    assert make(2).render() is None


@pytest.mark.filterwarnings("error")
def test_restore_goes_on_bit_for_bit_with_any_number_of_processes(make: Make) -> None:
    simulator = make(3, length=6, images=True)
    simulator.reset(only(3, 0, 1), states(4, 5))  # the third has never begun
    simulator.step(act(3, seed=1))
    file = io.BytesIO()
    torch.save(simulator.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)  # tensors and plain data, nothing else
    straight = [simulator.step(act(3, seed=seed)) for seed in range(6)]
    other = make(3, 3, length=6, images=True)
    other.reset(everyone(3), states(1, 2, 3))
    other.load_state_dict(saved)
    shown = other.reset(only(3), [])
    assert shown["task"] == ["count from 4", "count from 5", ""]
    for seed, step in enumerate(straight):
        again = other.step(act(3, seed=seed))
        assert torch.equal(step.obs["state"], again.obs["state"])
        assert torch.equal(step.valid, again.valid)
        assert torch.equal(step.reward, again.reward)


def test_restore_into_another_number_of_environments_is_refused(make: Make) -> None:
    saved = make(3).state_dict()
    with pytest.raises(SimulatorError, match="3 environments into 2"):
        make(2).load_state_dict(saved)


# --- misuse -------------------------------------------------------------------------------------


def test_wrong_requests_are_refused_and_the_simulator_goes_on(make: Make) -> None:
    simulator = make(3, chunk=2)
    simulator.reset(everyone(3), states(0, 1, 2))
    with pytest.raises(SimulatorError, match=r"shape \[3, 1, 2\]; wanted \[3, 2, 2\]"):
        simulator.step(act(3, chunk=1))
    with pytest.raises(SimulatorError, match="3 environments with 1 states"):
        simulator.reset(everyone(3), states(0))
    with pytest.raises(SimulatorError, match=r"torch.int64 \[3\]; wanted torch.bool \[3\]"):
        simulator.reset(torch.ones(3, dtype=torch.long), states(0, 1, 2))
    with pytest.raises(SimulatorError, match="no split 'tran'.*Did you mean 'train'"):
        simulator.initial_states("tran")
    bad = act(3, chunk=2)
    bad[1, 1, 0] = torch.nan
    with pytest.raises(SimulatorError, match=r"not finite, for environments \[11\]"):
        simulator.step(bad)
    assert simulator.step(act(3, chunk=2)).valid.all()


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("raise", r"(?s)environments \[12\] failed in step.*ValueError: the gripper fell off"),
        ("shape", r"(?s)environments \[12\] failed in step.*shape \(1,\); the space says \(4,\)"),
        ("die", r"(?s)environments \[12, 13\] failed in step.*ended by SIGKILL.*last words"),
        ("hang", r"environments \[12, 13\] failed in step: no answer in 1.0 s"),
    ],
)
def test_case_r01_a_failure_is_told_within_seconds(make: Make, trouble: str, told: str) -> None:
    simulator = make(4, trouble={2: trouble})
    simulator.reset(everyone(4), states(0, 1, 2, 3))
    simulator.step(act(4))
    start = time.monotonic()
    simulator._timeout = 1.0 if trouble == "hang" else 60.0
    with pytest.raises(SimulatorError, match=told):
        simulator.step(act(4))
    assert time.monotonic() - start < 5
    with pytest.raises(SimulatorError, match="cannot go on: an earlier step failed"):
        simulator.step(act(4))
    simulator.close()
    assert time.monotonic() - start < 10


def test_case_r01_an_environment_that_cannot_be_made_is_told(make: Make) -> None:
    simulator = make(2, refuse=True)
    told = r"(?s)environments \[1[01]\] failed in make.*ValueError: no such scene"
    with pytest.raises(SimulatorError, match=told):
        simulator.reset(everyone(2), states(0, 1))


def test_case_r01_a_class_that_cannot_be_imported_is_told() -> None:
    slots = EnvSlots((0,), seed=0)
    simulator = ProcessSimulator(slots, PLAIN, "no_such_module:Env", {}, states={"train": 1})
    with pytest.raises(SimulatorError, match=r"(?s)failed in make.*No module named 'no_such_mod"):
        simulator.reset(everyone(1), states(0))
    simulator.close()


def test_case_r02_a_killed_process_is_noticed_while_others_work(make: Make) -> None:
    simulator = make(4, trouble={0: "die", 2: "hang"})
    simulator.reset(everyone(4), states(0, 1, 2, 3))
    simulator.step(act(4))
    start = time.monotonic()
    with pytest.raises(SimulatorError, match=r"environments \[10, 11\] failed in step.*SIGKILL"):
        simulator.step(act(4))
    assert time.monotonic() - start < 2


class Stepping(Worker):
    """Steps a simulator for ever, as one of a run does."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.simulator = make_counting(EnvSlots((0, 1, 2, 3), seed=0))

    def start(self) -> list[int]:
        self.simulator.reset(everyone(4), states(0, 1, 2, 3))
        zygote = self.simulator._zygote._process.pid
        return [zygote, *(child.pid for child in self.simulator._children)]

    def step(self) -> None:
        while True:
            self.simulator.step(act(4))

    def close(self) -> None:
        self.simulator.close()


def test_an_interrupt_ends_a_run_whose_simulator_is_stuck() -> None:
    runtime = InlineRuntime()
    group = runtime.launch(WorkerSpec("simulation", f"{__name__}:Stepping"))
    [pids] = group.call("start").wait()
    os.kill(pids[1], signal.SIGSTOP)
    relief = threading.Timer(20.0, os.kill, (pids[1], signal.SIGKILL))
    timers = [threading.Timer(1.0, runtime.interrupt), relief]
    for timer in timers:
        timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        group.call("step").wait()
    assert time.monotonic() - start < 8
    runtime.close()
    assert time.monotonic() - start < 10
    relief.cancel()
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)
    assert runtime.failure is None


def test_a_process_that_answers_after_a_while_is_waited_for(make: Make) -> None:
    simulator = make(2, 1)
    simulator.reset(everyone(2), states(0, 1))
    pid = simulator._children[0].pid
    os.kill(pid, signal.SIGSTOP)
    relief = threading.Timer(1.2, os.kill, (pid, signal.SIGCONT))  # more than two looks at a stop
    relief.start()
    assert simulator.step(act(2)).valid.all()
    relief.join()


def test_close_may_come_twice_and_ends_everything(make: Make) -> None:
    simulator = make(4)
    simulator.reset(everyone(4), states(0, 1, 2, 3))
    pids = [child.pid for child in simulator._children]
    zygote = simulator._zygote
    simulator.close()
    simulator.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not zygote.alive
    with pytest.raises(SimulatorError, match="it was closed"):
        simulator.step(act(4))


def test_simulators_share_a_zygote_until_the_last_one_closes(make: Make) -> None:
    first, second = make(2), make(2)
    assert first._zygote is second._zygote
    first.reset(everyone(2), states(0, 1))
    first.close()
    second.reset(everyone(2), states(0, 1))
    assert second._zygote.alive
    second.close()
    assert not second._zygote.alive
    assert make(2)._zygote is not second._zygote


def test_children_import_no_torch(make: Make) -> None:
    simulator = make(2, 1)
    simulator.reset(everyone(2), states(0, 1))
    maps = Path(f"/proc/{simulator._children[0].pid}/maps").read_text()
    assert "numpy" in maps
    assert "torch" not in maps


def test_case_e09_a_thousand_resets_do_not_grow_memory(make: Make) -> None:
    simulator = make(2, 1)

    def resident() -> int:
        status = Path(f"/proc/{simulator._children[0].pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])  # KiB

    for index in range(100):
        simulator.reset(everyone(2), states(index, index + 1))
    before = resident()
    for index in range(1000):
        simulator.reset(everyone(2), states(index, index + 1))
    assert resident() - before < 1024


DRIVER = """
import sys, time, os, torch
sys.path[:0] = [{here!r}]
from test_processes import make_counting, states, everyone, act
from rlinf_core.protocols.simulator import EnvSlots
simulator = make_counting(EnvSlots((0, 1, 2, 3), 0))
simulator.reset(everyone(4), states(0, 1, 2, 3))
print(simulator._zygote._process.pid, *[c.pid for c in simulator._children], flush=True)
while True:
    simulator.step(act(4))
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_case_r02_no_process_and_no_shared_memory_is_left_mid_rollout(how: str) -> None:
    before = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(here=str(HERE))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    assert len(pids) == 3
    time.sleep(0.2)
    start = time.monotonic()
    if how == "SIGINT":
        os.killpg(driver.pid, signal.SIGINT)
    else:
        driver.send_signal(getattr(signal, how))
    _, errors = driver.communicate(timeout=10)
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
        assert time.monotonic() - start < 8
        time.sleep(0.05)
    assert set(os.listdir("/dev/shm") if Path("/dev/shm").is_dir() else []) <= before
    if how == "SIGINT":
        assert errors.count("Traceback") == 1, errors  # the driver's; children stay silent
