"""Initial states: virtual sequences of them, and the one seed that belongs to each.

Every simulator that starts an episode from a seed takes it from :func:`state_seed`, so a
``StateId`` means the same to all of them and two splits never share an episode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import overload

import numpy as np

from rlinf_core.protocols.simulator import StateId


class StateRange(Sequence[StateId]):
    """The states 0, 1, ... ``count - 1`` of a split, made when they are asked for.

    Args:
        split: name of the split, such as ``"train"``.
        count: number of states; a million costs as much as one.
    """

    def __init__(self, split: str, count: int) -> None:
        if count < 1:
            raise ValueError(f"split {split!r} of {count} states; wanted at least 1")
        self.split, self._indices = split, range(count)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> StateId: ...
    @overload
    def __getitem__(self, index: slice) -> list[StateId]: ...
    def __getitem__(self, index: int | slice) -> StateId | list[StateId]:
        if isinstance(index, slice):
            return [StateId(self.split, i) for i in self._indices[index]]
        return StateId(self.split, self._indices[index])

    def __contains__(self, state: object) -> bool:
        return (
            isinstance(state, StateId)
            and state.split == self.split
            and state.index in self._indices
        )

    def __repr__(self) -> str:
        return f"StateRange({self.split!r}, {len(self)})"


def state_seed(state: StateId, bits: int = 64) -> int:
    """Return the seed that belongs to ``state``: the same on every machine and in every process.

    The name of the split is hashed and mixed with the index, so neighbouring indices give
    unrelated seeds. With 64 bits no two states of realistic splits share a seed; a simulator that
    only takes 31 bits gets them with the odds of a birthday among 2**31.

    Args:
        state: the initial state.
        bits: 1 to 64, the width that the simulator's random generator accepts.
    """
    name = int.from_bytes(hashlib.sha256(state.split.encode()).digest()[:16], "big")
    (word,) = np.random.SeedSequence([name, state.index]).generate_state(1, np.uint64)
    return int(word) >> (64 - bits)
