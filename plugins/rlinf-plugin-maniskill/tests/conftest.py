from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlinf_plugin_maniskill.config import ManiSkillConfig
from rlinf_plugin_maniskill.simulator import make_simulator

from rlinf_core.api import EnvSlots


@pytest.fixture(scope="session", autouse=True)
def kept() -> Iterator[None]:
    """Hold the process that imported ManiSkill, so that it is imported once for all tests."""
    simulator = make_simulator(ManiSkillConfig(processes=1), EnvSlots((0,), seed=0))
    yield
    simulator.close()
