"""Images and instructions as observations. These need OSMesa or EGL."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from rlinf_plugin_metaworld import rendering
from rlinf_plugin_metaworld.config import MetaWorldConfig
from rlinf_plugin_metaworld.environment import MetaWorldEnvironment
from rlinf_plugin_metaworld.simulator import make_simulator

from rlinf_core.api import EnvSlots, ProcessSimulator, SimulatorError, StateId
from rlinf_core.testing import SimulatorContract

pytestmark = pytest.mark.opengl
SEEN = {"images": ("corner2", "gripperPOV"), "image_size": 48}


@pytest.fixture(autouse=True, scope="module")
def _drawing() -> None:
    library, note = rendering.find_library(os.environ.get("MUJOCO_GL", ""))
    if not library:
        pytest.skip(note)


class TestContract(SimulatorContract):
    def make(self, slots: EnvSlots) -> ProcessSimulator:
        return make_simulator(MetaWorldConfig(processes=1, max_episode_steps=40, **SEEN), slots)


@pytest.fixture
def simulator() -> Iterator[ProcessSimulator]:
    config = MetaWorldConfig(task="pick-place-v3", processes=1, **SEEN)
    made = make_simulator(config, EnvSlots((0, 1), seed=0, chunk=3))
    yield made
    made.close()


def test_images_are_those_that_would_be_rendered(simulator: ProcessSimulator) -> None:
    states = [StateId("train", 0), StateId("train", 1)]
    obs = simulator.reset(torch.ones(2, dtype=torch.bool), states)
    assert obs["task"] == ["pick place"] * 2
    actions = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    after = simulator.step(actions).obs
    for name in SEEN["images"]:
        env = MetaWorldEnvironment("pick-place-v3", camera=name, height=48, width=48)
        for row, state in enumerate(states):
            env.reset(state)
            assert np.array_equal(env.render(), obs["images"][name][row])
            for action in actions[row].numpy():
                env.step(action)
            assert np.array_equal(env.render(), after["images"][name][row])
    assert not torch.equal(obs["images"]["gripperPOV"], after["images"]["gripperPOV"])


def test_of_a_chunk_only_the_last_image_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    env = MetaWorldEnvironment("reach-v3", images=("corner",), image_size=32, instruction="reach")
    real = env.draw
    monkeypatch.setattr(env, "draw", lambda camera: (drawn.append(camera), real(camera))[1])
    env.reset(StateId("train", 0))
    seen = [env.step(np.zeros(4, np.float32))[0] for _ in range(3)]
    assert drawn == []
    assert dict(seen[-1]["images"].items())["corner"].shape == (32, 32, 3)
    assert drawn == ["corner"]


def test_an_instruction_of_ones_own_is_shown() -> None:
    config = MetaWorldConfig(instruction="reach the red ball", processes=1, **SEEN)
    simulator = make_simulator(config, EnvSlots((0,), seed=0))
    obs = simulator.reset(torch.ones(1, dtype=torch.bool), [StateId("test", 0)])
    assert obs["task"] == ["reach the red ball"]
    simulator.close()


def test_images_that_nothing_can_draw_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "off")
    simulator = make_simulator(MetaWorldConfig(processes=1, **SEEN), EnvSlots((0,), seed=0))
    with pytest.raises(SimulatorError, match=r"turns rendering off; or observe no images"):
        simulator.reset(torch.ones(1, dtype=torch.bool), [StateId("test", 0)])
    simulator.close()
