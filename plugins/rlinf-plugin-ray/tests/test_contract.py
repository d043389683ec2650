"""The runtime ``ray`` keeps the contract that all runtimes keep."""

from __future__ import annotations

import pytest
from rlinf_plugin_ray.config import RayConfig
from rlinf_plugin_ray.runtime import RayRuntime

from rlinf_core.testing import RuntimeContract


@pytest.mark.usefixtures("head")
class TestRayRuntime(RuntimeContract):
    def make_runtime(self) -> RayRuntime:
        return RayRuntime(RayConfig())
