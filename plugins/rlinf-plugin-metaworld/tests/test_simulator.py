"""The whole simulator with its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rlinf_plugin_metaworld.config import MetaWorldConfig
from rlinf_plugin_metaworld.simulator import make_simulator

from rlinf_core.api import EnvSlots, ProcessSimulator, StateId
from rlinf_core.testing import SimulatorContract


class TestContract(SimulatorContract):
    def make(self, slots: EnvSlots) -> ProcessSimulator:
        return make_simulator(MetaWorldConfig(processes=2, max_episode_steps=40), slots)


@pytest.fixture
def simulator() -> Iterator[ProcessSimulator]:
    made = make_simulator(MetaWorldConfig(processes=1), EnvSlots((0, 1), seed=0))
    yield made
    made.close()


def child_maps(simulator: ProcessSimulator) -> str:
    return Path(f"/proc/{simulator._children[0].pid}/maps").read_text()


def start(simulator: ProcessSimulator, index: int = 0) -> torch.Tensor:
    states = [StateId("train", index), StateId("train", index + 1)]
    shown: torch.Tensor = simulator.reset(torch.ones(2, dtype=torch.bool), states)["state"]
    return shown


def test_case_e10_without_frames_no_renderer_is_loaded(
    simulator: ProcessSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(simulator)
    simulator.step(torch.zeros(2, 1, 4))
    maps = child_maps(simulator)
    assert "libmujoco" in maps
    assert not any(name in maps for name in ("libGL", "libEGL", "OSMesa", "libX11"))
    assert "torch" not in maps


def test_case_e10_what_the_user_chose_for_frames_is_not_loaded_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    simulator = make_simulator(MetaWorldConfig(processes=1), EnvSlots((0, 1), seed=0))
    start(simulator)
    assert "libEGL" not in child_maps(simulator)
    simulator.close()


def test_case_e09_a_thousand_resets_do_not_grow_memory(simulator: ProcessSimulator) -> None:
    def resident() -> int:
        status = Path(f"/proc/{simulator._children[0].pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])  # KiB

    for index in range(100):
        start(simulator, index)
    before = resident()
    for index in range(1000):
        start(simulator, index)
    assert resident() - before < 2048


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    shown = []
    for processes in (1, 2, 3):
        config = MetaWorldConfig(task="door-open-v3", processes=processes, max_episode_steps=5)
        simulator = make_simulator(config, EnvSlots((0, 1, 2), seed=0, chunk=3))
        states = simulator.initial_states("train")
        simulator.reset(torch.ones(3, dtype=torch.bool), [states[i] for i in range(3)])
        random = torch.Generator().manual_seed(0)
        steps = [simulator.step(torch.rand(3, 3, 4, generator=random) * 2 - 1) for _ in range(3)]
        shown.append(torch.cat([torch.cat([s.obs["state"], s.reward], dim=1) for s in steps]))
        assert steps[1].valid.tolist() == [[True, True, False]] * 3
        simulator.close()
    assert torch.equal(shown[0], shown[1])
    assert torch.equal(shown[0], shown[2])
