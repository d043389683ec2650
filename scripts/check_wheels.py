"""What a wheel of this repository must be: ``python scripts/check_wheels.py dist/*.whl``.

A check is a function that yields what is wrong with one wheel, listed in :data:`CHECKS`; what must
hold between wheels is :func:`agree`.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from set_version import CORE, ROOT, Project, belongs, projects, series

GROUP = "rlinf.plugins"
"""The entry-point group through which the core finds plugins."""

TYPED = "Typing :: Typed"

_PLACE = re.compile(rb"/(?:tmp|root|home|Users)/[\w.-]+|" + re.escape(bytes(ROOT)))
"""What a place on one machine looks like."""

_TEST = re.compile(r"(?:^|/)(?:tests?/|test_\w+\.py$|conftest\.py$)|__pycache__|\.pyc$")


@dataclass(frozen=True)
class Wheel:
    """A wheel, read.

    Args:
        path: the file.
        project: where it was built from.
        metadata: its ``METADATA``.
        entry_points: group to (name to target).
        files: name to content, without what the installer needs (``dist-info``).
        info: name below ``dist-info`` to content.
    """

    path: Path
    project: Project
    metadata: Metadata
    entry_points: Mapping[str, Mapping[str, str]]
    files: Mapping[str, bytes]
    info: Mapping[str, bytes]


def read(path: Path, known: Iterable[Project]) -> Wheel:
    """Return a wheel of one of the projects.

    Raises:
        ValueError: it is of none of them, or its metadata breaks the rules for metadata.
    """
    with zipfile.ZipFile(path) as archive:
        content = {n: archive.read(n) for n in archive.namelist() if not n.endswith("/")}
    info = {}
    for name in list(content):
        folder, _, rest = name.partition("/")
        if folder.endswith(".dist-info"):
            info[rest] = content.pop(name)
    metadata = Metadata.from_email(info["METADATA"], validate=True)
    project = next((p for p in known if p.name == metadata.name), None)
    if project is None:
        raise ValueError(f"{path.name} is of no project of this repository")
    parser = ConfigParser(delimiters=("=",))
    parser.read_string(info.get("entry_points.txt", b"").decode())
    points = {section: dict(parser[section]) for section in parser.sections()}
    return Wheel(path, project, metadata, points, content, info)


def is_the_version_of_the_tree(wheel: Wheel) -> Iterator[str]:
    """The version is that of the source, and belongs to the core's series."""
    if wheel.metadata.version != wheel.project.version:
        yield f"has version {wheel.metadata.version}; its source says {wheel.project.version}"


def is_bounded(wheel: Wheel) -> Iterator[str]:
    """Python and every dependency have a lower and an upper bound."""
    _, *missing = _bounds(wheel.metadata.requires_python or SpecifierSet())
    if missing:
        yield f"Requires-Python {wheel.metadata.requires_python} has no {' and no '.join(missing)}"
    for requirement in wheel.metadata.requires_dist or ():
        _, *missing = _bounds(requirement.specifier)
        if requirement.url or (missing and requirement.name != wheel.metadata.name):
            yield f"requires {requirement}; wanted a range with a lower and an upper bound"


def is_licensed(wheel: Wheel) -> Iterator[str]:
    """The license is named, and its text goes with the wheel."""
    if wheel.metadata.license_expression != "Apache-2.0":
        yield f"has License-Expression {wheel.metadata.license_expression}; wanted Apache-2.0"
    text = wheel.info.get("licenses/LICENSE")
    if text != (ROOT / "LICENSE").read_bytes():
        what = "no LICENSE" if text is None else "another LICENSE than the repository's"
        yield f'holds {what}; put a copy beside its pyproject.toml and license-files = ["LICENSE"]'


def is_described(wheel: Wheel) -> Iterator[str]:
    """A page about it has a summary and its README."""
    if not wheel.metadata.summary:
        yield "has no description in pyproject.toml"
    readme = (wheel.project.folder / "README.md").read_text(encoding="utf-8").strip()
    if (wheel.metadata.description or "").strip() != readme:
        yield "has another long description than its README.md"
    if not (wheel.metadata.description_content_type or "").startswith("text/markdown"):
        yield f"has a README of type {wheel.metadata.description_content_type}, wanted Markdown"


def is_found(wheel: Wheel) -> Iterator[str]:
    """Exactly one entry point names the module that the core reads, and it is there."""
    named = wheel.entry_points.get(GROUP, {})
    if len(named) != 1:
        yield f"has {len(named)} entry points in {GROUP}; wanted one"
    scripts = wheel.entry_points.get("console_scripts", {})
    if wheel.project.name == CORE and scripts != {"rlinf": "rlinf_core.cli:main"}:
        yield f"has the commands {scripts}; wanted rlinf"
    for target in (*named.values(), *scripts.values()):
        module = target.partition(":")[0].replace(".", "/")
        if not {f"{module}.py", f"{module}/__init__.py"} & set(wheel.files):
            yield f"has an entry point {target}, and no such module"


