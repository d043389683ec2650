"""How Gymnasium's spaces become ours: images by camera, one state vector, a box of actions.

These are the defaults of :func:`rlinf_core.simulation.vector.from_vector_env`; an environment with
other spaces brings functions of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces as gym

from rlinf_core.errors import SimulatorError

Arrays = dict[str, Any]
"""Nested arrays with a leading N, by key as in ``Spaces.observation``."""
Look = Callable[[Any], Arrays]
"""Gives our arrays from a batched observation."""
Act = Callable[[np.ndarray], Any]
"""Gives what a vector environment takes from actions float32 [N, A]."""


def as_array(value: Any) -> np.ndarray:
    """Return ``value`` as a NumPy array; tensors come from their device."""
    return np.asarray(value.cpu() if hasattr(value, "cpu") else value)


def look(space: gym.Space[Any]) -> tuple[gym.Dict, Look]:
    """Map an observation space: a Box, or a Dict of boxes.

    A box of uint8 [H, W, 3] is an image; of a Dict, its key is the camera's name. All other boxes
    are flattened and joined, in the order of their keys, to ``state`` (float32).
    """
    parts = dict(space.spaces) if isinstance(space, gym.Dict) else {"camera": space}
    single = not isinstance(space, gym.Dict)
    boxes = {key: part for key, part in parts.items() if isinstance(part, gym.Box)}
    if len(boxes) < len(parts) or not parts:
        raise SimulatorError(
            f"no default for the observation space {space}; pass observation=(space, function)"
        )
    images: dict[str, gym.Space[Any]] = {key: box for key, box in boxes.items() if _is_image(box)}
    vectors = {key: box for key, box in boxes.items() if key not in images}
    shown: dict[str, gym.Space[Any]] = {}
    if vectors:
        low = np.concatenate([box.low.ravel() for box in vectors.values()]).astype(np.float32)
        high = np.concatenate([box.high.ravel() for box in vectors.values()]).astype(np.float32)
        shown["state"] = gym.Box(low, high, dtype=np.float32)
    if images:
        shown["images"] = gym.Dict(dict(images))

    def see(raw: Any) -> Arrays:
        given = {"camera": raw} if single else raw
        arrays: Arrays = {}
        if vectors:
            flat = [as_array(given[key]) for key in vectors]
            flat = [array.reshape(len(array), -1).astype(np.float32) for array in flat]
            arrays["state"] = np.concatenate(flat, axis=1)
        if images:
            arrays["images"] = {key: as_array(given[key]) for key in images}
        return arrays

    return gym.Dict(shown), see


def act(space: gym.Space[Any]) -> tuple[gym.Box, Act]:
    """Map an action space: a flat Box as it is; a Discrete as one number, rounded."""
    if isinstance(space, gym.Box) and len(space.shape) == 1:
        kind = space.dtype
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        return gym.Box(low, high, dtype=np.float32), lambda values: values.astype(kind)
    if isinstance(space, gym.Discrete):
        first, last = int(space.start), int(space.start + space.n - 1)

        def choose(values: np.ndarray) -> np.ndarray:
            chosen: np.ndarray = np.rint(values[:, 0]).clip(first, last).astype(np.int64)
            return chosen

        return gym.Box(first, last, (1,), np.float32), choose
    raise SimulatorError(f"no default for the action space {space}; pass action=(box, function)")


def _is_image(box: gym.Box) -> bool:
    return bool(box.dtype == np.uint8) and len(box.shape) == 3 and box.shape[-1] == 3


# --- nested arrays ------------------------------------------------------------------------------


def map_arrays(arrays: Any, function: Callable[[np.ndarray], Any]) -> Any:
    """Apply ``function`` to each array of a nested mapping."""
    if isinstance(arrays, Mapping):
        return {key: map_arrays(part, function) for key, part in arrays.items()}
    return function(as_array(arrays))


def copy_rows(target: Mapping[str, Any], source: Mapping[str, Any], mask: np.ndarray) -> None:
    """Copy the rows where ``mask`` [N] is true."""
    for key, array in target.items():
        if isinstance(array, Mapping):
            copy_rows(array, source[key], mask)
        else:
            array[mask] = as_array(source[key])[mask]


def rows_equal(one: Mapping[str, Any], other: Mapping[str, Any], mask: np.ndarray) -> bool:
    """Return whether all arrays are equal where ``mask`` [N] is true."""
    return all(
        rows_equal(array, other[key], mask)
        if isinstance(array, Mapping)
        else np.array_equal(array[mask], as_array(other[key])[mask], equal_nan=True)
        for key, array in one.items()
    )


def filled(raw: Any, final: Any, mask: np.ndarray) -> Any:
    """Return a batched observation with rows of ``final`` where ``mask`` is true.

    ``final`` is batched too, or a sequence of single observations (None elsewhere).
    """

    def part(key: Any) -> Any:
        return (
            final[key]
            if isinstance(final, Mapping)
            else [None if f is None else f[key] for f in final]
        )

    if isinstance(raw, Mapping):
        return {key: filled(value, part(key), mask) for key, value in raw.items()}
    if isinstance(raw, tuple):
        return tuple(filled(value, part(i), mask) for i, value in enumerate(raw))
    whole = as_array(raw).copy()
    for row in mask.nonzero()[0]:
        whole[row] = as_array(final[row])
    return whole


def flags_of(info: Mapping[str, Any], key: str, count: int) -> np.ndarray:
    """Return ``info[key]`` as bool [N], false where there is no such entry."""
    return as_array(info[key]).astype(bool) if key in info else np.zeros(count, bool)
