"""What every policy must do, of pi0 and pi0.5 with each sampler, log-prob and value."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config
from rlinf_plugin_pi0.policy import Pi0Policy, Pi05Policy

from rlinf_core.api import Batch, Spaces
from rlinf_core.testing import PolicyContract


class PiContract(PolicyContract):
    """The contract with images and instructions; subclasses say which options."""

    kinds = (Pi0Config, Pi0Policy)
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _given(self, tiny, spaces, observe):
        self._tiny, self._spaces, self._observe = tiny, spaces, observe

    def spaces(self) -> Spaces:
        return self._spaces()

    def observation(self, rows: int) -> Batch:
        return self._observe(rows)

    def make(self, spaces: Spaces, chunk: int):
        config, policy = self.kinds
        return policy(config(**{**self._tiny, **self.options}), spaces, chunk)


class TestPi0(PiContract):
    pass


class TestPi0Joint(PiContract):
    options: ClassVar[dict[str, Any]] = {"joint_logprob": True, "train_vlm": True}


class TestPi0LearnedNoise(PiContract):
    options: ClassVar[dict[str, Any]] = {
        "sampler": "flow_noise",
        "joint_logprob": True,
        "value_chunk_only": True,
    }


class TestPi0Cps(PiContract):
    options: ClassVar[dict[str, Any]] = {"sampler": "flow_cps", "ignore_last": True, "value": "vlm"}


class TestPi0WithoutCritic(PiContract):
    options: ClassVar[dict[str, Any]] = {
        "value": "none",
        "noise_annealing": {"start": 0.7, "end": 0.3, "iterations": 4},
    }


class TestPi05(PiContract):
    kinds = (Pi05Config, Pi05Policy)
    options: ClassVar[dict[str, Any]] = {"max_tokens": 100}


class TestPi05ValueOfTheExpert(PiContract):
    kinds = (Pi05Config, Pi05Policy)
    options: ClassVar[dict[str, Any]] = {
        "value": "expert",
        "state_in_prompt": False,
        "sampler": "flow_noise",
    }
