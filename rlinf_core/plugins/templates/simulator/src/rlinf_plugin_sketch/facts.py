"""What is known of the simulator without running it. Imports no torch and no simulator."""

import numpy as np
from gymnasium import spaces

from rlinf_core.api import Facts, Spaces

STATE_WIDTH = 3
"""Position, velocity and the mark's position."""


def make_spaces() -> Spaces:
    """Return what one environment shows and takes, without the number of environments."""
    state = spaces.Box(-np.inf, np.inf, (STATE_WIDTH,), np.float32)
    action = spaces.Box(-1.0, 1.0, (1,), np.float32)
    return Spaces(observation=spaces.Dict({"state": state}), action=action)


def facts(config, upstream) -> Facts:
    """Return the facts of a configured simulator."""
    return Facts(parameters=0, bytes=0, spaces=make_spaces())
