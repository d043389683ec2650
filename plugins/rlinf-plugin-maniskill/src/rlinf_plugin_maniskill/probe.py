"""What ManiSkill wants of a machine: SAPIEN, and for images a Vulkan device that SAPIEN takes.

:func:`probe` is asked by ``rlinf doctor`` in a process of its own. Run as a module with the name of
a backend, this says by its exit code whether that can draw and prints why not.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from rlinf_core.api import Readiness

INSTALL = (
    "install a Vulkan driver: a GPU's own, or a newer Mesa than 22 for the processor (Debian 12: "
    "apt-get install libvulkan1 mesa-vulkan-drivers/bookworm-backports "
    "libdrm2/bookworm-backports libdrm-amdgpu1/bookworm-backports, with bookworm-backports among "
    "apt's sources; later ones: apt-get install libvulkan1 mesa-vulkan-drivers)"
)


def probe() -> Iterator[Readiness]:
    """Yield what is there. Loads the driver, which could crash this process."""
    if importlib.util.find_spec("sapien") is None:
        yield Readiness("SAPIEN", False, "not installed", remedy="pip install mani-skill")
        return
    try:
        import sapien
    except Exception as error:
        remedy = "apt-get install libx11-6 libgl1 (its libraries want them)"
        yield Readiness("SAPIEN", False, f"{type(error).__name__}: {error}", remedy=remedy)
        return
    yield Readiness("SAPIEN", True, f"sapien {sapien.__version__}")
    gives = "images and video"
    try:
        yield Readiness("Vulkan device", True, device("gpu", draw=True), gives)
    except Exception as error:
        yield Readiness("Vulkan device", False, str(error), gives, INSTALL)


@functools.cache
def find_device(backend: str) -> str:
    """Return why ``backend`` cannot draw on this machine, or "".

    Asked in a process of its own: a broken driver may end whoever tries it.
    """
    trial = [sys.executable, "-m", "rlinf_plugin_maniskill.probe", backend]
    try:
        done = subprocess.run(
            trial,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no frames: looking for a Vulkan device took more than a minute"
    if done.returncode == 0:
        return ""
    return done.stdout.strip() or f"no frames: looking for a Vulkan device ended {done.returncode}"


def device(backend: str, draw: bool = False) -> str:
    """Return the name of the device that ``backend`` draws with.

    Args:
        backend: as ManiSkill's ``render_backend``; "gpu" is the processor where there is no GPU.
        draw: also draw a picture, which takes seconds without a GPU.

    Raises:
        RuntimeError: there is none, or it does not draw.
    """
    import sapien

    sapien.render.set_log_level("off")  # what is wrong is told by the error
    name = {"gpu": "cuda", "sapien_cuda": "cuda", "sapien_cpu": "cpu"}.get(backend, backend)
    try:
        where = sapien.Device(name)
    except RuntimeError:
        if name != "cuda":
            raise
        where = sapien.Device("cpu")  # as ManiSkill does
    system = sapien.render.RenderSystem(where)
    if draw:
        _draw(system)
    found = sapien.render.get_device_summary().partition("GPU: ")[2].partition("\n")[0]
    return found or where.name


def _draw(system: Any) -> None:
    """Draw a white box and look at it."""
    import sapien

    sapien.render.set_camera_shader_dir("minimal")
    scene = sapien.Scene([sapien.physx.PhysxCpuSystem(), system])
    builder = scene.create_actor_builder()
    builder.add_box_visual(half_size=[0.1] * 3, material=[1.0, 1.0, 1.0])
    builder.build_static()
    scene.set_ambient_light([1.0, 1.0, 1.0])
    camera = scene.add_camera("camera", 16, 16, fovy=1.0, near=0.01, far=10.0)
    camera.set_entity_pose(sapien.Pose([-1.0, 0.0, 0.0]))
    scene.update_render()
    camera.take_picture()
    if camera.get_picture("Color")[..., :3].max() < 0.5:
        raise RuntimeError("it draws black pictures")


def _main(backend: str) -> int:
    try:
        device(backend)
    except Exception as error:
        print(f"no frames: no Vulkan device that SAPIEN can use ({error}); {INSTALL}")
        return 1
    return 0


if __name__ == "__main__":
    code = _main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # some drivers crash as they are unloaded
