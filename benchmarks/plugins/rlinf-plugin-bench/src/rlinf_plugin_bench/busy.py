"""A simulator and a model of a known cost per environment: the toy world, and work beside it."""

from __future__ import annotations

import time

from torch import Tensor

from rlinf_core.api import Act, Batch, Draws, EnvSlots, Mode, Spaces, Step
from rlinf_core.testing import ToyConfig, ToyPolicy, ToySimulator
from rlinf_plugin_bench.config import BusyConfig

HORIZON = 20  # steps of an episode


def work(config: BusyConfig, environments: int) -> None:
    """Cost what a step of so many environments is to cost."""
    seconds = config.milliseconds * environments / 1e3
    if config.by == "sleeping":
        time.sleep(seconds)
        return
    until = time.thread_time() + seconds  # of the processor: whoever has to share it is no faster
    while time.thread_time() < until:
        pass


class BusySimulator(ToySimulator):
    """The toy world, where a step costs something."""

    def __init__(self, config: BusyConfig, slots: EnvSlots) -> None:
        super().__init__(ToyConfig(horizon=HORIZON), slots)
        self._cost = config

    def step(self, actions: Tensor) -> Step:
        """Work, and move."""
        work(self._cost, len(actions))
        return super().step(actions)


class BusyPolicy(ToyPolicy):
    """The toy's policy, where acting costs something; asking for values and learning do not."""

    def __init__(self, config: BusyConfig, spaces: Spaces, chunk: int) -> None:
        super().__init__(config, spaces, chunk)
        self._cost = config

    def act(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        """Work, and act."""
        if mode is not Mode.VALUE:
            work(self._cost, len(obs))
        return super().act(obs, draws, mode)
