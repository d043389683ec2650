"""``rlinf plan``: its page, its JSON and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from rlinf_core.cli import main
from rlinf_core.flow.plan import FIELDS


@pytest.fixture
def plan(load, capsys, monkeypatch):
    """Return a function that types the command and returns (exit code, output, errors)."""

    def plan(*arguments, **changes):
        load(**changes)
        monkeypatch.setattr(sys, "argv", ["rlinf", "plan", "flow.yaml", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return plan


APART = "placement={simulation: 0, rollout: 1, training: 2}"


def test_the_page(plan):
    code, out, err = plan(APART, model="heavy")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    for said in (
        "flow: disaggregated, each group has devices of its own",
        "training 1 process cpu:2",
        "stages: 2 (chosen by the placement)",
        "rollout.serve observations actions, trajectories",
        "weights training -> rollout 1 2 MB 2 MB reference",
        "8 environments x 5 steps = 40 rows, 40 environment steps (chunks of 1)",
        "3 epochs x 2 minibatches of 20 rows = 6 optimizer steps at most",
        "cpu (",
        "weights 2 MB, gradients 2 MB, optimizer 4 MB, activations unknown",
        "image_rotation: given 180, expected 180, brought about by the simulator 'world'",
        "gripper: given unknown, expected open",
        "collect.envs 8 flow.yaml:9",
        'placement.rollout "1" command line',
    ):
        assert said in text


def test_the_json(plan):
    code, out, _ = plan("--json", APART)
    assert code == 0
    found = json.loads(out)
    assert list(found) == list(FIELDS)
    assert found["schema_version"] == 1
    assert found["problems"] == []
    assert {group["name"] for group in found["groups"]} == {
        "simulation",
        "rollout",
        "training",
        "evaluation",
    }


def test_problems_end_with_2_after_the_page(plan):
    code, out, err = plan("collect.stages=3", "collect.envs=6", "cluster.devices=cpu", APART)
    assert code == 2
    assert "2 wrong, see the end" in out
    assert err.startswith("error: command line: placement.rollout: there is no device 1")
    code, out, _ = plan("--json", "cluster.devices=cpu", APART)
    assert code == 2
    found = json.loads(out)
    assert list(found) == list(FIELDS)
    assert [p["path"] for p in found["problems"]] == ["placement.rollout", "placement.training"]
    assert found["values"]["cluster.devices"]["origin"] == "command line"


def test_a_run_that_cannot_be_read_has_its_problems_as_data_too(plan):
    code, out, _ = plan("--json", "collect.envs=7", "collect.stages=2")
    found = json.loads(out)
    assert code == 2
    assert list(found) == list(FIELDS)
    assert found["groups"] is None
    (problem,) = found["problems"]
    assert problem == {
        "path": "collect.stages",
        "found": "collect.envs=7 cannot be split evenly into collect.stages=2",
        "wanted": "wanted collect.envs=6 or 8, or collect.stages=7 or 1",
        "suggestions": [
            "collect.envs=6",
            "collect.envs=8",
            "collect.stages=7",
            "collect.stages=1",
        ],
        "origin": "command line",
    }
    code, out, _ = plan("--json", "model=nothing")
    (problem,) = json.loads(out)["problems"]
    assert "no plugin provides a model named 'nothing'" in problem["found"]
    assert plan("collect.envs=x")[0] == 2


def test_a_plan_imports_no_torch():
    code = """
        import sys
        from rlinf_core.config.validate import load_run
        from rlinf_core.runs.plan import make_plan
        make_plan(load_run("quickstart", ["placement=hybrid"])).raise_any()
        assert "torch" not in sys.modules
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
