"""Makes distributions as installers and builds leave them, without an index or a build backend.

``Site.add`` writes a ``.dist-info`` beside a package, ``wheel`` writes a true wheel, and
``editable/`` beside this file is a project that ``pip install -e`` builds with its own backend.
"""

from __future__ import annotations

import base64
import hashlib
import textwrap
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

CORE_RANGE = ("rlinf-core>=0.1,<0.2",)
GROUP = "rlinf.plugins"

ALGORITHM = """
from rlinf_core.api import ComponentSpec, hookimpl

@hookimpl
def rlinf_algorithms():
    return [ComponentSpec("{name}", "An algorithm.", "{package}.code:Code")]
"""
"""A plugin that provides one algorithm; its target is ``Code`` in a module ``code``."""


class Site:
    """A folder of installed distributions.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        name: str,
        plugin: str | None = None,
        *,
        provides: str = "",
        version: str = "1.0",
        requires: Iterable[str] = CORE_RANGE,
        files: Mapping[str, str] | None = None,
        entry_points: str | None = None,
        built_only: bool = False,
    ) -> Path:
        """Install a distribution; return the folder of its metadata.

        Args:
            name: of the distribution; its package is that with underscores.
            plugin: source of the package's module ``plugin``; None writes no package.
            provides: instead of ``plugin``, the name of one algorithm to provide.
            version: of the distribution.
            requires: its ``Requires-Dist``.
            files: further modules of the package, name to source.
            entry_points: the text of ``entry_points.txt``.
            built_only: leave what a build leaves (``.egg-info``), not an installation.
        """
        package = name.lower().replace("-", "_").replace(".", "_")
        if provides:
            plugin = ALGORITHM.format(name=provides, package=package)
            files = {"code.py": f'class Code:\n    name = "{provides}"\n', **(files or {})}
        if plugin is not None:
            sources = {"__init__.py": "", "plugin.py": plugin, **(files or {})}
            for file, source in sources.items():
                path = self.folder / package / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(textwrap.dedent(source), encoding="utf-8")
        if entry_points is None:
            entry_points = f"[{GROUP}]\nentry = {package}.plugin\n"
        kind, file = ("egg-info", "PKG-INFO") if built_only else ("dist-info", "METADATA")
        stem = package if built_only else f"{package}-{version}"
        metadata = self.folder / f"{stem}.{kind}"
        metadata.mkdir(exist_ok=True)
        (metadata / file).write_text(_metadata(name, version, requires))
        (metadata / "entry_points.txt").write_text(entry_points)
        return metadata


def wheel(
    folder: Path,
    name: str,
    provides: str,
    version: str = "1.0",
    *,
    plugin: str = "",
    requires: Iterable[str] = CORE_RANGE,
) -> Path:
    """Write a true wheel of a plugin that provides one algorithm.

    Args:
        folder: where to.
        name: of the distribution.
        provides: name of the algorithm, and of the entry point.
        version: of the distribution.
        plugin: source of its module ``plugin``, instead of one that provides the algorithm.
        requires: its ``Requires-Dist``.
    """
    package = name.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    content = {
        f"{package}/__init__.py": "",
        f"{package}/plugin.py": plugin or ALGORITHM.format(name=provides, package=package),
        f"{package}/code.py": "class Code:\n    pass\n",
        f"{info}/METADATA": _metadata(name, version, requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[{GROUP}]\n{provides} = {package}.plugin\n",
    }
    return write_wheel(folder / f"{package}-{version}-py3-none-any.whl", content, info)


def write_wheel(path: Path, content: Mapping[str, str], info: str) -> Path:
    """Write files and the record of them."""
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in content.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            rows.append(f"{name},sha256={digest.decode()},{len(text.encode())}")
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,", ""]))
    return path


def _metadata(name: str, version: str, requires: Iterable[str]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires), ""])
