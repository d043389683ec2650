"""Scratch installations for the tests of the plugin machinery."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rlinf_core

DISTRIBUTIONS = Path(__file__).parents[1] / "distributions"


def _factory() -> ModuleType:
    spec = importlib.util.spec_from_file_location("factory", DISTRIBUTIONS / "factory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


factory = _factory()


@pytest.fixture(autouse=True)
def _no_user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("RLINF_CONFIG", raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Return a folder of distributions that this process finds first."""
    site = factory.Site(tmp_path / "site")
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(site.folder))
    yield site
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)) or name.startswith("rlinf_plugin_zoo"):
            del sys.modules[name]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment that sees this one's packages and holds two installed plugins.

    One is installed from a wheel, one in place.
    """
    root = tmp_path_factory.mktemp("environment")
    wheel = factory.wheel(root, "rlinf-plugin-zoo-wheel", "zoo-wheel")
    return make_environment(root, str(wheel), "-e", str(DISTRIBUTIONS / "editable"))


def make_environment(root: Path, *packages: str) -> Path:
    """Return a virtual environment below ``root`` in which pip has installed some packages."""
    pytest.importorskip("pip", reason="installing plugins needs pip")
    venv.create(root / "venv", with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = root / "venv" / "lib" / version / "site-packages"
    core = Path(rlinf_core.__file__).parents[1]
    seen = [str(core), *(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))]
    # `addsitedir` rather than plain paths: packages that are themselves in place come along.
    (own / "parent.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in seen)
    )
    command = [sys.executable, "-m", "pip", "--python", str(root / "venv" / "bin" / "python")]
    options = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    options += ["--disable-pip-version-check"]
    subprocess.run(
        [*command, *options, *packages],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return root / "venv"


def run_python(
    environment: Path,
    folder: Path,
    code: str,
    *arguments: str,
    path: Path | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run Python code in an environment and a folder."""
    cleared = {k: v for k, v in os.environ.items() if not k.startswith(("RLINF_", "PYTHON"))}
    extra = {"PYTHONPATH": str(path)} if path else {}
    return subprocess.run(
        [str(environment / "bin" / "python"), "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=folder,
        env={**cleared, "COLUMNS": "200", **extra, **variables},
    )


@pytest.fixture
def python(environment: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs Python code in the scratch environment, in an empty folder."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return lambda code, *arguments, **options: run_python(
        environment, folder, code, *arguments, **options
    )


RLINF = "import sys; sys.argv[0] = 'rlinf'; from rlinf_core.cli import main; main()"
"""Code that is the command line."""


@pytest.fixture
def rlinf(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command line in the scratch environment."""
    return lambda *arguments, **options: python(RLINF, *arguments, **options)


BROKEN = {
    "import-error": "import zoo_module_that_is_missing\n",
    "syntax-error": "def broken(:\n",
    "gone": "",
    "twin-a": factory.ALGORITHM.format(name="twin", package="rlinf_plugin_zoo_twin_a"),
    "twin-b": factory.ALGORITHM.format(name="twin", package="rlinf_plugin_zoo_twin_b"),
    "capital": factory.ALGORITHM.format(name="PPO", package="rlinf_plugin_zoo_capital"),
    "old": "raise SystemExit('was imported')\n",
    "new": "raise SystemExit('was imported')\n",
}
"""Plugins that cannot be used as they are: name to the source of the plugin module."""

RANGES = {"old": ["rlinf-core>=0.0.1,<0.1"], "new": ["rlinf-core>=7,<8"]}


@pytest.fixture(scope="session")
def asylum(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that runs ``rlinf`` where pip installed every kind of broken plugin.

    Beside them are two good ones, from a wheel and in place, and what a build left behind. Every
    command is run once.
    """
    root = tmp_path_factory.mktemp("asylum")
    wheels = [
        factory.wheel(
            root,
            f"rlinf-plugin-zoo-{name}",
            f"zoo-{name}",
            plugin=source,
            requires=RANGES.get(name, factory.CORE_RANGE),
        )
        for name, source in BROKEN.items()
    ]
    good = factory.wheel(root, "rlinf-plugin-zoo-wheel", "zoo-wheel")
    packages = [*map(str, [*wheels, good]), "-e", str(DISTRIBUTIONS / "editable")]
    environment = make_environment(root, *packages)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = environment / "lib" / version / "site-packages"
    shutil.rmtree(own / "rlinf_plugin_zoo_gone")
    factory.Site(root / "stale").add("rlinf-plugin-zoo-wheel", built_only=True, version="0.5")
    (root / "empty").mkdir()

    @functools.cache
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_python(
            environment,
            root / "empty",
            RLINF,
            *arguments,
            path=root / "stale",
            XDG_CONFIG_HOME=str(root / "xdg"),
        )

    return run
