"""Scratch installations, as for the plugin machinery, and functions to call apart."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FACTORY = Path(__file__).parents[1] / "distributions" / "factory.py"


@pytest.fixture(autouse=True)
def _no_user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("RLINF_CONFIG", raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Return a folder of distributions that this process, and those it starts, find first."""
    spec = importlib.util.spec_from_file_location("factory", FACTORY)
    assert spec is not None
    assert spec.loader is not None
    factory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(factory)
    before = set(sys.modules)
    site = factory.Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    yield site
    for name in set(sys.modules) - before:
        if name.startswith(("rlinf_plugin_zoo", "zoo_")):
            del sys.modules[name]


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of modules that a process apart finds too."""
    folder = tmp_path / "toys"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder
