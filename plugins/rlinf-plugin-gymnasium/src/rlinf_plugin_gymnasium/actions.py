"""How Gymnasium's action spaces become the box of actions that policies know.

A box is taken as it is, flattened. Of a discrete space every action gets a score, and the one with
the largest is done: the policy stays continuous, no two actions are closer than any others, and the
greedy policy is deterministic. Another kind of space is one more case in :func:`actions_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces as gym

from rlinf_core.api import SimulatorError

Take = Callable[[np.ndarray], Any]
"""Gives what a vector environment takes from actions float32 [N, A]."""


def actions_of(space: gym.Space[Any]) -> tuple[gym.Box, Take]:
    """Return the box of one environment's actions, shape [A], and the function that takes them.

    Raises:
        SimulatorError: no policy can act in such a space.
    """
    if isinstance(space, gym.Box) and np.issubdtype(space.dtype, np.floating):
        shape, kind = space.shape, space.dtype
        low, high = (bound.ravel().astype(np.float32) for bound in (space.low, space.high))
        return (
            gym.Box(low, high, dtype=np.float32),
            lambda values: values.astype(kind).reshape(len(values), *shape),
        )
    if isinstance(space, gym.Discrete):
        first = int(space.start)
        return (
            gym.Box(-1.0, 1.0, (int(space.n),), np.float32),
            lambda values: first + values.argmax(axis=1).astype(np.int64),
        )
    raise SimulatorError(
        f"the environment takes actions from {space}; wanted a Box of real numbers or a Discrete "
        "space. Wrap the environment so that it takes one of these, and name the wrapped one"
    )
