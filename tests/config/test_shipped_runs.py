"""Every run file that the project ships is accepted as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlinf_core
from rlinf_core.config.validate import load_run

CONFIGS = sorted((Path(rlinf_core.__file__).parents[1] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_run_is_accepted_by_its_name(path):
    run = load_run(path.stem)
    assert run.path == path
    assert run.config.name == path.stem


def test_the_quick_start_is_short():
    (path,) = (path for path in CONFIGS if path.stem == "quickstart")
    assert len(path.read_text().splitlines()) < 40
