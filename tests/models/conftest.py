"""Golden data that belongs to no one model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlinf_core.testing import Golden


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    return lambda name: Golden(Path(__file__).parents[1] / "goldens", name)
