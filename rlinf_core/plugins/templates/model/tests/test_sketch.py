"""The contract of a policy, and what this one is about."""

import torch
from rlinf_plugin_sketch.config import SketchConfig
from rlinf_plugin_sketch.policy import SketchPolicy

from rlinf_core.api import Mode
from rlinf_core.testing import PolicyContract


class TestContract(PolicyContract):
    def make(self, spaces, chunk):
        return SketchPolicy(SketchConfig(), spaces, chunk)

    def test_the_greedy_action_is_linear_in_the_state(self):
        policy, obs = self.policy(), self.observation(4)
        act = policy.act(obs, None, Mode.GREEDY)
        expected = obs["state"] @ policy.mean.weight.T + policy.mean.bias
        shaped = expected.reshape(4, *policy.shape).clamp(-1, 1)
        assert torch.allclose(act.actions, shaped, atol=1e-6)
