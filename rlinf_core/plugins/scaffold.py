"""Making a new plugin out of a template: a whole package that works, with tests.

The templates are working plugins themselves, in ``templates/``: ``common`` holds what all of them
share, and a folder for each kind holds the rest. They provide a component named ``sketch``, and
making a plugin is copying them with another name in its place. For another kind, add a folder.
"""

from __future__ import annotations

import keyword
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlinf_core.errors import RequestError
from rlinf_core.plugins.records import PREFIX
from rlinf_core.plugins.resolve import with_article
from rlinf_core.specs import Kind

TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_WORD = "sketch"


@dataclass(frozen=True)
class Made:
    """A plugin that was made.

    Args:
        distribution: its name.
        folder: where it lies.
        files: what was written, below that folder.
    """

    distribution: str
    folder: Path
    files: tuple[Path, ...]


def kinds() -> tuple[Kind, ...]:
    """Return the kinds that there is a template for."""
    return tuple(kind for kind in Kind if (TEMPLATES / kind).is_dir())


def make_plugin(kind: Kind, name: str, output: Path | None = None) -> Made:
    """Write a new plugin that provides one component.

    Args:
        kind: what it provides.
        name: of the component: lower-case letters and digits, joined by ``-``.
        output: folder to make; ``rlinf-plugin-NAME`` in the current one if not given.

    Raises:
        RequestError: there is no template, the name cannot be used, or something is there already.
            Nothing is overwritten, and what cannot be written as a whole is not written at all.
    """
    if kind not in kinds():
        raise RequestError(
            f"there is no template for {kind}; there is one for {', '.join(kinds())}. Begin with "
            f"one of these; rlinf_core/protocols says what {with_article(kind)} must be"
        )
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise RequestError(
            f"a component cannot be named {name!r} here; wanted lower-case letters and digits, "
            "joined by '-', such as my-sim"
        )
    folder = output or Path(f"{PREFIX}{name}")
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise RequestError(f"{folder} is there already and nothing is overwritten; choose --output")
    words = _words(kind, name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".rlinf-") as beside:
            whole = Path(beside, "whole")
            for part in ("common", str(kind)):
                _copy(TEMPLATES / part, whole, words)
            whole.chmod(0o755)
            files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
            whole.replace(folder)  # onto nothing, or onto an empty folder
    except OSError as error:
        raise RequestError(f"cannot write {folder}: {error}; choose another --output") from error
    return Made(f"{PREFIX}{name}", folder, tuple(files))


def _words(kind: Kind, name: str) -> dict[str, str]:
    """Return what stands in a template, and what takes its place."""
    package = name.replace("-", "_")
    camel = "".join(part.capitalize() for part in name.split("-"))
    return {
        f"rlinf_plugin_{_WORD}": f"rlinf_plugin_{package}",
        f"test_{_WORD}": f"test_{package}",
        f"{_WORD}_kind": str(kind),
        _WORD.capitalize(): camel,
        _WORD: name,
    }


def _copy(template: Path, folder: Path, words: dict[str, str]) -> None:
    for file in sorted(template.rglob("*")):
        if file.is_dir() or file.suffix == ".pyc":
            continue
        path = folder / _replaced(str(file.relative_to(template)), words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_replaced(file.read_text(encoding="utf-8"), words), encoding="utf-8")
        shutil.copymode(file, path)


def _replaced(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(words), lambda match: words[match[0]], text)
