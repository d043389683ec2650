"""What must answer without torch. Runs everywhere; ``nox -s bare`` runs it without torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import pytest

TORCHLESS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "mujoco", "metaworld", "safetensors", "matplotlib"}:
            raise ImportError(f"{name} was imported, which this must work without")

sys.meta_path.insert(0, Refuse())
"""

EVERYTHING = """
from rlinf_core.api import Capability, ComponentSpec, hookimpl

@hookimpl
def rlinf_simulators():
    return [ComponentSpec("nowhere", "None.", "rlinf_plugin_nothing.code:X")]

@hookimpl
def rlinf_models():
    return [ComponentSpec("none", "None.", "rlinf_plugin_nothing.code:X", capabilities=["value"])]

@hookimpl
def rlinf_algorithms():
    return [ComponentSpec("idle", "None.", "rlinf_plugin_nothing.code:X",
                          config="rlinf_plugin_nothing.config:Idle", needs={"model": ["value"]})]

@hookimpl
def rlinf_training_backends():
    return [ComponentSpec("idle-backend", "None.", "rlinf_plugin_nothing.code:X")]
"""


def run(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TORCHLESS + textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", **variables},
    )


def rlinf(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    code = "from rlinf_core.cli import main; sys.argv[0] = 'rlinf'; main()"
    return run(code, *arguments, **variables)


@pytest.fixture
def nothing(tmp_path):
    """A plugin with a component for each section, whose code does not exist."""
    package = tmp_path / "rlinf_plugin_nothing"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text(EVERYTHING)
    (package / "config.py").write_text(
        "from rlinf_core.api import Config\n\nclass Idle(Config):\n    rate: float = 0.5\n"
    )
    info = tmp_path / "rlinf_plugin_nothing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: rlinf-plugin-nothing\nVersion: 1.0\n"
        "Requires-Dist: rlinf-core>=0.1,<0.2\n"
    )
    (info / "entry_points.txt").write_text("[rlinf.plugins]\nx = rlinf_plugin_nothing.plugin\n")
    (tmp_path / "run.yaml").write_text(
        "simulator: nowhere\nmodel: none\nalgorithm: idle\ntraining: idle-backend\n"
    )
    return tmp_path


def test_listing_answers():
    done = rlinf("plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    kinds = {component["kind"] for component in listed["components"]}
    assert {"runtime", "rollout-engine", "logger", "accelerator", "weight-transport"} <= kinds
    core = next(d for d in listed["distributions"] if d["distribution"] == "rlinf-core")
    assert core == {
        "distribution": "rlinf-core",
        "version": importlib.metadata.version("rlinf-core"),
        "status": "ok",
        "phase": None,
        "error": None,
    }


def test_showing_a_component_answers():
    done = rlinf("plugins", "show", "direct")
    assert done.returncode == 0, done.stderr
    assert "batch_size" in done.stdout


def test_plugins_are_checked_matched_and_made(nothing, tmp_path):
    path = {"PYTHONPATH": str(nothing)}
    done = rlinf("plugins", "check", "nothing", "--json", **path)
    assert done.returncode == 1, done.stderr
    (report,) = json.loads(done.stdout)["distributions"]
    failed = [c["sentence"] for c in report["checks"] if c["outcome"] == "failed"]
    assert failed == ["options without help: rate"]
    done = rlinf("plugins", "matrix", "--json", **path)
    fits = {(p["name"], p["other_name"]): p["fits"] for p in json.loads(done.stdout)["pairs"]}
    assert fits["idle", "none"]
    done = rlinf("plugins", "list", "--no-import", **path)
    assert "rlinf_plugin_nothing.plugin" in done.stdout
    made = tmp_path / "made"
    assert rlinf("plugins", "new", "model", "x", "--output", str(made)).returncode == 0
    assert (made / "src" / "rlinf_plugin_x" / "policy.py").is_file()
    file = {"RLINF_CONFIG": str(tmp_path / "mine.yaml"), **path}
    assert rlinf("plugins", "disable", "nothing", **file).returncode == 0
    assert "is disabled" in rlinf("plugins", "list", **file).stdout


def test_the_doctor_answers():
    done = rlinf("doctor", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    states = {c["name"]: c["state"] for c in told["components"]}
    assert states["console"] == states["inline"] == "ready"
    installed = importlib.util.find_spec("torch") is not None
    assert bool(told["machine"]["torch"]) is installed


def test_a_run_is_composed_and_checked(nothing):
    code = """
        from rlinf_core.config.validate import load_run, to_plain
        run = load_run(sys.argv[1], ["algorithm.rate=0.25", "collect.envs=8"])
        print(run.components["algorithm"].config.rate, to_plain(run)["collect"]["envs"])
        assert "torch" not in sys.modules
    """
    done = run(code, str(nothing / "run.yaml"), PYTHONPATH=str(nothing))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0.25 8\n"


def test_a_run_is_shown_and_its_schema_written(nothing):
    file = str(nothing / "run.yaml")
    shown = rlinf("config", "show", file, "algorithm.rate=0.25", PYTHONPATH=str(nothing))
    assert shown.returncode == 0, shown.stderr
    assert "  rate: 0.25" in shown.stdout
    assert "# command line" in shown.stdout
    for arguments in ([file], []):
        schema = rlinf("config", "schema", *arguments, PYTHONPATH=str(nothing))
        assert schema.returncode == 0, schema.stderr
        assert "algorithm.rlinf-plugin-nothing.idle" in json.loads(schema.stdout)["$defs"]


def test_a_wrong_run_is_refused(nothing):
    done = rlinf("train", str(nothing / "run.yaml"), "algorithm.rat=1", PYTHONPATH=str(nothing))
    assert done.returncode == 2
    assert "'rate'" in done.stderr
    assert "rlinf-plugin-nothing" in done.stderr


def test_a_run_is_planned(nothing):
    done = rlinf("plan", str(nothing / "run.yaml"), "--json", PYTHONPATH=str(nothing))
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["mode"] == "collocated"
    assert plan["transfers"][0]["iteration"]["bytes"] is None  # nobody told


def test_the_flow_and_the_runtime_can_be_imported():
    code = """
        import rlinf_core.runs.train, rlinf_core.runs.evaluate, rlinf_core.runs.embodied
        import rlinf_core.runtime.inline, rlinf_core.builtin.accelerators
        import rlinf_core.builtin.console, rlinf_core.builtin.jsonl, rlinf_core.runtime.dequeue
    """
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("rlinf_plugin_metaworld") is not None, reason="its plugins are there"
)
def test_the_quick_start_without_its_plugins_says_what_to_install():
    done = rlinf("train", "quickstart")
    assert done.returncode == 2
    for name in ("metaworld", "mlp", "ppo", "torch"):
        assert f"pip install rlinf-plugin-{name}" in done.stderr
