"""The accelerator ``ascend``: Ascend NPUs, as the driver lists them below /dev.

torch_npu brings the device to torch under the name "npu", and HCCL as its collective. torch loads
it by itself where it is installed, so nothing here imports it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from rlinf_core.api import visible

DEVICES = Path("/dev")
"""Where the driver lists NPUs: ``davinci0``, ``davinci1`` and so on."""


class Ascend:
    """Ascend NPUs."""

    torch_name = "npu"
    visibility_variable = "ASCEND_RT_VISIBLE_DEVICES"
    collective = "hccl"
    handles = False  # torch_npu has some, which nobody has tried here
    torch_build = "cpu"  # torch_npu refuses a torch that has another accelerator

    def count(self) -> int:
        """Return how many NPUs a process would see; 0 where there is no driver."""
        present: list[str] = []
        with suppress(OSError):
            present = [f.name for f in DEVICES.iterdir() if re.fullmatch(r"davinci[0-9]+", f.name)]
        # Of those that a container is given, the runtime counts from 0, whatever their numbers.
        return len(visible(os.environ.get(self.visibility_variable), [""] * len(present)))

    def memory(self, index: int) -> int | None:
        """Return None: only the runtime tells it, and asking starts it in this process."""
        return None
