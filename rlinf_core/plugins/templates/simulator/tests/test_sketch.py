"""The contract of a simulator, and what this one is about."""

import numpy as np
from rlinf_plugin_sketch.config import SketchConfig
from rlinf_plugin_sketch.environment import SketchEnvironment
from rlinf_plugin_sketch.simulator import make_simulator

from rlinf_core.api import StateId
from rlinf_core.testing import SimulatorContract


class TestContract(SimulatorContract):
    def make(self, slots):
        return make_simulator(SketchConfig(processes=1), slots)


def test_a_cart_that_stands_at_the_mark_has_solved_the_task():
    cart = SketchEnvironment(max_episode_steps=50, push=0.05)
    cart.reset(StateId("train", 0))
    cart._position = cart._mark
    _, reward, terminated, truncated, solved = cart.step(np.zeros(1))
    assert (reward, terminated, truncated, solved) == (0.0, False, False, True)
