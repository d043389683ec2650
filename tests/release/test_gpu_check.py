"""The checks of a GPU, as far as a CPU reaches, and what is told where there is no GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def gpu_check(*arguments: str, **variables: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "gpu_check"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )
    return done.returncode, done.stdout, done.stderr


def test_it_can_be_started_by_its_name():
    assert os.access(SCRIPTS / "gpu_check", os.X_OK)


def test_without_a_gpu_it_says_that_it_was_never_run():
    code, out, err = gpu_check(CUDA_VISIBLE_DEVICES="")
    assert (code, out, err) == (2, "", "no CUDA device: never run\n")
    code, out, _ = gpu_check("--json", CUDA_VISIBLE_DEVICES="")
    assert code == 2
    report = json.loads(out)
    assert report["missing"] == "no CUDA device"
    assert report["checks"] == []


QUICK = [
    "device", "rollout engine", "training backend", "precisions", "offload", "channels",
    "ManiSkill on the GPU",
]  # fmt: skip


def test_checks_go_as_far_as_a_cpu_reaches():
    only = [part for name in QUICK for part in ("--only", name)]
    code, out, err = gpu_check("--device", "cpu", "--json", *only)
    assert code == 0, err
    report = json.loads(out)
    assert report["schema_version"] == 1
    assert {row["check"]: row["result"] for row in report["checks"]} == dict.fromkeys(
        QUICK, "ok"
    ) | {"ManiSkill on the GPU": "not here"}
    notes = {row["check"]: row["note"] for row in report["checks"]}
    assert "farthest weight 0.0e+00 from the CPU's" in notes["training backend"]
    assert notes["channels"] == "made on cpu, arrived on cpu, equal"
    assert notes["ManiSkill on the GPU"].startswith("not built")


@pytest.mark.slow
def test_runs_go_through_on_a_cpu_too():
    names = ["quick start by turns", "quick start, hybrid", "weights by collective"]
    only = [part for name in names for part in ("--only", name)]
    code, out, err = gpu_check("--device", "cpu", *only)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["CHECK", "RESULT", "SECONDS", "NOTE"]
    assert [line.startswith(name) for line, name in zip(lines[1:], names, strict=True)]
    assert all(" ok " in line for line in lines[1:])


def test_when_time_is_up_what_is_left_is_not_run_and_that_is_a_failure():
    code, out, _ = gpu_check("--device", "cpu", "--seconds", "0", "--only", "device")
    assert code == 1
    assert "no time" in out


@pytest.fixture
def script(monkeypatch) -> Any:
    """Return the script as a module, with checks of its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPTS / "gpu_check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("code", "note"),
    [
        ("raise SystemExit(3)", "exit code 3: it said nothing"),
        ("import os; os.abort()", "exit code -6: it said nothing"),
        ("import time; print('x', flush=True); time.sleep(60)", "not done after 1 s, and ended"),
        ("print('no json')", "exit code 0: it said nothing"),
        ("raise ValueError('bad')", "exit code 1: ValueError: bad"),
    ],
)
def test_a_check_that_dies_or_hangs_fails_alone(script, tmp_path, monkeypatch, code, note):
    (tmp_path / "gpu_checks.py").write_text(code)
    monkeypatch.setattr(script, "HERE", tmp_path)
    row = script._checked("device", "cpu", 1.9)
    assert (row["result"], row["note"]) == ("failed", note.replace("1 s", "2 s"))


def test_a_check_that_fails_says_why(script, monkeypatch, capsys):
    checks = sys.modules["gpu_checks"]
    monkeypatch.setitem(checks.CHECKS, "broken", checks.Check(lambda device: 1 / 0, 1.0))
    checks.main("broken", "cpu")
    said = json.loads(capsys.readouterr().out)
    assert said == {"result": "failed", "note": "ZeroDivisionError: division by zero"}
