"""Sets versions: ``python scripts/set_version.py 0.2.0``, or of one plugin with ``--only NAME``.

The core's version stands in ``rlinf_core/__init__.py``, a plugin's in its ``pyproject.toml``, and
nowhere else. All share major and minor, which are what ranges are made of:
``rlinf-core>=0.1,<0.2``. Ranges in the tree follow, wherever they are written.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]

CORE = "rlinf-core"

TEXTS = (
    "pyproject.toml",
    "plugins/*/pyproject.toml",
    "*.md",
    "docs/**/*.md",
    "plugins/*/README.md",
    "rlinf_core/**/*.py",
    "tests/**/*.py",
    "plugins/*/tests/**/*.py",
)
"""Where ranges may be written."""

HISTORY = "CHANGELOG.md"
"""What keeps saying what it said."""

_VERSION = re.compile(r"^(?:__version__|version) = \"([^\"]+)\"", re.MULTILINE)


@dataclass(frozen=True)
class Project:
    """A distribution of this repository.

    Args:
        name: of the distribution.
        folder: where its ``pyproject.toml`` lies.
        source: the file that its version stands in.
    """

    name: str
    folder: Path
    source: Path

    @property
    def package(self) -> Path:
        """The folder of its code."""
        module = self.name.replace("-", "_")
        return self.folder / (module if self.name == CORE else f"src/{module}")

    @property
    def version(self) -> Version:
        """Its version, as it stands in the tree."""
        found = _VERSION.search(self.source.read_text(encoding="utf-8"))
        if found is None:
            raise SystemExit(f'{self.source}: no line such as version = "0.1.0"')
        return Version(found[1])


def projects(root: Path = ROOT) -> list[Project]:
    """Return the core and every plugin, the core first."""
    found = [Project(CORE, root, root / "rlinf_core" / "__init__.py")]
    for file in sorted(root.glob("plugins/*/pyproject.toml")):
        name = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]
        found.append(Project(name, file.parent, file))
    return found


def series(version: Version) -> str:
    """Return the range of versions that go together: ``>=0.1,<0.2`` for 0.1.3."""
    least = f"{version.major}.{version.minor}"
    if version.is_prerelease and version.micro == 0:  # which is below 0.1
        least = str(version)
    return f">={least},<{version.major}.{version.minor + 1}"


def belongs(specifier: SpecifierSet, core: Version) -> bool:
    """Return whether a range is that of a core's series, or begins at a later patch of it."""
    lowest, highest = SpecifierSet(series(core)), f"<{core.major}.{core.minor + 1}"
    least = [item.version for item in specifier if item.operator == ">="]
    others = [str(item) for item in specifier if item.operator != ">="]
    return len(least) == 1 and lowest.contains(least[0], prereleases=True) and others == [highest]


def set_version(version: Version, only: str = "", root: Path = ROOT) -> list[Path]:
    """Set versions and ranges; return the files that changed.

    Args:
        version: the new one.
        only: name of the one plugin to change; all distributions if empty.
        root: of the repository.

    Raises:
        ValueError: it is not above the present one, or a single plugin would leave the series.
    """
    known = projects(root)
    core = known[0].version
    chosen = [p for p in known if only in ("", p.name)]
    if not chosen or only == CORE:
        names = ", ".join(p.name for p in known[1:])
        raise ValueError(f"--only {only}: wanted one of {names}")
    if only and series(version) != series(core):
        raise ValueError(
            f"{only} {version} is not of the series of the core {core} ({series(core)}); "
            "give all distributions the new version, without --only"
        )
    if behind := [p for p in chosen if p.version >= version]:
        p = behind[0]
        raise ValueError(f"{p.name} is at {p.version}; wanted a version above that, not {version}")
    changed = {p.source: _with_version(p.source, version) for p in chosen}
    if not only:
        for file in _texts(root):
            old = changed.get(file, file.read_text(encoding="utf-8"))
            changed[file] = _with_ranges(old, core, version)
    different = [f for f, text in changed.items() if text != f.read_text(encoding="utf-8")]
    for file in different:
        file.write_text(changed[file], encoding="utf-8")
    return different


def _texts(root: Path) -> list[Path]:
    found = {file for pattern in TEXTS for file in root.glob(pattern) if file.is_file()}
    return sorted(file for file in found if file.name != HISTORY)


def _with_version(file: Path, version: Version) -> str:
    text = file.read_text(encoding="utf-8")
    return _VERSION.sub(lambda m: m[0].replace(m[1], str(version)), text, count=1)


def _with_ranges(text: str, old: Version, new: Version) -> str:
    """Return a text with the series of the core, and what ``rlinf --version`` prints, made new."""
    least = rf">={old.major}\.{old.minor}(?:\.\w+)*"  # a plugin's may begin at a patch
    text = re.sub(
        rf"(\brlinf-(?:core|plugin-[a-z0-9-]+)){least},<{old.major}\.{old.minor + 1}(?![\d.])",
        lambda match: match[1] + series(new),
        text,
    )
    return re.sub(rf"^rlinf {re.escape(str(old))}$", f"rlinf {new}", text, flags=re.MULTILINE)


def main() -> int:
    """Set what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="the new version, such as 0.2.0")
    parser.add_argument("--only", default="", metavar="NAME", help="one plugin's distribution")
    asked = parser.parse_args()
    try:
        changed = set_version(Version(asked.version), asked.only)
    except (InvalidVersion, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for file in changed:
        print(file.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
