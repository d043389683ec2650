"""Writing files so that a reader never sees half of one: beside, flushed to disk, renamed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlinf_core.errors import RequestError, WriteError

_LITTLE = 2**30  # bytes: with less than that left, a full disk may be the reason


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing.

    Raises:
        WriteError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise WriteError(f"could not write {path}: {why_not(path.parent, error)}") from None


def why_not(folder: Path, error: BaseException) -> str:
    """Say why a file below a folder could not be written, and what to free where that helps."""
    said = str(error) if not isinstance(error, OSError) else error.strerror or str(error)
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"{said}; this process may not write larger files (see: ulimit -f)"
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < _LITTLE:
            return f"{said}; the disk of {folder} has {free // 2**20} MiB left: free some there"
    return said


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON, a whole file or nothing. NaN becomes null."""
    write_text(path, json.dumps(finite(data), indent=2, allow_nan=False) + "\n")


def finite(data: Any) -> Any:
    """Return plain data with None for NaN and infinities, which JSON cannot hold."""
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data


def sync(path: Path) -> None:
    """Wait until a file or a folder's entries are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder: a second run in it is refused. Freed by the system at any death.

    Raises:
        RequestError: another process holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise RequestError(
            f"cannot write into {folder}: {error}; choose another --output"
        ) from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(
                f"{folder}: another run is writing here; wait for it, or choose another --output"
            ) from None
        yield


def choose_folder(name: str, output: Path | None, resume: bool) -> Path:
    """Return the folder of a run, without making it.

    Without ``output`` it is ``runs/NAME``, then ``runs/NAME-2`` and so on; to resume, the newest
    of these that exists.

    Raises:
        RequestError: the folder holds another run, or ``output`` is a file.
    """
    try:
        return _choose_folder(name, output, resume)
    except OSError as error:
        raise RequestError(
            f"cannot use {output or 'runs'}: {error}; choose another --output"
        ) from None


def _choose_folder(name: str, output: Path | None, resume: bool) -> Path:
    if output is None:
        return _default_folder(name, resume)
    if output.exists() and not output.is_dir():
        raise RequestError(f"--output {output} is a file; wanted a folder")
    if not resume and _in_use(output):
        raise RequestError(
            f"--output {output} is not empty and nothing is overwritten; choose another folder, or "
            "go on with the run in it by --resume"
        )
    return output


def _default_folder(name: str, resume: bool) -> Path:
    newest: Path | None = None
    for number in itertools.count(1):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not _in_use(folder):
            return newest if resume and newest is not None else folder
        newest = folder
    raise AssertionError("counting never ends")


def _in_use(folder: Path) -> bool:
    """Return whether there is more than the lock of a run that was refused."""
    if not folder.is_dir():
        return folder.exists()
    return any(path.name != ".lock" for path in folder.iterdir())
