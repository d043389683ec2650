"""Dataset: samples in an order that can be resumed exactly.

The target of a dataset component is called as ``target(config)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Dataset(Protocol):
    """A finite collection of samples."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        """Return one sample; the same index always gives the same sample.

        Order and epochs belong to the run, so resuming needs only a position.
        """
        ...
