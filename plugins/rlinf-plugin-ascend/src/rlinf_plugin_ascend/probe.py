"""What training on an NPU wants of the machine."""

from __future__ import annotations

import importlib.util

from rlinf_core.api import Readiness


def probe() -> list[Readiness]:
    """Return whether torch_npu is there; it is not imported, which would load the driver."""
    there = importlib.util.find_spec("torch_npu") is not None
    if there:
        return [Readiness("torch_npu", True, "installed")]
    remedy = "install torch_npu and CANN of one release, as Huawei's page on torch_npu says"
    return [Readiness("torch_npu", False, "not installed", "", remedy)]
