"""Where each value of a run came from: a file and its line, the command line, or a default."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

COMMAND_LINE = "command line"
DEFAULT = "default"
FILE_NAME = "name of the file"
STORED = "stored run"


class Origins:
    """Dotted path to the place that gave the value there."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def put(self, path: str, place: str) -> None:
        """Say that the value at a path, and all below it, now come from a place."""
        self.forget(path)
        self._places[path] = place

    def add(self, path: str, place: str) -> None:
        """Say where a value comes from and leave what lies below it."""
        self._places[path] = place

    def forget(self, path: str) -> None:
        """Drop a path and all below it."""
        below = f"{path}."
        for known in [p for p in self._places if p == path or p.startswith(below)]:
            del self._places[known]

    def of(self, path: str) -> str:
        """Return the place of a value, else that of what it lies in, else ``"default"``."""
        while path:
            if place := self._places.get(path):
                return place
            path = path.rpartition(".")[0]
        return DEFAULT


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of every leaf of plain data; empty containers are leaves."""
    children: list[tuple[Any, Any]] = []
    if isinstance(data, Mapping):
        children = list(data.items())
    elif isinstance(data, list | tuple):
        children = list(enumerate(data))
    if not children:
        yield path, data
    for key, value in children:
        yield from leaves(value, join(path, key))


def has(data: Any, path: str) -> bool:
    """Return whether plain data holds something at a dotted path."""
    for part in path.split("."):
        if isinstance(data, Mapping) and part in data:
            data = data[part]
        elif isinstance(data, list | tuple) and is_index(part, data):
            data = data[int(part)]
        else:
            return False
    return True


def is_index(part: str, items: Sequence[Any]) -> bool:
    """Return whether a part of a dotted path is the number of an item."""
    return part.isdecimal() and len(part) < 10 and int(part) < len(items)


def join(path: str, key: object) -> str:
    """Return the dotted path of a key below a path."""
    return f"{path}.{key}" if path else str(key)


def shown(path: Path) -> str:
    """Return a path as a person would type it here: relative where it lies below the folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith(os.pardir) else relative
