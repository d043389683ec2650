"""The yardstick: the same formulas in NumPy, as few passes as a careful person needs.

No checks, no options, and gradients written out by hand. Masked numbers are multiplied away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.kernels.cases import CLIP, GAMMA, GROUP, LAM, VALUE_CLIP

Call = Callable[[bool], Any]


def gae(i: dict[str, Any]) -> Call:
    """Return the returns [T, N]; of language [B, L], where nothing is bootstrapped."""
    language = i["size"] == "language"

    def call(_: bool) -> Any:
        # Time runs over rows: of language, over the rows of a transposed copy.
        arrays = [i["reward"], i["value"], i["ended"], i["mask"], i["final"]]
        reward, value, ended, mask, final = (np.ascontiguousarray(a.T) if language else a
                                             for a in arrays)  # fmt: skip
        following = np.empty_like(value)
        following[:-1] = value[1:]
        following[-1] = 0.0 if language else i["behind"]
        if language:  # valid tokens are in front, so the next one counts where it is valid
            following[:-1] *= mask[1:]
            following[-1] = 0.0
        else:
            following = np.where(ended, final, following)
        delta = (reward + GAMMA * following - value) * mask
        decay = (GAMMA * LAM) * (mask & ~ended).astype(np.float32)
        advantage, ahead = np.empty_like(delta), np.zeros_like(delta[0])
        for t in range(len(delta) - 1, -1, -1):
            ahead = delta[t] + decay[t] * ahead
            advantage[t] = ahead
        returns = (advantage + value) * mask
        return returns.T if language else returns

    return call


def grpo(i: dict[str, Any]) -> Call:
    """Return advantages per token [B, L]."""

    def call(_: bool) -> Any:
        groups = i["score"].reshape(-1, GROUP)
        centred = groups - groups.mean(axis=1, keepdims=True)
        scaled = centred / (groups.std(axis=1, ddof=1, keepdims=True) + 1e-6)
        return scaled.reshape(-1, 1) * i["mask"]

    return call


def ppo(i: dict[str, Any]) -> Call:
    """Return the loss, or the gradient by the log-probs; works out its metrics as well."""

    def call(backward: bool) -> Any:
        mask, advantage = i["mask"], i["advantage"]
        count = mask.sum()
        log_ratio = (i["logp"] - i["old"]) * mask
        ratio = np.exp(log_ratio)
        plain = -advantage * ratio
        clipped = -advantage * np.minimum(np.maximum(ratio, 1 - CLIP), 1 + CLIP)
        cut = plain < clipped
        loss = (np.maximum(plain, clipped) * mask).sum() / count
        metrics = (cut & mask).sum() / count, -log_ratio.sum() / count, (ratio * mask).sum() / count
        assert len(metrics) == 3
        if not backward:
            return loss
        return plain * (~cut & mask) / np.float32(count)

    return call


def value(i: dict[str, Any]) -> Call:
    """Return the loss, or the gradient by the values."""

    def call(backward: bool) -> Any:
        mask, old, returns = i["mask"], i["value"], i["returns"]
        count = mask.sum()
        moved = i["new_value"] - old
        held = np.minimum(np.maximum(moved, -VALUE_CLIP), VALUE_CLIP)
        plain, clipped = i["new_value"] - returns, old + held - returns
        a, b = plain * plain, clipped * clipped
        loss = 0.5 * (np.maximum(a, b) * mask).sum() / count
        share = ((np.abs(moved) > VALUE_CLIP) & mask).sum() / count
        assert share >= 0
        if not backward:
            return loss
        # Where the clipped error is the larger one, the value moves it only while it is not held.
        return np.where(a >= b, plain, clipped * (held == moved)) * mask / np.float32(count)

    return call


def kl(i: dict[str, Any]) -> Call:
    """Return the loss, or the gradient by the log-probs."""

    def call(backward: bool) -> Any:
        mask = i["mask"]
        count = mask.sum()
        x = (i["old"] - i["logp"]) * mask
        grown = np.expm1(x)
        loss = (grown - x).sum() / count
        return -grown / np.float32(count) if backward else loss

    return call


def entropy(i: dict[str, Any]) -> Call:
    """Return the loss (minus the mean), or the gradient."""

    def call(backward: bool) -> Any:
        mask = i["mask"]
        count = mask.sum()
        loss = -(i["entropy"] * mask).sum() / count
        return mask * np.float32(-1 / count) if backward else loss

    return call


def sequences(i: dict[str, Any]) -> Call:
    """Return the loss (minus the mean over sequences of their means), or the gradient."""

    def call(backward: bool) -> Any:
        mask = i["mask"]
        lengths = mask.sum(axis=1)
        loss = -((i["entropy"] * mask).sum(axis=1) / lengths).mean()
        if not backward:
            return loss
        return mask * (-1 / (lengths * len(lengths))).astype(np.float32)[:, None]

    return call


FUNCTIONS: dict[str, Callable[[dict[str, Any]], Call]] = {
    "gae": gae,
    "grpo": grpo,
    "ppo": ppo,
    "value": value,
    "kl": kl,
    "entropy": entropy,
    "sequences": sequences,
}
