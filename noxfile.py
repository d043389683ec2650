"""Every check a person runs. ``python -m nox -l`` lists them; ``.ci/run`` calls all but
``bench``, ``chaos`` and ``gpu_check``.

Each session makes its own environment; the exact versions are in ``constraints/dev.txt``.
"""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

import nox

nox.options.sessions = ["tests", "lint", "types", "bare", "docs"]
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True

PLUGINS = sorted(str(path) for path in Path("plugins").glob("rlinf-plugin-*"))
LARGE = {  # what a first try needs not
    "plugins/rlinf-plugin-maniskill",  # its simulator takes half a gigabyte
    "plugins/rlinf-plugin-openvla",  # it and the next two need transformers
    "plugins/rlinf-plugin-openvla-oft",
    "plugins/rlinf-plugin-pi0",
    "plugins/rlinf-plugin-ray",  # Ray takes 300 MB
}
TEST_TOOLS = [
    "pytest>=8,<10",
    "hypothesis>=6,<7",
    "pytest-timeout>=2,<3",
    "pytest-xdist>=3.6,<4",
    "jsonschema>=4.23,<5",
    "hatchling>=1.25,<2",  # installs what ``rlinf plugins new`` makes, without an index
]
# One thread per process: the machine's cores belong to the simulators.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def install(session: nox.Session, *packages: str) -> None:
    session.install("-c", "constraints/dev.txt", *packages)


def install_project(session: nox.Session, *more: str, leave_out: Set[str] = frozenset()) -> None:
    """Install the core and every plugin in the tree, editable, in one resolution."""
    chosen = [".", *(path for path in PLUGINS if path not in leave_out)]
    install(session, *[part for path in chosen for part in ("-e", path)], *more)


@nox.session
def quickstart(session: nox.Session) -> None:
    """Train the quick start. Arguments after -- go to ``rlinf train``."""
    install_project(session, leave_out=LARGE)
    # No hurry after Ctrl-C: the run writes a checkpoint first.
    patient = {"interrupt_timeout": None, "terminate_timeout": None}
    session.run("rlinf", "train", "quickstart", *session.posargs, env=ENVIRONMENT, **patient)
    session.log(f"to use rlinf by hand:  . {Path(session.virtualenv.location) / 'bin/activate'}")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests of the core and of every plugin, with the real simulator.

    Files go to two processes, as much of a test is waiting; with arguments after --, to one.
    """
    install_project(session, *TEST_TOOLS)
    session.run("pytest", *(session.posargs or ("-n2", "--dist=loadfile")), env=ENVIRONMENT)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure beside peers, as ratios. Arguments after --: names of benchmarks, ``--quick``."""
    # The page of names, which is written with the others, is also of what needs pytest.
    install_project(session, "-e", "benchmarks/plugins/rlinf-plugin-bench", *TEST_TOOLS)
    session.run("python", "-m", "benchmarks", *session.posargs, env=ENVIRONMENT)
    session.run("python", "docs/generate.py", env=ENVIRONMENT)


@nox.session
def chaos(session: nox.Session) -> None:
    """Kill random processes of runs. Arguments after --: how often, ``--seed``, ``--json``."""
    install_project(session, leave_out=LARGE)
    session.run("python", "scripts/chaos", *session.posargs, env=ENVIRONMENT)


@nox.session
def gpu_check(session: nox.Session) -> None:
    """Check on one CUDA device what no CPU reaches; ``-- --device cpu`` goes as far as one does."""
    install_project(session, *TEST_TOOLS, leave_out=LARGE)
    session.run("python", "scripts/gpu_check", *session.posargs, env=ENVIRONMENT)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and who imports whom."""
    install(session, "ruff>=0.9,<1", "import-linter>=2.1,<3", "-e", ".")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check the core's types, strictly."""
    install(session, "mypy>=1.14,<3", *TEST_TOOLS, "-e", ".")
    session.run("mypy")


@nox.session
def bare(session: nox.Session) -> None:
    """Prove that listing, configuring and checking a run need neither torch nor a simulator."""
    heavy = ("torch", "safetensors", "matplotlib", "imageio")
    needed = nox.project.load_toml("pyproject.toml")["project"]["dependencies"]
    light = [line for line in needed if not line.startswith(heavy)]
    install(session, *light, *TEST_TOOLS)
    session.install("--no-deps", "-e", ".")
    session.run("pytest", "tests/bare", *session.posargs, env=ENVIRONMENT)


@nox.session
def build(session: nox.Session) -> None:
    """Build every wheel and sdist into dist/, check them, and train from the wheels alone."""
    install(session, "build>=1.3,<2", "hatchling>=1.25,<2", "twine>=6.1,<8", "packaging>=24,<27")
    session.run("python", "scripts/build.py", env=ENVIRONMENT)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a broken link or a page nobody links to is an error."""
    install(session, "mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10")
    session.run("mkdocs", "build", "--strict", "--site-dir", os.path.join("build", "site"))
