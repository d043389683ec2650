"""The whole simulator with its processes."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rlinf_plugin_maniskill import tasks
from rlinf_plugin_maniskill.config import ManiSkillConfig
from rlinf_plugin_maniskill.environment import ManiSkillEnvironment
from rlinf_plugin_maniskill.making import MissingAssets, make_task
from rlinf_plugin_maniskill.simulator import make_simulator

from rlinf_core.api import EnvSlots, ProcessSimulator, SimulatorError, StateId
from rlinf_core.testing import SimulatorContract


class TestContract(SimulatorContract):
    def make(self, slots: EnvSlots) -> ProcessSimulator:
        return make_simulator(ManiSkillConfig(processes=2, max_episode_steps=12), slots)


@pytest.fixture
def simulator() -> Iterator[ProcessSimulator]:
    made = make_simulator(ManiSkillConfig(processes=1), EnvSlots((0, 1), seed=0))
    yield made
    made.close()


def start(simulator: ProcessSimulator, index: int = 0) -> torch.Tensor:
    states = [StateId("train", index), StateId("train", index + 1)]
    shown: torch.Tensor = simulator.reset(torch.ones(2, dtype=torch.bool), states)["state"]
    return shown


STATE_ONLY = """
import pathlib, torch
from rlinf_core.api import EnvSlots, StateId
from rlinf_plugin_maniskill import tasks
from rlinf_plugin_maniskill.config import ManiSkillConfig
from rlinf_plugin_maniskill.environment import ManiSkillEnvironment
from rlinf_plugin_maniskill.making import MissingAssets, make_task
from rlinf_plugin_maniskill.simulator import make_simulator

simulator = make_simulator(ManiSkillConfig(processes=1), EnvSlots((0,), seed=0))
simulator.reset(torch.ones(1, dtype=torch.bool), [StateId("train", 0)])
assert simulator.step(torch.zeros(1, 1, 8)).valid.all()
loaded = {
    pathlib.Path(line.split()[-1]).name
    for line in pathlib.Path(f"/proc/{simulator._children[0].pid}/maps").read_text().splitlines()
    if ".so" in line
}
print(simulator.render(), len(loaded), sorted(
    name for name in loaded
    if name.startswith(("libvulkan", "libLLVM"))
))
simulator.close()
"""


def test_case_e10_states_without_a_renderer(tmp_path: Path) -> None:
    """No Vulkan driver is there: it starts, steps, loads none, and says why nothing is drawn."""
    nowhere = {"VK_ICD_FILENAMES": str(tmp_path / "none.json"), "VK_DRIVER_FILES": ""}
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", STATE_ONLY],
        env={**os.environ, **nowhere},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("None ")
    assert done.stdout.rstrip().endswith(" []")
    assert "no Vulkan device that SAPIEN can use" in done.stderr
    assert "apt-get install libvulkan1 mesa-vulkan-drivers" in done.stderr


def test_case_e10_a_renderer_that_is_there_is_not_loaded(simulator: ProcessSimulator) -> None:
    start(simulator)
    simulator.step(torch.zeros(2, 1, 8))
    for pid in (simulator._children[0].pid, simulator._zygote._process.pid):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "pysapien" in maps
        assert not any(name in maps for name in ("libvulkan.so", "libvulkan_", "libLLVM"))


def test_case_e09_resets_do_not_grow_memory() -> None:
    """Not in a forked process, whose memory grows as it touches what it shares."""

    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])  # KiB

    env = ManiSkillEnvironment("PushCube-v1", {"obs_mode": "state"}, 50)
    gc.collect()
    gc.freeze()  # as the zygote does, and as fast
    for index in range(50):
        env.reset(StateId("train", index))
    before = resident()
    for index in range(200):
        env.reset(StateId("train", index))
    gc.unfreeze()
    assert resident() - before < 200 * 8
    env.close()


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    shown = []
    for processes in (1, 3):
        config = ManiSkillConfig(processes=processes, max_episode_steps=5)
        simulator = make_simulator(config, EnvSlots((0, 1, 2), seed=0, chunk=3))
        states = simulator.initial_states("train")
        simulator.reset(torch.ones(3, dtype=torch.bool), [states[i] for i in range(3)])
        random = torch.Generator().manual_seed(0)
        steps = [simulator.step(torch.rand(3, 3, 8, generator=random) * 2 - 1) for _ in range(3)]
        shown.append(torch.cat([torch.cat([s.obs["state"], s.reward], dim=1) for s in steps]))
        assert steps[1].valid.tolist() == [[True, True, False]] * 3
        assert steps[1].truncated.tolist() == [[False, True, False]] * 3
        simulator.close()
    assert torch.equal(*shown)


def test_a_saved_simulator_goes_on_bit_for_bit(simulator: ProcessSimulator) -> None:
    start(simulator, 3)
    random = torch.Generator().manual_seed(0)
    moves = torch.rand(8, 2, 1, 8, generator=random) * 2 - 1
    for move in moves[:4]:
        simulator.step(move)
    saved = simulator.state_dict()
    straight = [simulator.step(move).obs["state"] for move in moves[4:]]
    start(simulator, 8)
    simulator.load_state_dict(saved)
    for wanted, move in zip(straight, moves[4:], strict=True):
        assert torch.equal(wanted, simulator.step(move).obs["state"])


def test_missing_assets_are_an_error_with_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MS_ASSET_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # nobody asks for it
    told = "PickSingleYCB-v1 needs files.*: python -m .*download_asset -y PickSingleYCB-v1"
    with pytest.raises(SimulatorError, match=told):
        make_simulator(ManiSkillConfig(task="PickSingleYCB-v1"), EnvSlots((0,), seed=0))
    assert sys.stdin.read() == "y\n"


@pytest.mark.parametrize(
    ("task", "uid"),
    [
        ("UnitreeH1Stand-v1", "unitree_h1_simplified"),  # a robot
        ("ReplicaCAD_SceneManipulation-v1", "ReplicaCAD"),  # looked for without asking
        ("OpenCabinetDoor-v1", "partnet_mobility_cabinet"),
    ],
)
def test_missing_assets_of_each_sort_are_named(
    task: str, uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("it asked"))
    with pytest.raises(MissingAssets) as caught:
        make_task(task, obs_mode="state")
    assert caught.value.command == f"python -m mani_skill.utils.download_asset -y {uid}"
    assert tasks.missing(task) == caught.value.command
