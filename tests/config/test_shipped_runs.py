"""Every run file that the project ships is accepted as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlinf_core
from rlinf_core.config.validate import load_run
from rlinf_core.runs.plan import make_plan

CONFIGS = sorted((Path(rlinf_core.__file__).parents[1] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_run_is_accepted_by_its_name(path):
    run = load_run(path.stem)
    assert run.path == path
    assert run.config.name == path.stem


@pytest.mark.parametrize("mode", ["collocated", "disaggregated", "hybrid"])
def test_a_shipped_placement_gives_the_mode_that_it_is_named_for(mode):
    plan = make_plan(load_run("quickstart", [f"placement={mode}"]))
    assert plan.problems == ()
    assert plan.as_json()["mode"] == mode


def test_the_quick_start_is_short():
    (path,) = (path for path in CONFIGS if path.stem == "quickstart")
    assert len(path.read_text().splitlines()) < 40
