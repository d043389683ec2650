"""Virtual sequences of initial states and their seeds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlinf_core.protocols.simulator import StateId
from rlinf_core.simulation import StateRange, state_seed


def test_a_range_is_a_sequence_that_holds_nothing() -> None:
    states = StateRange("train", 10**9)
    assert len(states) == 10**9
    assert states[3] == StateId("train", 3)
    assert states[-1] == StateId("train", 10**9 - 1)
    assert states[2:4] == [StateId("train", 2), StateId("train", 3)]
    assert StateId("train", 7) in states
    assert StateId("test", 7) not in states
    with pytest.raises(IndexError):
        states[10**9]
    with pytest.raises(ValueError, match="wanted at least 1"):
        StateRange("test", 0)


def test_seeds_are_the_same_in_every_process() -> None:
    code = (
        "from rlinf_core.simulation import state_seed; "
        "from rlinf_core.protocols.simulator import StateId; "
        "print(state_seed(StateId('train', 5)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert int(told.stdout) == state_seed(StateId("train", 5)) == 4133985801035983557


def test_splits_and_neighbours_share_no_seed() -> None:
    seeds = [state_seed(StateId(split, i)) for split in ("train", "test") for i in range(20_000)]
    assert len(set(seeds)) == len(seeds)
    assert max(seeds).bit_length() == 64


def test_narrow_seeds_fit() -> None:
    seeds = [state_seed(StateId("train", i), bits=31) for i in range(2000)]
    assert max(seeds) < 2**31
    assert len(set(seeds)) == 2000
