"""Which installed distributions offer a plugin, read from metadata alone; nothing is imported.

What an installer wrote (``.dist-info``) is obeyed. What a build left behind (``.egg-info``) is
reported where it says something else, and never obeyed: it stays when the package is gone.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

import rlinf_core
from rlinf_core.errors import RequestError, did_you_mean
from rlinf_core.plugins.records import CORE, PREFIX, Phase, PluginRecord, Status

GROUP = "rlinf.plugins"
"""The entry-point group that plugins are found through."""

_MODULE = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Found:
    """One distribution whose metadata names an entry point in :data:`GROUP`.

    Args:
        entries: (name, value) of each entry point in the group.
        requires: its ``Requires-Dist`` lines.
        origin: path of its metadata.
        installed: whether an installer wrote it, rather than a build.
        fault: why its metadata cannot be used; empty where it can.
    """

    distribution: str
    version: str
    entries: tuple[tuple[str, str], ...]
    requires: tuple[str, ...]
    origin: str
    installed: bool
    fault: str = ""

    def record(self, status: Status, phase: Phase | None = None, error: str = "") -> PluginRecord:
        """Return a record of this distribution."""
        name, module = self.entries[0] if self.entries else ("", "")
        return PluginRecord(
            self.distribution, self.version, status, self.origin, module, name, phase, error
        )


def discover(path: Sequence[str] | None = None) -> tuple[list[Found], list[PluginRecord]]:
    """Scan installed metadata once.

    Args:
        path: folders to scan instead of ``sys.path``.

    Returns:
        What may be loaded, in the order of the path and each distribution once; and records of
        what may not: shadowed copies, left-over and unreadable metadata.
    """
    winners: dict[str, Found] = {}
    rejected: list[PluginRecord] = []
    found = list(_scan(path))
    # Installed metadata first, so that a left-over found earlier on the path never wins.
    for item in sorted(found, key=lambda item: not item.installed):
        first = winners.get(item.distribution)
        if item.fault:
            rejected.append(item.record(Status.BROKEN, Phase.METADATA, item.fault))
        elif first is None and item.installed:
            winners[item.distribution] = item
        elif first is None:
            rejected.append(item.record(Status.BROKEN, Phase.METADATA, _left_over(item)))
        elif item.installed or _differs(item, first):
            rejected.append(item.record(Status.SHADOWED, Phase.METADATA, _shadowed(item, first)))
    if CORE not in winners:
        winners[CORE] = _core()
    return list(winners.values()), rejected


def installed_version(distribution: str) -> str | None:
    """Return the version that is installed here, or None where none is."""
    if canonicalize_name(distribution) == CORE:
        return rlinf_core.__version__
    for item in importlib.metadata.distributions(name=distribution):
        if _installed(item):
            return item.version
    return None


def choose_distributions(names: Sequence[str], installed: Iterable[str]) -> list[str]:
    """Return the canonical names of the distributions that are meant; of all where none is named.

    Args:
        names: of distributions, also without their prefix.
        installed: canonical names.

    Raises:
        RequestError: a name is none of them.
    """
    known = sorted(set(installed))
    chosen = []
    for name in names:
        plain = str(canonicalize_name(name))
        match = next((n for n in (plain, f"{PREFIX}{plain}") if n in known), None)
        if match is None:
            near = did_you_mean(plain, known) or did_you_mean(f"{PREFIX}{plain}", known)
            raise RequestError(
                f"no plugin named {name!r} is installed.{near} Installed: {', '.join(known)}"
            )
        chosen.append(match)
    return list(dict.fromkeys(chosen)) if names else known


def package_folders(package: str) -> list[Path]:
    """Return the folders of a package, without importing it; empty where there is none."""
    try:
        spec = importlib.util.find_spec(package)
    except BaseException as error:  # looking for a package imports those that it lies in
        if type(error) is KeyboardInterrupt:
            raise
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _scan(path: Sequence[str] | None) -> Iterator[Found]:
    seen: set[str] = set()
    where = sys.path if path is None else list(path)
    for item in importlib.metadata.distributions(path=where):
        origin = os.path.realpath(str(getattr(item, "_path", item.locate_file(""))))
        if origin in seen:  # the same folder may stand on the path twice
            continue
        seen.add(origin)
        found = _read(item, origin)
        if found is not None:
            yield found


def _read(item: importlib.metadata.Distribution, origin: str) -> Found | None:
    """Return what one distribution says, or None where it offers no plugin."""
    guess = Found(canonicalize_name(Path(origin).stem.split("-")[0]), "", (), (), origin, True)
    try:
        text = item.read_text("entry_points.txt") or ""
        if f"[{GROUP}]" not in "".join(text.split()):
            return None  # without parsing: an environment holds hundreds of distributions
        entries = tuple((e.name, e.value) for e in item.entry_points if e.group == GROUP)
    except Exception as error:
        return replace(guess, fault=f"its entry_points.txt cannot be read: {error}")
    guess = replace(guess, entries=entries)
    try:
        metadata = item.metadata
        name, version = metadata["Name"], metadata["Version"]
        requires = tuple(metadata.get_all("Requires-Dist") or ())  # item.requires reads all again
    except Exception as error:
        return replace(guess, fault=f"its metadata cannot be read: {error}")
    if not name or not version:
        fault = "its metadata has no name or no version; remove that folder and install it again"
        return replace(guess, fault=fault)
    values = sorted({value for _, value in entries})
    fault = ""
    if len(values) != 1 or not _MODULE.fullmatch(values[0]):
        fault = (
            f"its entry points in the group {GROUP!r} name {', '.join(values) or 'nothing'}; "
            "wanted one module, such as rlinf_plugin_x.plugin"
        )
    return Found(
        canonicalize_name(name), version, entries, requires, origin, _installed(item), fault
    )


def _installed(item: importlib.metadata.Distribution) -> bool:
    """Return whether an installer wrote this metadata; builds leave PKG-INFO and no METADATA."""
    return item.read_text("METADATA") is not None


def _differs(item: Found, other: Found) -> bool:
    return (item.version, item.entries) != (other.version, other.entries)


def _left_over(item: Found) -> str:
    return (
        "a build left its metadata there, but no installation of it was found. Install it "
        f"(pip install -e on its source folder) or remove {item.origin}"
    )


def _shadowed(item: Found, first: Found) -> str:
    if item.installed:
        return f"version {first.version} comes first on the path, from {first.origin}"
    return (
        f"a build left metadata there that differs from the installed version {first.version} "
        f"({first.origin}), which is loaded. Remove {item.origin}"
    )


def _core() -> Found:
    """Return the core itself where it runs from a checkout that nobody installed."""
    return Found(
        CORE,
        rlinf_core.__version__,
        (("core", "rlinf_core.builtin.plugin"),),
        (),
        str(Path(rlinf_core.__file__).parent),
        True,
    )
