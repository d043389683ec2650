"""Reads the pages as a reader does: writes their files, types their commands, compares the output.

A code block with ``title="PATH"`` is a file. A ``console`` block below ``<!-- run -->`` is
executed, and ``...`` in its output stands for anything; of other ``console`` blocks the options are
checked.
Numbers in the output of commands that train are not compared.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rlinf_core.cli import main
from rlinf_core.config.schema import SECTIONS
from rlinf_core.config.search import core_folders
from rlinf_core.config.validate import load_run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

PAGES = sorted(
    str(path.relative_to(DOCS))
    for folder in ("tutorial", "how-to")
    for path in (DOCS / folder).glob("*.md")
)

SHORT = {
    "quickstart": (
        "collect.envs=2 collect.steps=5 update.minibatch_size=10 update.epochs=1 "
        "simulator.max_episode_steps=5 simulator.processes=1"
    ),
    "cart.yaml": (
        "steps=2 collect.envs=4 collect.steps=10 update.minibatch_size=40 evaluation.episodes=4"
    ),
}
"""Options that make the runs of the pages short."""

_FENCE = re.compile(
    r"^(?P<run><!-- run -->\n)?```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    place: str
    language: str
    title: str
    text: str
    run: bool

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield (command, what it prints) of a ``console`` block."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        Block(
            f"docs/{page}:{text.count(chr(10), 0, match.start()) + 1}",
            match["language"],
            match["title"] or "",
            match["text"],
            bool(match["run"]),
        )
        for match in _FENCE.finditer(text)
    ]


class Reader:
    """A person in an empty folder, with an environment in which this repository is installed.

    Args:
        folder: where files are written and commands run; the current folder.
        monkeypatch: undoes what installing a plugin does to this process.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        self._packages: list[str] = []
        self._site = folder / "site"
        self._site.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(self._site))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
        monkeypatch.delenv("RLINF_CONFIG", raising=False)

    def write(self, block: Block) -> None:
        """Write a titled block to its file."""
        path = self.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def install(self, project: str) -> None:
        """Install a project in place, as an installer would leave it."""
        source = self.folder / project
        about = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        package = about["name"].replace("-", "_")
        info = self._site / f"{package}-{about['version']}.dist-info"
        info.mkdir(exist_ok=True)
        lines = ["Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {about['version']}"]
        lines += [f"Requires-Dist: {line}" for line in about["dependencies"]]
        (info / "METADATA").write_text("\n".join([*lines, ""]), encoding="utf-8")
        (info / "entry_points.txt").write_text(
            "".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
                for group, entries in about["entry-points"].items()
            ),
            encoding="utf-8",
        )
        self._packages.append(package)
        self._monkeypatch.syspath_prepend(str(source / "src"))

    def forget(self) -> None:
        """Drop the installed packages' modules: the next command is a new process."""
        for name in [n for n in sys.modules if n.split(".")[0] in self._packages]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def rlinf(self, *arguments: str) -> tuple[int, str, str]:
        """Type a command; return its exit code, standard output and standard error."""
        self.forget()
        out, err = io.StringIO(), io.StringIO()
        self._monkeypatch.setattr(sys, "argv", ["rlinf", *arguments])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
                code = 0
            except SystemExit as error:
                code = int(error.code or 0)
        return code, out.getvalue(), err.getvalue()

    def run(self, command: str) -> str:
        """Type a command of a page; return what it shows."""
        program, *arguments = shlex.split(command)
        match [program, *arguments]:
            case ["rlinf", *_]:
                _, out, err = self.rlinf(*arguments, *short(arguments))
                return err + out
            case ["pip", "install", "-e", project]:
                self.install(project)
                return ""
            case ["cat", path]:
                return (self.folder / path).read_text(encoding="utf-8")
            case ["python", "-m", "pytest", *rest]:
                return python("-m", "pytest", "-p", "no:cacheprovider", *rest)
            case ["python", script]:
                return python(script)
        raise AssertionError(f"tests/docs cannot type {command!r}")


def environment() -> dict[str, str]:
    """Return the variables of a process that finds what this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def python(*arguments: str) -> str:
    """Run Python as a page does; return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )
    return done.stdout + done.stderr


def short(arguments: list[str]) -> list[str]:
    """Return options that make a run of a page short."""
    options = [option for name in arguments for option in SHORT.get(name, "").split()]
    if "cart.yaml" in arguments and "simulator=pendulum" not in arguments:
        options.append("simulator.max_episode_steps=10")
    return options


