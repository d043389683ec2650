"""What Meta-World wants of a machine: MuJoCo, and OpenGL off screen for frames.

Called in a process of its own, since loading a broken driver may end whoever tries it.
"""

from __future__ import annotations

import importlib
import os

from rlinf_core.api import Readiness


def probe() -> list[Readiness]:
    """Return what is there."""
    asked = os.environ.get("MUJOCO_GL", "")
    os.environ["MUJOCO_GL"] = "disable"  # as in a run: else importing MuJoCo loads OpenGL
    engine = _engine()
    return [engine, _drawing(asked)] if engine.ready else [engine]


def _engine() -> Readiness:
    """Return whether physics and tasks can be imported: a MuJoCo of another series breaks them."""
    what = "MuJoCo and Meta-World"
    try:
        mujoco = importlib.import_module("mujoco")
        importlib.import_module("metaworld")
    except Exception as error:  # whatever it is, the simulator cannot start
        found = f"cannot be imported: {type(error).__name__}: {error}"
        remedy = "pip install rlinf-plugin-metaworld, in a new environment"
        return Readiness(what, False, found, remedy=remedy)
    return Readiness(what, True, f"MuJoCo {mujoco.__version__}")


def _drawing(asked: str) -> Readiness:
    """Return whether an OpenGL library draws, tried as the simulator tries it."""
    from rlinf_plugin_metaworld.rendering import INSTALL, find_library

    library, note = find_library(asked)
    if library:
        return Readiness("OpenGL off screen", True, f"{library} draws")
    remedy = "unset MUJOCO_GL" if asked else INSTALL
    return Readiness("OpenGL off screen", False, note.partition(";")[0], "video", remedy)
