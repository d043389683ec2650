"""The peers' own environments: one below ``build/bench/environments`` per ``requirements-*.txt``.

``requirements-NAME.txt`` is installed as usual. ``requirements-NAME-no-deps.txt``, where there is
one, is installed afterwards without dependencies: the peer whose own pins exclude the torch that
everybody is measured with, or ask for what the measured functions never import.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.bench import BUILD, ROOT, Bench, Failed

FOLDER = BUILD / "environments"
REQUIREMENTS = ROOT / "benchmarks"


_ready: dict[str, tuple[Path, dict[str, str]]] = {}


def python(name: str, bench: Bench) -> Path:
    """Return the Python of a peer's environment, making it where it is not as its files say.

    Raises:
        Failed: it cannot be installed; says why.
    """
    if name not in _ready:
        interpreter = _install(name)
        listed = json.loads(_run([interpreter, "-m", "pip", "list", "--format", "json"]))
        found = {each["name"].lower().replace("_", "-"): each["version"] for each in listed}
        _ready[name] = interpreter, found
    interpreter, found = _ready[name]
    bench.installed(name, found)
    return interpreter


def _install(name: str) -> Path:
    files = [
        path
        for suffix in ("", "-no-deps")
        if (path := REQUIREMENTS / f"requirements-{name}{suffix}.txt").exists()
    ]
    wanted = "\n".join(path.read_text(encoding="utf-8") for path in files) + sys.version
    folder, interpreter = FOLDER / name, FOLDER / name / "bin" / "python"
    mark = folder / "installed.txt"
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        print(f"installing the environment {name}", file=sys.stderr, flush=True)
        venv.create(folder, clear=True, with_pip=True)
        for path in files:
            no_deps = ["--no-deps"] if path.stem.endswith("-no-deps") else []
            _run([interpreter, "-m", "pip", "install", "-q", *no_deps, "-r", path])
        mark.write_text(wanted, encoding="utf-8")
    return interpreter


def _run(command: list[str | Path]) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Failed("; ".join(errors[-2:]) or done.stderr.strip()[-300:])
    return done.stdout
