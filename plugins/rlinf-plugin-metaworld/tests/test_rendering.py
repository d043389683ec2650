"""Frames. Those marked ``opengl`` need OSMesa or EGL and are skipped where neither draws."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from rlinf_plugin_metaworld import rendering
from rlinf_plugin_metaworld.config import CAMERAS, MetaWorldConfig
from rlinf_plugin_metaworld.environment import MetaWorldEnvironment
from rlinf_plugin_metaworld.simulator import make_simulator

from rlinf_core.api import EnvSlots, StateId


@pytest.fixture
def drawing() -> None:
    library, note = rendering.find_library(os.environ.get("MUJOCO_GL", ""))
    if not library:
        pytest.skip(note)


def frames_of(camera: str, *moves: tuple[float, float, float]) -> list[np.ndarray]:
    """Return what the camera sees after 25 steps of each move, from one start."""
    env = MetaWorldEnvironment("reach-v3", camera=camera, height=240, width=320)
    shown = []
    for move in moves:
        env.reset(StateId("train", 0))
        for _ in range(25):
            env.step(np.array([*move, 0.0], np.float32))
        frame = env.render()
        assert frame is not None
        shown.append(frame)
    return shown


def place_of_hand(frame: np.ndarray) -> np.ndarray:
    """Return (row, column) of the gripper's cyan finger."""
    red, green, blue = (frame[..., i].astype(int) for i in range(3))
    seen = np.argwhere((green - red > 60) & (blue - red > 60))
    assert len(seen) > 3
    return np.asarray(seen.mean(axis=0))


@pytest.mark.opengl
@pytest.mark.usefixtures("drawing")
@pytest.mark.parametrize("camera", ["corner", "corner2", "corner3", "corner4"])
def test_frames_are_upright_and_not_mirrored(camera: str) -> None:
    env = MetaWorldEnvironment("reach-v3")
    env.reset(StateId("train", 0))
    ahead = -env._task.data.camera(camera).xmat.reshape(3, 3)[:, 2]
    right = np.cross(ahead, [0, 0, 1])  # of a camera that is held upright
    sideways = tuple(0.8 * right / np.abs(right).max())
    back = tuple(-part for part in sideways)
    low, high, one_side, other_side = map(
        place_of_hand, frames_of(camera, (0, 0, -0.6), (0, 0, 0.6), back, sideways)
    )
    assert high[0] < low[0] - 10  # rows count from the top
    assert other_side[1] > one_side[1] + 10


@pytest.mark.opengl
@pytest.mark.usefixtures("drawing")
@pytest.mark.parametrize("camera", CAMERAS)
def test_every_camera_shows_something(camera: str) -> None:
    (frame,) = frames_of(camera, (0, 0, 0))
    assert frame.shape == (240, 320, 3)
    assert frame.dtype == np.uint8
    assert frame.std() > 10


@pytest.mark.opengl
@pytest.mark.usefixtures("drawing")
def test_drawing_changes_nothing() -> None:
    config = MetaWorldConfig(processes=1, render_height=64, render_width=96)
    simulator = make_simulator(config, EnvSlots((0, 1), seed=0))
    states = [StateId("train", 0), StateId("train", 1)]
    shown = []
    for draws in (False, True):
        simulator.reset(torch.ones(2, dtype=torch.bool), states)
        for _ in range(5):
            step = simulator.step(torch.full((2, 1, 4), 0.3))
            frames = simulator.render() if draws else None
        shown.append(step.obs["state"])
    assert torch.equal(*shown)
    assert frames is not None
    assert frames.shape == (2, 64, 96, 3)
    assert not np.array_equal(frames[0], frames[1])  # each its own scene
    simulator.close()


def test_without_a_library_frames_are_none_and_the_note_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendering, "_TRY", "raise ImportError('no {0}')")
    rendering.find_library.cache_clear()
    try:
        env = MetaWorldEnvironment("reach-v3")
        assert env.render() is None
        assert "osmesa and egl cannot draw" in env.render_note
        assert "apt-get install libosmesa6" in env.render_note
    finally:
        rendering.find_library.cache_clear()


def test_rendering_that_was_turned_off_is_told_by_the_simulator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "off")
    simulator = make_simulator(MetaWorldConfig(processes=1), EnvSlots((0,), seed=0))
    simulator.reset(torch.ones(1, dtype=torch.bool), [StateId("train", 0)])
    with pytest.warns(RuntimeWarning, match="MUJOCO_GL=off turns rendering off"):
        assert simulator.render() is None
    simulator.close()


def test_importing_the_environment_loads_no_opengl() -> None:
    code = (
        "import rlinf_plugin_metaworld.environment; "
        "print([l for l in open('/proc/self/maps') if 'libGL' in l or 'EGL' in l or 'OSMesa' in l])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert told.stdout.strip() == "[]"
