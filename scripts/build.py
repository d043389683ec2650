"""Builds the wheels and uses them as a user would: ``python -m nox -s build``.

Each step is a function; they run in the order of :func:`main` and the first that fails ends it. The
core and the plugins must come from the wheels, whatever an index holds under their names, and that
is checked; all else comes from the index, in the versions of ``constraints/dev.txt``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from check_wheels import faults
from set_version import CORE, ROOT, Project, projects

DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints" / "dev.txt"

SHORT = """
steps=2 collect.envs=4 collect.steps=25 update.minibatch_size=50 update.epochs=2
evaluation.episodes=8 evaluation.video=false simulator.max_episode_steps=25
"""
"""Options that make the quick start a matter of seconds."""


def build(known: list[Project]) -> list[Path]:
    """Build an sdist of each project, and its wheel from that; return the wheels."""
    if DIST.exists():
        shutil.rmtree(DIST)
    for project in known:
        # Not isolated: the session has the build backend, and the same one for all.
        _run("build", "--no-isolation", "--outdir", str(DIST), str(project.folder))
    return sorted(DIST.glob("*.whl"))


def check(wheels: list[Path]) -> None:
    """Check what was built."""
    _run("twine", "check", "--strict", *map(str, sorted(DIST.iterdir())))
    if found := faults(wheels):
        raise SystemExit("\n".join(["error: the wheels are not as they must be:", *found]))


def install(wheels: list[Path], known: list[Project], folder: Path) -> Path:
    """Install everything from the wheels into a new environment; return its Python."""
    python = folder / "env" / "bin" / "python"
    venv.create(folder / "env", with_pip=True)
    core = next(wheel for wheel in wheels if wheel.name.startswith("rlinf_core-"))
    report = folder / "report.json"
    options = ["-c", str(CONSTRAINTS), "--find-links", str(DIST), "--report", str(report)]
    _run("pip", "install", "-q", *options, f"{CORE}[all] @ {core.as_uri()}", by=python)
    places = {
        item["metadata"]["name"]: item["download_info"]["url"]
        for item in json.loads(report.read_text(encoding="utf-8"))["install"]
    }
    for project in known:
        if not places.get(project.name, "").startswith(DIST.as_uri()):
            raise SystemExit(
                f"error: {CORE}[all] took {project.name} from {places.get(project.name)}, wanted "
                f"its wheel in {DIST}"
            )
    _run("pip", "check", by=python)
    return python


def use(python: Path, known: list[Project], folder: Path) -> None:
    """List, configure, train and evaluate, where nothing of the repository can be seen."""
    rlinf = [str(python.with_name("rlinf"))]
    where = _run("-c", "import rlinf_core; print(rlinf_core.__file__)", by=python, cwd=folder)
    if not where.startswith(str(folder / "env")):
        raise SystemExit(f"error: rlinf_core was imported from {where}")
    version = f"rlinf {known[0].version}\n"
    if (said := _run("--version", by=rlinf, cwd=folder)) != version:
        raise SystemExit(f"error: rlinf --version says {said!r}, wanted {version!r}")
    listed = json.loads(_run("plugins", "list", "--json", by=rlinf, cwd=folder))
    states = {d["distribution"]: (d["version"], d["status"]) for d in listed["distributions"]}
    wanted = {p.name: (str(p.version), "ok") for p in known}
    if states != wanted:
        raise SystemExit(f"error: rlinf plugins list says {states}, wanted {wanted}")
    _run("config", "show", "quickstart", by=rlinf, cwd=folder)
    _run("config", "schema", "quickstart", by=rlinf, cwd=folder)
    trained = json.loads(
        _run("train", "quickstart", *SHORT.split(), "--json", by=rlinf, cwd=folder)
    )
    if trained["outcome"] != "done" or not trained["checkpoint"]:
        raise SystemExit(f"error: the quick start ended with {trained}")
    options = ["--checkpoint", trained["checkpoint"], "--json"]
    evaluated = json.loads(
        _run("eval", "quickstart", *SHORT.split(), *options, by=rlinf, cwd=folder)
    )
    for key in ("success_once", "return_mean", "initial_states"):
        if evaluated[key] != trained["evaluation"][key]:
            raise SystemExit(f"error: the same checkpoint gives {evaluated} and {trained}")


def _run(*arguments: str, by: Path | list[str] | None = None, cwd: Path | None = None) -> str:
    """Run a module of this Python, another Python or a program; return what it prints.

    Raises:
        SystemExit: it failed; its output is shown before.
    """
    match by:
        case list():
            command = [*by, *arguments]
        case _:
            flags = ["-P"] if arguments[0] == "-c" else ["-P", "-m"]
            command = [str(by or sys.executable), *flags, *arguments]
    environment = {**os.environ, "XDG_CONFIG_HOME": os.devnull, "PYTHONSAFEPATH": "1"}
    for name in ("PYTHONPATH", "RLINF_CONFIG"):
        environment.pop(name, None)
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=cwd or ROOT, env=environment, capture_output=True, text=True, check=False
    )
    shown = " ".join([Path(command[0]).name, *command[1:]])
    print(f"{time.monotonic() - began:6.1f} s  {shown[:140]}", flush=True)
    if done.returncode:
        print(done.stdout + done.stderr)
        raise SystemExit(f"error: exit code {done.returncode} of {shown}")
    return done.stdout


def main() -> int:
    """Build, check, install and use."""
    known = projects()
    wheels = build(known)
    check(wheels)
    with tempfile.TemporaryDirectory() as temporary:  # elsewhere: no file of ours is beside it
        folder = Path(temporary).resolve()
        python = install(wheels, known, folder)
        use(python, known, folder)
    print(f"{len(wheels)} wheels and as many sdists are in {DIST.relative_to(ROOT)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
