"""Modules that must not be imported by what the core imports in order to list, plan or configure.

``rlinf plugins list`` imports every plugin's module, a run's check imports options and facts; both
must answer at once and on a machine that has neither GPU nor simulator. So what takes long to
import, starts threads or touches a device is forbidden there. Add a library to :data:`_WHY`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

_WHY = {
    "tensors, and what stands on them: seconds to import, threads, devices": (
        "torch torchvision torchaudio tensordict jax jaxlib flax tensorflow keras triton cupy "
        "numba transformers peft accelerate diffusers datasets tokenizers sentencepiece timm "
        "deepspeed megatron transformer_engine flash_attn xformers bitsandbytes safetensors"
    ),
    "engines and clusters: they start processes": "vllm sglang ray",
    "simulators and renderers: they load OpenGL or Vulkan, or want a display": (
        "mujoco dm_control metaworld mani_skill sapien robosuite libero robocasa pybullet genesis "
        "warp isaaclab isaacgym isaacsim omni gym OpenGL glfw pygame"
    ),
    "pictures, tables and services: no option and no fact needs them": (
        "matplotlib imageio imageio_ffmpeg av cv2 PIL scipy pandas sklearn tensorboard wandb "
        "swanlab mlflow"
    ),
}

_REASONS = {name: why for why, names in _WHY.items() for name in names.split()}

HEAVY = frozenset(_REASONS)
"""Forbidden to a plugin's module, its options and its facts."""

LISTING = HEAVY | {"numpy", "gymnasium"}
"""Forbidden to a plugin's module alone, which every listing imports: together they take as long as
the rest of it. Facts may use spaces."""


class Refuse:
    """Refuses to find some modules, and keeps in ``seen`` who asked for them.

    Args:
        names: of top-level modules.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.seen: list[str] = []

    def __enter__(self) -> Refuse:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for a forbidden module, unless somebody only asks whether it is there."""
        if name.partition(".")[0] not in self.names:
            return None
        importer = _importer()
        if importer.f_globals.get("__name__") == "importlib.util":
            return None
        who = importer.f_globals.get("__name__", "?")
        text = f"{name} was imported by {who}, line {importer.f_lineno}"
        self.seen.append(text)
        why = _REASONS.get(name.partition(".")[0], "it takes as long as a whole listing")
        raise ImportError(f"{text}, where it must not be ({why})")


def _importer() -> FrameType:
    """Return the frame that imports: the nearest one that is no import machinery."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith("<frozen importlib._bootstrap")
        or frame.f_globals.get("__name__") == "importlib"
    ):
        frame = frame.f_back
    return frame
