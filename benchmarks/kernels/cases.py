"""Inputs of the measured functions, as NumPy arrays: sizes of robots and of language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

GAMMA, LAM, CLIP, VALUE_CLIP, GROUP = 0.99, 0.95, 0.2, 0.2, 8

SIZES: Mapping[str, tuple[int, int]] = {"embodied": (100, 64), "language": (64, 2048)}
"""``[T, N]`` steps of environments, and ``[B, L]`` tokens of sequences."""

CASES: Mapping[str, tuple[str, ...]] = {
    "gae": ("embodied", "language"),
    "grpo": ("language",),
    "ppo": ("embodied", "language"),
    "value": ("embodied", "language"),
    "kl": ("language",),
    "entropy": ("language",),
    "sequences": ("language",),
}
"""Case to the sizes that it is measured at."""

TITLES: Mapping[str, str] = {
    "gae": "GAE",
    "grpo": "GRPO advantages, per token",
    "ppo": "clipped PPO loss with its metrics",
    "value": "clipped value loss",
    "kl": "KL loss (k3)",
    "entropy": "entropy, mean over tokens",
    "sequences": "entropy, mean over sequences of means over tokens",
}

BACKWARD = ("ppo", "value", "kl", "entropy", "sequences")
"""Cases that are measured with their gradient as well."""


def inputs(size: str, shape: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return float32 and boolean arrays of one shape, the same ones every time."""
    rows, columns = shape or SIZES[size]
    rng = np.random.default_rng(0)

    def normal(scale: float = 1.0, mean: float = 0.0) -> np.ndarray:
        return rng.normal(mean, scale, (rows, columns)).astype(np.float32)

    old = normal(1.0, -2.0)
    value = normal()
    if size == "embodied":  # every episode ends by its time limit, at another step
        ended = (np.arange(rows)[:, None] + np.arange(columns)) % 50 == 49
        mask = np.ones((rows, columns), bool)
    else:  # answers of different lengths
        lengths = rng.integers(columns // 4, columns + 1, rows)
        mask = np.arange(columns) < lengths[:, None]
        ended = np.zeros((rows, columns), bool)
    return {
        "size": size,
        "reward": normal(),
        "value": value,  # [T, N] or [B, L]
        "behind": rng.normal(size=columns).astype(np.float32),  # [N]: after the last step
        "final": normal(),  # values of final observations
        "ended": ended,
        "mask": mask,
        "old": old,
        "logp": old + normal(0.1),
        "advantage": normal(),
        "returns": value + normal(),
        "new_value": value + normal(0.2),
        "entropy": np.abs(normal()),
        "score": rng.integers(0, 2, rows).astype(np.float32),  # [B]
    }
