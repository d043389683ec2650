"""What every policy must do, of this one; with and without statistics of its own."""

from __future__ import annotations

from rlinf_plugin_mlp.config import MLPConfig
from rlinf_plugin_mlp.policy import MLPPolicy

from rlinf_core.api import Spaces
from rlinf_core.testing import PolicyContract


class TestMLP(PolicyContract):
    def make(self, spaces: Spaces, chunk: int) -> MLPPolicy:
        return MLPPolicy(MLPConfig(), spaces, chunk)


class TestMLPWithoutNormalisation(PolicyContract):
    def make(self, spaces: Spaces, chunk: int) -> MLPPolicy:
        config = MLPConfig(normalize_observations=False, activation="relu", hidden=(16,))
        return MLPPolicy(config, spaces, chunk)
