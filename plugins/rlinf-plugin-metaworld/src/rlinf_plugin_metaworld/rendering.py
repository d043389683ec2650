"""Frames of the scene, drawn in the children and only when somebody asks for one.

Importing this module loads no OpenGL. The first frame of a process finds a library that works, in
a process of its own, since a broken driver may end whoever tries it.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import platform
import subprocess
import sys
from typing import Any

import mujoco
import numpy as np

_TRY = "from mujoco.{0} import GLContext as C; c = C(16, 16); c.make_current(); print('drawn')"
_UPSIDE_DOWN = ("corner", "corner2", "corner3", "corner4")  # Meta-World's own cameras hang there
_OFF = ("disable", "disabled", "off", "false", "0")
INSTALL = "install OSMesa (Debian and Ubuntu: apt-get install libosmesa6) or an EGL driver"
"""What brings a library that draws."""


class Camera:
    """Draws one camera's view of any task in this process.

    Args:
        name: of a camera in the scene.
        height: of a frame in pixels.
        width: of a frame in pixels.
        library: the user's MUJOCO_GL; empty means whatever works, OSMesa first, since EGL draws
            garbage in some versions once a context was freed.
    """

    def __init__(self, name: str, height: int, width: int, library: str = "") -> None:
        self._name, self._height, self._width, self._library = name, height, width, library
        self.note = ""

    def draw(self, model: Any, data: Any) -> np.ndarray | None:
        """Return uint8 [H, W, 3], upright, or None with a reason in ``note``."""
        library, self.note = find_library(self._library)
        if not library:
            return None
        scene, context, _ = _canvas(library, model, self._height, self._width)
        camera = mujoco.MjvCamera()
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = model.camera(self._name).id
        mujoco.mjv_updateScene(
            model, data, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_ALL, scene
        )
        area = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(area, scene, context)
        frame = np.empty((self._height, self._width, 3), np.uint8)
        mujoco.mjr_readPixels(frame, None, area, context)
        # OpenGL's first row is the bottom one; a camera that hangs upside down needs half a turn.
        return frame[:, ::-1] if self._name in _UPSIDE_DOWN else frame[::-1]


@functools.cache
def find_library(wanted: str) -> tuple[str, str]:
    """Return the name of an OpenGL library that draws (or "") and why not (or "")."""
    if wanted.lower() in _OFF:
        return "", f"MUJOCO_GL={wanted} turns rendering off"
    if wanted:
        names = ["glfw" if wanted.lower() == "glx" else wanted.lower()]
    else:
        names = ["cgl"] if platform.system() == "Darwin" else ["osmesa", "egl"]
    for name in names:
        trial = [sys.executable, "-c", _TRY.format(name)]
        try:
            done = subprocess.run(trial, capture_output=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            continue
        if b"drawn" in done.stdout:
            return name, ""
    asked = f"MUJOCO_GL={wanted}" if wanted else " and ".join(names)
    return "", f"no frames: {asked} cannot draw on this machine; {INSTALL}"


_canvases: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}


def _canvas(library: str, model: Any, height: int, width: int) -> tuple[Any, Any, Any]:
    """Return (scene, context, GL context); one serves all environments of this process.

    They share it because their scenes hold the same meshes and textures, whose upload takes a
    third of a second. Nothing frees it before the process ends.
    """
    key = (library, height, width, model.names)
    if key not in _canvases:
        gl = importlib.import_module(f"mujoco.{library}").GLContext(width, height)
        gl.make_current()
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        model.vis.quality.offsamples = 0  # antialiasing in software costs as much again
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
        scene = mujoco.MjvScene(model, maxgeom=1000)
        for costly in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            scene.flags[costly] = False  # shadows alone are nine tenths of a frame in software
        _canvases[key] = scene, context, gl
        atexit.register(_canvases.clear)  # before the OpenGL modules end what is theirs
    scene, context, gl = _canvases[key]
    gl.make_current()
    return scene, context, gl
