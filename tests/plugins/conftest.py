"""Scratch installations for the tests of the plugin machinery."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

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
    pytest.importorskip("pip", reason="installing plugins needs pip")
    root = tmp_path_factory.mktemp("environment")
    venv.create(root / "venv", with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = root / "venv" / "lib" / version / "site-packages"
    core = Path(rlinf_core.__file__).parents[1]
    seen = [str(core), *(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))]
    # `addsitedir` rather than plain paths: packages that are themselves in place come along.
    (own / "parent.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in seen)
    )
    wheel = factory.wheel(root, "rlinf-plugin-zoo-wheel", "zoo-wheel")
    command = [sys.executable, "-m", "pip", "--python", str(root / "venv" / "bin" / "python")]
    options = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    options += ["--disable-pip-version-check"]
    subprocess.run(
        [*command, *options, str(wheel), "-e", str(DISTRIBUTIONS / "editable")],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return root / "venv"


@pytest.fixture
def python(environment: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs Python code in the scratch environment, in an empty folder."""

    def run(
        code: str, *arguments: str, path: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        cleared = {k: v for k, v in os.environ.items() if not k.startswith(("RLINF_", "PYTHON"))}
        extra = {"PYTHONPATH": str(path)} if path else {}
        folder = tmp_path / "elsewhere"
        folder.mkdir(exist_ok=True)
        return subprocess.run(
            [str(environment / "bin" / "python"), "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=folder,
            env={**cleared, "COLUMNS": "200", **extra, **variables},
        )

    return run


@pytest.fixture
def rlinf(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command line in the scratch environment."""
    code = "import sys; sys.argv[0] = 'rlinf'; from rlinf_core.cli import main; main()"
    return lambda *arguments, **options: python(code, *arguments, **options)
