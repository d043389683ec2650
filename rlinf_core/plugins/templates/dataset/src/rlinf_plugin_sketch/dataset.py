"""The dataset ``sketch``."""

from collections.abc import Mapping
from typing import Any

from rlinf_plugin_sketch.config import SketchConfig


class SketchDataset:
    """Every sum of two numbers once. Order and epochs belong to the run.

    Args:
        config: its options.
    """

    def __init__(self, config: SketchConfig) -> None:
        self._numbers = config.largest + 1

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._numbers**2

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        """Return one sample; the same index always gives the same one."""
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} samples, and no sample {index}")
        one, other = divmod(index, self._numbers)
        return {"prompt": f"{one} + {other} =", "solution": str(one + other)}
