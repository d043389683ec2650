"""A plugin made for one test: written where this process and its children find it."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest


def install_plugin(site: Path, package: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a distribution with one plugin, for this core, to a folder that joins the path.

    Args:
        site: folder to write to; it may hold others.
        package: name of the package. Modules outlive a test, so it must be of no other test.
        code: of its module ``plugin``, with the hooks.
        monkeypatch: of the test, with which the folder leaves the path.
    """
    folder, about = site / package, site / f"{package}-1.0.dist-info"
    folder.mkdir(parents=True)
    about.mkdir()
    (folder / "__init__.py").touch()
    (folder / "plugin.py").write_text(code, encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[rlinf.plugins]\n{package} = {package}.plugin\n")
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n"
        f"Requires-Dist: rlinf-core=={version('rlinf-core')}\n"
    )
    monkeypatch.syspath_prepend(str(site))
    more = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *([more] if more else [])]))
