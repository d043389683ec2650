"""Frames and images. Those marked ``vulkan`` are skipped where no Vulkan device can be used."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rlinf_plugin_maniskill import probe
from rlinf_plugin_maniskill.config import ManiSkillConfig
from rlinf_plugin_maniskill.environment import ManiSkillEnvironment
from rlinf_plugin_maniskill.simulator import make_simulator

from rlinf_core.api import EnvSlots, SimulatorError, StateId


@pytest.fixture
def drawing() -> None:
    note = probe.find_device("gpu")
    if note:
        pytest.skip(note)


@pytest.mark.vulkan
@pytest.mark.usefixtures("drawing")
def test_a_state_only_environment_is_drawn_as_it_is() -> None:
    frames = {"render_backend": "gpu", "height": 96, "width": 128}
    states = {"obs_mode": "state", "control_mode": "pd_ee_delta_pos"}
    one, other = (ManiSkillEnvironment("PushCube-v1", states, 50, frames=frames) for _ in range(2))

    def blue(env: ManiSkillEnvironment) -> np.ndarray:
        """Return where the blue cube is seen, (row, column)."""
        frame = env.render()
        assert frame is not None
        assert (frame.shape, frame.dtype) == ((96, 128, 3), np.uint8)
        red, green, shade = (frame[..., i].astype(int) for i in range(3))
        seen = np.argwhere((shade - red > 60) & (shade - green > 60))
        assert len(seen) > 3
        return np.asarray(seen.mean(axis=0))

    first = one.reset(StateId("train", 0))["state"]
    before = blue(one)
    other.reset(StateId("train", 3))
    assert not np.allclose(blue(other), before, atol=1)  # its own cube
    assert np.allclose(blue(one), before)
    assert not one._task.scene.can_render()
    plain = ManiSkillEnvironment("PushCube-v1", states, 50)
    assert np.array_equal(plain.reset(StateId("train", 0))["state"], first)
    for _ in range(5):  # what was drawn changes nothing
        action = np.array([1.0, 0.0, -0.5, 0.0], np.float32)
        assert np.array_equal(one.step(action)[0]["state"], plain.step(action)[0]["state"])
        one.render()
    for env in (one, other, plain):
        env.close()


@pytest.mark.vulkan
@pytest.mark.usefixtures("drawing")
def test_images_are_seen_by_each_camera() -> None:
    config = ManiSkillConfig(
        task="StackCube-v1", observation="rgb", image_height=48, image_width=64, processes=1
    )
    simulator = make_simulator(config, EnvSlots((0,), seed=0))
    obs = simulator.reset(torch.ones(1, dtype=torch.bool), [StateId("train", 0)])
    assert set(obs["images"].keys()) == {"base_camera", "hand_camera"}
    assert obs["images"]["base_camera"].shape == (1, 48, 64, 3)
    assert obs["images"]["base_camera"].float().std() > 5
    assert obs["state"].shape == (1, 25)
    assert obs["task"] == ["stack cube"]
    step = simulator.step(torch.ones(1, 1, 8))
    assert not torch.equal(step.obs["images"]["hand_camera"], obs["images"]["hand_camera"])
    simulator.close()


@pytest.mark.vulkan
@pytest.mark.usefixtures("drawing")
def test_the_probe_draws() -> None:
    sapien, vulkan = probe.probe()
    assert sapien.ready
    assert vulkan.ready
    assert vulkan.found
    assert vulkan.gives == "images and video"


def test_without_a_device_images_are_refused_and_the_packages_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nowhere.json")
    probe.find_device.cache_clear()
    config = ManiSkillConfig(observation="rgb")
    with pytest.raises(SimulatorError, match="apt-get install libvulkan1 mesa-vulkan-drivers"):
        make_simulator(config, EnvSlots((0,), seed=0))
    probe.find_device.cache_clear()


def test_the_probe_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise RuntimeError("ErrorIncompatibleDriver")

    monkeypatch.setattr(probe, "device", refuse)
    _, vulkan = probe.probe()
    assert (vulkan.ready, vulkan.found) == (False, "ErrorIncompatibleDriver")
    assert "mesa-vulkan-drivers/bookworm-backports" in vulkan.remedy


def test_frames_can_be_turned_off() -> None:
    env = ManiSkillEnvironment(
        "PushCube-v1", {"obs_mode": "state"}, 50, frames={"render_backend": "none"}
    )
    env.reset(StateId("train", 0))
    assert env.render() is None
    assert env.render_note == "no frames: render_backend is none"
    env.close()