def check_options(command: str) -> None:
    """Load the run that a command names, with the options that it gives."""
    program, *arguments = shlex.split(command)
    if program != "rlinf" or arguments[0] not in ("train", "eval", "plan"):
        return
    taking = {"--checkpoint", "--output", "--episodes", "--assume-devices", "--profile"}
    plain = [
        word
        for before, word in zip(["", *arguments], arguments[:], strict=False)
        if not word.startswith("--") and before not in taking
    ]
    load_run(plain[1], plain[2:])


def check_fragment(text: str, folder: Path) -> None:
    """Load the quick start with some sections replaced by those of a page."""
    base = yaml.safe_load((core_folders()[0] / "quickstart.yaml").read_text(encoding="utf-8"))
    path = folder / "fragment.yaml"
    path.write_text(yaml.safe_dump({**base, **yaml.safe_load(text)}), encoding="utf-8")
    load_run(str(path))


def is_run_file(title: str) -> bool:
    """Return whether a file is a run's own, rather than one of a group."""
    path = Path(title)
    return path.suffix == ".yaml" and path.parent.name not in SECTIONS


def matches(expected: str, actual: str, command: str) -> bool:
    """Compare what a page shows with what was printed."""
    trains = re.match(r"rlinf (train|eval)|cat .*metrics", command) and "error:" not in expected

    def plain(text: str) -> str:
        lines = [" ".join(line.split()) if trains else line.rstrip() for line in text.splitlines()]
        text = "\n".join(lines).strip()
        # dots of the ellipsis apart, so that no number takes one of them
        return re.sub(r"-?\d+(?:\.\d+)?%?", "#", text) if trains else text

    pattern = ".*?".join(re.escape(plain_part) for plain_part in plain(expected).split("..."))
    return re.fullmatch(pattern, plain(actual), re.DOTALL) is not None


@pytest.fixture
def book() -> ModuleType:
    """Return this module: what reads pages."""
    return sys.modules[__name__]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    reader = Reader(tmp_path, monkeypatch)
    yield reader
    reader.forget()


TOY = {
    "pyproject.toml": """
        [project]
        name = "rlinf-plugin-toy"
        version = "1.0"
        dependencies = ["rlinf-core>=0.1,<0.2"]
        [project.entry-points."rlinf.plugins"]
        toy = "rlinf_plugin_toy"
    """,
    "src/rlinf_plugin_toy.py": """
        from rlinf_core.api import Capability, ComponentSpec, hookimpl

        @hookimpl
        def rlinf_simulators():
            return [
                ComponentSpec(
                    "toy",
                    "A point that should reach 0.",
                    "rlinf_core.testing:ToySimulator",
                    config="rlinf_core.testing:ToyConfig",
                    capabilities={Capability.STATE, Capability.SUCCESS},
                )
            ]
    """,
    "toy.yaml": """
        steps: 10
        simulator: {name: toy, states: 20}
        model: {name: mlp, hidden: [8]}
        algorithm: ppo
        training: {name: torch, threads: 1}
        collect: {envs: 2, steps: 6}
        update: {epochs: 1, minibatch_size: 12}
        evaluation: {every: 5, episodes: 2, video: false}
        checkpoint: {every: 0}
    """,
}


@dataclass(frozen=True)
class ToyRun:
    """A finished run in a small world.

    Attributes:
        folder: of the run.
        file: its run file.
        result: what ``rlinf train --json`` printed.
        rlinf: types a command where that world is installed.
    """

    folder: Path
    file: str
    result: dict[str, Any]
    rlinf: Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> ToyRun:
    folder = tmp_path_factory.mktemp("toy")

    def rlinf(*arguments: str) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as monkeypatch:  # this process is other tests' too
            reader = Reader(folder, monkeypatch)
            for title, text in TOY.items():
                reader.write(Block("", "", title, textwrap.dedent(text), False))
            reader.install(".")
            try:
                return reader.rlinf(*arguments)
            finally:
                reader.forget()

    file, output = str(folder / "toy.yaml"), str(folder / "run")
    code, out, err = rlinf("train", file, "--output", output, "--json")
    assert code == 0, err
    return ToyRun(Path(output), file, json.loads(out), rlinf)
