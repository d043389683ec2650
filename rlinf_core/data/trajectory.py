"""Trajectory: what T steps of N environments yield, time-major, as one :class:`Batch`.

Entries, each [T, N, ...]:

    obs          what the policy saw, without strings      reward      [T, N, C]
    replay       what ``Policy.evaluate`` needs            terminated  [T, N, C]
    logp         as the policy's log-prob level says       truncated   [T, N, C]
    value        [T, N], if there is a critic              success     [T, N, C]
    next_value   [T, N], value of the observation that     valid       [T, N, C]
                 followed *in the same episode*            env, step, version   int64 [T, N]

``next_value`` is 0 where the episode terminated, the final observation's value where it was
truncated, and the next step's value elsewhere, so advantages need nothing from outside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.errors import BatchError


def columns(trajectory: Batch, which: slice) -> Batch:
    """Return a trajectory of some of its environments, as views; strings have no columns."""
    return trajectory.map(lambda tensor: tensor[:, which])


class TrajectoryBuilder:
    """Collects steps of N environments and stacks them when T are there.

    Use per step: :meth:`act` with what the policy did, then :meth:`outcome` with what came of it.
    """

    def __init__(self) -> None:
        self._acted: list[dict[str, Any]] = []
        self._outcomes: list[dict[str, Tensor]] = []
        self._final_values: list[Tensor | None] = []

    def __len__(self) -> int:
        return len(self._outcomes)

    def act(self, **entries: Any) -> None:
        """Take ``obs``, ``replay``, ``logp``, ``value``, ``env``, ``step`` and ``version``.

        Strings of ``obs``, the instructions, are left out: a policy that needs them again has
        their tokens in its replay.
        """
        if len(self._acted) != len(self._outcomes):
            raise BatchError("act() twice without an outcome() between")
        given = {key: value for key, value in entries.items() if value is not None}
        if isinstance(given.get("obs"), Batch):
            given["obs"] = given["obs"].without_strings()
        self._acted.append(given)

    def outcome(self, final_values: Tensor | None = None, **entries: Tensor) -> None:
        """Take ``reward``, ``terminated``, ``truncated``, ``success``, ``valid``, [N, C] each.

        Args:
            final_values: [N], value of the final observation where the episode was truncated in
                this step; other entries are not read.
        """
        if len(self._acted) != len(self._outcomes) + 1:
            raise BatchError("outcome() without an act() before it")
        self._final_values.append(final_values)
        self._outcomes.append(entries)

    def build(self, last_values: Tensor | None) -> Batch:
        """Stack everything and start anew.

        Args:
            last_values: [N], value of the observation after the last step; None without a critic.
        """
        acted = Batch.stack([Batch(entries) for entries in self._acted])
        outcomes = Batch.stack([Batch(entries) for entries in self._outcomes])
        merged = Batch({**acted, **outcomes})
        final_values = self._final_values
        self._acted, self._outcomes, self._final_values = [], [], []
        if last_values is None:
            return merged
        following = torch.cat([merged["value"][1:], last_values[None]])  # [T, N]
        terminated = (merged["terminated"] & merged["valid"]).any(dim=2)  # [T, N]
        truncated = (merged["truncated"] & merged["valid"]).any(dim=2)  # [T, N]
        for step, values in enumerate(final_values):
            if values is not None:
                following[step] = torch.where(truncated[step], values, following[step])
        following = torch.where(terminated, torch.zeros_like(following), following)
        return merged.with_entries(next_value=following)
