"""Building ManiSkill's scenes on a machine that has no renderer, or without loading the one it has.

ManiSkill takes ``render_backend="none"``, but its tasks still make materials of a renderer while
they build their scene, and it asks SAPIEN for the processor as a device; either loads every Vulkan
driver of the machine. Nobody looks at the materials and nothing is asked of the device, so
:func:`no_renderer` puts stand-ins in their place.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import mani_skill.envs  # noqa: F401  all that builds scenes
import sapien
import sapien.render


class Nothing:
    """Takes any call, attribute and item, and is empty."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        """Take any call."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # else it would seem to have every protocol of Python
            raise AttributeError(name)
        return self

    def __getitem__(self, _: object) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Material(Nothing):
    """A ``RenderMaterial`` that nobody sees. Its colour is read now and then: white."""

    def __getitem__(self, _: object) -> float:
        return 1.0

    def __iter__(self) -> Iterator[float]:
        return iter((1.0,) * 4)


_HOMES = [
    module
    for name, module in list(sys.modules.items())
    if name.startswith(("sapien", "mani_skill"))
    and vars(module).get("RenderMaterial") is sapien.render.RenderMaterial
]
"""The modules that make materials."""
_device = sapien.Device
_find = sapien.Entity.find_component_by_type


class Processor:
    """The device that the physics runs on; a real one is found by asking all Vulkan drivers."""

    name = "cpu"

    def is_cpu(self) -> bool:
        """Return True."""
        return True

    def is_cuda(self) -> bool:
        """Return False."""
        return False


def _device_or_processor(name: str) -> Any:
    return Processor() if name == "cpu" else _device(name)


def _find_or_nothing(entity: sapien.Entity, kind: type) -> Any:
    """Find a component; a body that would be drawn has no shapes and no materials."""
    found = _find(entity, kind)
    return Nothing() if found is None and kind is sapien.render.RenderBodyComponent else found


@contextlib.contextmanager
def no_renderer() -> Iterator[None]:
    """Within, scenes can be built for ``render_backend="none"``; SAPIEN looks for no device."""
    with contextlib.ExitStack() as stack:
        for module in _HOMES:
            stack.enter_context(_replaced(module, "RenderMaterial", Material))
        stack.enter_context(_replaced(sapien, "Device", _device_or_processor))
        stack.enter_context(_replaced(sapien.Entity, "find_component_by_type", _find_or_nothing))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
