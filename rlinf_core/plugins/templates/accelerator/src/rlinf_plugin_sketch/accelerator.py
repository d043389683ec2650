"""The accelerator ``sketch``. Finding devices imports no torch."""

import os
from pathlib import Path

DEVICES = Path("/dev")
"""Where the driver lists its devices."""


class SketchAccelerator:
    """Devices named ``sketch0``, ``sketch1`` and so on, as this driver would list them."""

    torch_name = "privateuseone"  # what torch calls a device of a plugin of torch's own
    visibility_variable = "VISIBLE_DEVICES"
    collective = "gloo"

    def count(self) -> int:
        """Return how many devices this machine has, honouring the visibility variable."""
        present = {file.name.removeprefix("sketch") for file in DEVICES.glob("sketch[0-9]*")}
        shown = os.environ.get(self.visibility_variable)
        return len(present if shown is None else present & set(shown.split(",")))

    def memory(self, index: int) -> int | None:
        """Return None: it cannot be told without the driver."""
        return None
