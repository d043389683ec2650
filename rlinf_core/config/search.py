"""Where run files are looked for, by path or by name.

A new place to look in is added to :func:`core_folders`; plugins add theirs by ``rlinf_configs``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import rlinf_core
from rlinf_core.config.files import SUFFIX
from rlinf_core.config.origins import shown
from rlinf_core.errors import RequestError, did_you_mean


def core_folders() -> list[Path]:
    """Return the core's own folders of run files: of a checkout, and as shipped in a wheel."""
    package = Path(rlinf_core.__file__).parent
    return [f for f in (package.parent / "configs", package / "configs") if f.is_dir()]


def find_run(run: str, folders: Iterable[Path]) -> Path | None:
    """Return the file of a run, given as a path or as a name under one of the folders.

    Raises:
        RequestError: it is a path to something that is no YAML file.
    """
    # os.path rather than pathlib: it leaves a home that nobody has as it stands, and says False of
    # names that no file could have.
    path = Path(os.path.expanduser(run))
    if path.suffix == SUFFIX and os.path.isfile(path):
        return path.absolute()
    for folder in folders:
        named = folder / f"{run.removesuffix(SUFFIX)}{SUFFIX}"
        if os.path.isfile(named):
            return named.absolute()
    if os.path.isdir(path):
        raise RequestError(f"{run!r} is a folder; wanted a run file, such as {path / 'run.yaml'}")
    if os.path.isfile(path):
        raise RequestError(f"{run}: a run file's name ends with {SUFFIX}")
    return None


def unknown_run(run: str, folders: Sequence[Path]) -> RequestError:
    """Return the error for a run that was not found, with close matches and what there is."""
    known = sorted({file.stem for folder in folders for file in folder.glob(f"*{SUFFIX}")})
    near = did_you_mean(Path(run).name.removesuffix(SUFFIX), known)
    if os.path.isfile(f"{run}{SUFFIX}"):
        near = f" Did you mean the file {f'{run}{SUFFIX}'!r}?"
    return RequestError(
        f"there is no run {run!r}: no such file, and no such name in "
        f"{', '.join(shown(f) for f in folders) or 'any folder of runs'}.{near} "
        f"Available runs: {', '.join(known) or 'none'}."
    )
