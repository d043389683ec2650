"""Shortcuts through ManiSkill that give the same numbers, bit for bit, in less time.

On the processor a task is one environment, and most of a step goes into torch's cost of a call, on
tensors of a few numbers. The functions here do the same arithmetic in the same order in NumPy, and
hand over to ManiSkill's own in every case but that one. Each replaces a function whose source is
the one it was compared with; another version of ManiSkill runs its own code.

Add a shortcut below, with the digest of what it replaces (:func:`digest`); a test plays all tasks
with and without.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import sapien
import torch
from mani_skill.utils import common, gym_utils
from mani_skill.utils.geometry import rotation_conversions
from mani_skill.utils.structs.articulation import Articulation
from mani_skill.utils.structs.pose import Pose

_SHORTCUTS: list[tuple[Any, str, str, Callable[[Any], Any]]] = []
"""What is replaced (owner, name), the digest of its source, and what makes the replacement."""


def shorten() -> list[str]:
    """Put the shortcuts in place; return the names of those that do not fit this ManiSkill."""
    unknown = []
    for owner, name, wanted, replacement in _SHORTCUTS:
        plain = inspect.getattr_static(owner, name)
        if digest(plain) == wanted:
            setattr(owner, name, replacement(plain))
        elif not hasattr(_function(plain), "plain"):  # else it is in place
            unknown.append(name)
    return unknown


def lengthen() -> None:
    """Take the shortcuts away again."""
    for owner, name, _, _ in _SHORTCUTS:
        here = inspect.getattr_static(owner, name)
        if hasattr(_function(here), "plain"):
            setattr(owner, name, _function(here).plain)


def digest(plain: Any) -> str:
    """Return a fingerprint of a function's source."""
    return hashlib.sha256(inspect.getsource(_function(plain)).encode()).hexdigest()[:16]


def _function(plain: Any) -> Any:
    return plain.__func__ if isinstance(plain, classmethod) else plain


def _shortcut(owner: Any, name: str, wanted: str) -> Callable[[Any], Any]:
    def note(replacement: Callable[[Any], Any]) -> Callable[[Any], Any]:
        _SHORTCUTS.append((owner, name, wanted, replacement))
        return replacement

    return note


@_shortcut(Pose, "create", "5dddecb109bfc16a")
def _create(plain: Any) -> Any:
    """One pose of SAPIEN: seven numbers at once."""
    slow = plain.__func__

    def create(cls: Any, pose: Any, device: Any = None) -> Any:
        one = pose[0] if type(pose) is list and len(pose) == 1 else pose
        if type(one) is sapien.Pose and str(device) in ("cpu", "None"):
            return cls(raw_pose=torch.from_numpy(np.concatenate((one.p, one.q))[None]))
        return slow(cls, pose, device)

    create.plain = plain  # type: ignore[attr-defined]
    return classmethod(create)


@_shortcut(common, "to_tensor", "73c315eb33f13608")
def _to_tensor(plain: Any) -> Any:
    """A tensor that is already right, or an array of float32: no detour over types."""

    def to_tensor(array: Any, device: Any = None) -> Any:
        if device is None or str(device) == "cpu":
            if type(array) is torch.Tensor and array.dtype is torch.float32:
                if array.device.type == "cpu":
                    return array
            elif type(array) is np.ndarray and array.dtype == np.float32:
                return torch.from_numpy(array.copy())
        return plain(array, device)

    to_tensor.plain = plain  # type: ignore[attr-defined]
    return to_tensor


@_shortcut(Articulation, "set_joint_drive_targets", "d8a0cf2e04d46656")
def _set_joint_drive_targets(plain: Any) -> Any:
    """The targets of all joints as one array, instead of a tensor for each."""

    def set_joint_drive_targets(
        self: Any, targets: Any, joints: Any = None, joint_indices: Any = None
    ) -> None:
        if self.scene.gpu_sim_enabled or type(targets) is not torch.Tensor:
            plain(self, targets, joints, joint_indices)
            return
        values = targets[0].to(torch.float32).numpy()
        for i, joint in enumerate(joints):
            joint._objs[0].drive_target = values[i : i + 1]

    set_joint_drive_targets.plain = plain  # type: ignore[attr-defined]
    return set_joint_drive_targets


_HALF = np.float32(0.5)
_B = np.array([[1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]])
_SIGN = np.array([[-1, 1, -1, 1], [-1, 1, 1, -1], [-1, -1, 1, 1]], np.float32)


@_shortcut(rotation_conversions, "quaternion_raw_multiply", "914cc7ea3a54b709")
def _quaternion_raw_multiply(plain: Any) -> Any:
    """The sixteen products of one pair of quaternions, and their sums in the same order."""

    def quaternion_raw_multiply(a: Any, b: Any) -> Any:
        if not (a.shape == b.shape == (1, 4) and a.dtype is b.dtype is torch.float32 and a.is_cpu):
            return plain(a, b)
        one, other = a.numpy()[0], b.numpy()[0]
        parts = one[1:, None] * other[_B] * _SIGN
        return torch.from_numpy((one[0] * other + parts[0] + parts[1] + parts[2])[None])

    quaternion_raw_multiply.plain = plain  # type: ignore[attr-defined]
    return quaternion_raw_multiply


@_shortcut(gym_utils, "clip_and_scale_action", "2552fa90c3c2891f")
def _clip_and_scale_action(plain: Any) -> Any:
    """Seven calls on a few numbers."""

    def clip_and_scale_action(action: Any, low: Any, high: Any) -> Any:
        if not (type(action) is type(low) is type(high) is torch.Tensor and action.is_cpu):
            return plain(action, low, high)
        if not action.dtype is low.dtype is high.dtype is torch.float32:
            return plain(action, low, high)
        a, b, c = action.numpy(), low.numpy(), high.numpy()
        return torch.from_numpy(_HALF * (c + b) + _HALF * (c - b) * a.clip(-1, 1))

    clip_and_scale_action.plain = plain  # type: ignore[attr-defined]
    return clip_and_scale_action