def is_whole_and_nothing_else(wheel: Wheel) -> Iterator[str]:
    """It holds all files of its package, no tests, and nothing beside the package."""
    package = wheel.project.package
    for name in wheel.files:
        if PurePosixPath(name).parts[0] != package.name:
            yield f"holds {name}, which is outside {package.name}"
        if _TEST.search(name) and "/templates/" not in name:  # a new plugin's tests are its own
            yield f"holds {name}, which no user needs"
    there = {
        str(PurePosixPath(package.name, *file.relative_to(package).parts))
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    for name in sorted(there - set(wheel.files)):
        yield f"lacks {name}"


def is_typed_as_it_says(wheel: Wheel) -> Iterator[str]:
    """``py.typed`` is there where types are claimed, and only there."""
    marked = f"{wheel.project.package.name}/py.typed" in wheel.files
    if marked is not (TYPED in (wheel.metadata.classifiers or ())):
        yield f"must have both or neither of py.typed and the classifier {TYPED!r}"


def names_no_machine(wheel: Wheel) -> Iterator[str]:
    """No place of the machine that built it stands in a file."""
    for name, content in {**wheel.files, **wheel.info}.items():
        if place := _PLACE.search(content):
            yield f"{name} names {place[0].decode()}, a place of one machine"


CHECKS: tuple[Callable[[Wheel], Iterator[str]], ...] = (
    is_the_version_of_the_tree,
    is_bounded,
    is_licensed,
    is_described,
    is_found,
    is_whole_and_nothing_else,
    is_typed_as_it_says,
    names_no_machine,
)


def agree(wheels: Iterable[Wheel]) -> Iterator[str]:
    """Yield what does not fit between the core and the plugins."""
    by_name = {wheel.metadata.name: wheel for wheel in wheels}
    if CORE not in by_name:
        yield f"there is no wheel of {CORE}"
        return
    core = by_name[CORE].metadata
    wanted = SpecifierSet(series(core.version))
    extras: dict[str, set[str]] = {extra: set() for extra in core.provides_extra or ()}
    for requirement in core.requires_dist or ():
        for extra in extras:
            if requirement.marker and requirement.marker.evaluate({"extra": extra}):
                extras[extra].add(requirement.name)
                yield from _fits(f"{CORE}[{extra}]", requirement, by_name, wanted)
    for name, wheel in by_name.items():
        if name == CORE:
            continue
        short = name.removeprefix("rlinf-plugin-")
        if extras.get(short) != {name}:
            yield f"{CORE} has no extra {short} = [{name!r}]"
        found = [r for r in wheel.metadata.requires_dist or () if r.name == CORE]
        if [belongs(r.specifier, core.version) for r in found] != [True]:
            yield f"{name} requires {[str(r) for r in found]}; wanted {CORE}{series(core.version)}"
        if wheel.metadata.version not in wanted:
            yield f"{name} {wheel.metadata.version} is not of the core's series {wanted}"


def faults(paths: Iterable[Path], root: Path = ROOT) -> list[str]:
    """Return everything that is wrong with wheels, each with its name."""
    known = projects(root)
    wheels, found = [], []
    for path in paths:
        try:
            wheel = read(path, known)
        except (ValueError, ExceptionGroup, KeyError, zipfile.BadZipFile) as error:
            found.append(f"{path.name}: cannot be read: {error}")
            continue
        wheels.append(wheel)
        found += [f"{path.name} {fault}" for check in CHECKS for fault in check(wheel)]
    built = [wheel.metadata.name for wheel in wheels]
    for project in known:
        if (count := built.count(project.name)) != 1:
            found.append(f"{project.name}: {count} wheels were built; wanted one")
    return found + list(agree(wheels))


def _bounds(specifier: SpecifierSet) -> list[str]:
    """Return ``["", ...]`` and which bounds are missing."""
    signs = {item.operator for item in specifier}
    missing = [""]
    if not signs & {">=", ">", "==", "~="}:
        missing.append("lower bound")
    if not signs & {"<", "<=", "==", "~="}:
        missing.append("upper bound")
    return missing


def _fits(
    who: str, requirement: Requirement, by_name: Mapping[str, Wheel], wanted: SpecifierSet
) -> Iterator[str]:
    """Yield what is wrong with what an extra of the core names."""
    wheel = by_name.get(requirement.name)
    if wheel is None:
        yield f"{who} names {requirement.name}, which is not of this repository"
    elif requirement.name == CORE:
        known = set(wheel.metadata.provides_extra or ())
        if unknown := requirement.extras - known:
            yield f"{who} names the extras {sorted(unknown)}, which are not there"
    elif requirement.specifier != wanted:
        yield f"{who} requires {requirement}; wanted {requirement.name}{wanted}"


def main() -> int:
    """Check the wheels of the command line."""
    found = faults([Path(argument) for argument in sys.argv[1:]])
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
