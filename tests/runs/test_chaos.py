"""Ten random kills of the two hundred that ``nox -s chaos`` makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[2] / "scripts" / "chaos"


@pytest.mark.slow
def test_random_kills_end_in_order_or_are_survived():
    done = subprocess.run(
        [sys.executable, str(CHAOS), "10", "--seed", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["kills"] == 10
    assert done.returncode == 0
