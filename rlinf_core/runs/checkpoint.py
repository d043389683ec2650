"""Checkpoints: ``DIR/checkpoints/step-N/``, each whole or not there, checked when read.

A checkpoint is written under a hidden name, flushed, given a manifest of every file's size and
SHA-256, and renamed. Reading verifies the manifest, so a torn or altered one is passed over.

    step-N/manifest.json     sizes and digests of all other files
    step-N/state.json        where the run was: iteration, counters, metrics
    step-N/run.json          the whole resolved configuration
    step-N/training/         what the training backend saved (safetensors and JSON)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_core.errors import (
    CheckpointError,
    CheckpointWriteError,
    RlinfError,
    WorkerFailed,
    WriteError,
)
from rlinf_core.files import sha256, sync, why_not, write_json

FORMAT = 1
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A whole, verified checkpoint."""

    folder: Path
    step: int
    state: Mapping[str, Any]
    run: Mapping[str, Any]

    @property
    def training(self) -> Path:
        """Where the training backend's files are, ``model.safetensors`` among them."""
        return self.folder / "training"


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: the run's folder.
        keep: how many of the newest stay.
        best: name of the metric whose maximum stays as well; None for none.
    """

    def __init__(self, folder: Path, keep: int, best: str | None) -> None:
        self.folder = folder
        self._root = folder / "checkpoints"
        self._keep, self._best = keep, best

    def write(
        self,
        step: int,
        save: Callable[[Path], Mapping[str, Any]],
        run: Mapping[str, Any],
    ) -> Path:
        """Write one checkpoint and drop those that need not stay.

        Args:
            step: iterations done.
            save: writes files below the folder it is given and returns the state to keep.
            run: the resolved configuration.

        Raises:
            CheckpointWriteError: it could not be written; older ones are untouched.
        """
        final = self._root / f"step-{step}"
        beside = self._root / f".step-{step}.{os.getpid()}.tmp"
        try:
            (beside / "training").mkdir(parents=True)
            state = save(beside)
            write_json(beside / "state.json", {"format": FORMAT, "step": step, **state})
            write_json(beside / "run.json", run)
            _write_manifest(beside)
            if final.exists():  # not whole, or it would have been resumed from
                _remove(final)
            beside.rename(final)
            sync(self._root)
        except BaseException as error:
            shutil.rmtree(beside, ignore_errors=True)
            cause = error.cause if isinstance(error, WorkerFailed) else error
            foreign = isinstance(cause, Exception) and not isinstance(cause, RlinfError)
            # What a worker's libraries raise where a disk is full need not be an OSError.
            if not isinstance(cause, OSError) and not (foreign and isinstance(error, WorkerFailed)):
                raise
            why = str(cause) if isinstance(cause, WriteError) else why_not(self.folder, cause)
            raise CheckpointWriteError(
                f"could not write {final}: {why}; older checkpoints are untouched"
            ) from None
        self._prune(step)
        return final

    def sweep(self) -> None:
        """Remove what earlier tries of this run left half-done; the run's lock must be held."""
        for left in self._root.glob(".*.tmp"):
            shutil.rmtree(left, ignore_errors=True)

    def set_aside(self, step: int, report: Callable[[str], None]) -> None:
        """Hide checkpoints after ``step``, none of which is whole, from later resumes."""
        for later in (number for number in self._steps() if number > step):
            folder = self._root / f"step-{later}"
            aside = self._root / f"damaged-step-{later}"
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            report(f"{folder} is not whole and was renamed to {aside.name}")

    @property
    def empty(self) -> bool:
        """Whether there is nothing that looks like a checkpoint, whole or not."""
        return not self._steps()

    @property
    def newest(self) -> int | None:
        """The step of the newest checkpoint, whole or not; None where there is none."""
        return max(self._steps(), default=None)

    def last(self, report: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest whole checkpoint; ``report`` is told of each one passed over."""
        for step in sorted(self._steps(), reverse=True):
            folder = self._root / f"step-{step}"
            try:
                return read_checkpoint(folder)
            except CheckpointError as error:
                report(f"passing over {folder}: {error}")
        return None

    def _steps(self) -> list[int]:
        names = [p.name for p in self._root.glob("step-*") if p.is_dir()]
        return [int(name[5:]) for name in names if re.fullmatch(r"step-[0-9]{1,18}", name)]

    def _prune(self, newest: int) -> None:
        steps = sorted(step for step in self._steps() if step <= newest)
        stay = set(steps[-self._keep :])
        scores = {step: self._score(step) for step in steps}
        known = {step: score for step, score in scores.items() if not math.isnan(score)}
        if known:
            # of equal ones the newest: it has learned longest
            stay.add(max(known, key=lambda step: (known[step], step)))
        for step in steps:
            if step not in stay:
                _remove(self._root / f"step-{step}")

    def _score(self, step: int) -> float:
        if self._best is None:
            return math.nan
        try:
            state = json.loads((self._root / f"step-{step}" / "state.json").read_text())
            return float(state["metrics"][self._best])
        except (OSError, ValueError, KeyError, TypeError):
            return math.nan


def read_checkpoint(folder: Path) -> Checkpoint:
    """Verify and read one checkpoint.

    Raises:
        CheckpointError: it is not whole; the text says which file and why.
    """
    manifest = _read_object(folder / _MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{_MANIFEST} has format {manifest.get('format')!r}, wanted {FORMAT}; another version "
            "of rlinf wrote it"
        )
    entries = manifest.get("files")
    if manifest.get("digest") != _digest(entries) or not isinstance(entries, dict):
        raise CheckpointError(f"{_MANIFEST} is damaged (its own digest differs)")
    if not {"state.json", "run.json", "training/model.safetensors"} <= entries.keys():
        raise CheckpointError(f"{_MANIFEST} does not list all files of a checkpoint")
    for name, entry in entries.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(entry, dict):
            raise CheckpointError(f"{_MANIFEST} lists {name!r}, which is no file of a checkpoint")
        if not path.is_file():
            raise CheckpointError(f"{name} is missing")
        if path.stat().st_size != entry.get("size"):
            raise CheckpointError(f"{name} has {path.stat().st_size} bytes of {entry.get('size')}")
        if sha256(path) != entry.get("sha256"):
            raise CheckpointError(f"{name} is damaged (its SHA-256 is not the manifest's)")
    state, run = _read_object(folder / "state.json"), _read_object(folder / "run.json")
    wanted = {"step": int, "env_steps": int, "version": int, "episode_counters": dict}
    for key, kind in {**wanted, "metrics": dict}.items():
        if not isinstance(state.get(key), kind):
            raise CheckpointError(
                f"state.json has {key} {state.get(key)!r}, wanted {kind.__name__}"
            )
    if folder.name != f"step-{state['step']}":
        raise CheckpointError(f"it is of step {state['step']}, which its folder's name is not")
    return Checkpoint(folder, state["step"], state, run)


def find_checkpoint(path: Path, report: Callable[[str], None]) -> Checkpoint:
    """Return the checkpoint that a person means by ``path``: one's own folder or a run's folder.

    Raises:
        CheckpointError: there is none, or the one named is not whole.
    """
    if (path / _MANIFEST).exists() or path.name.startswith("step-"):
        try:
            return read_checkpoint(path)
        except CheckpointError as error:
            others = sorted(p.name for p in path.parent.glob("step-*") if p != path)
            beside = f"Beside it: {', '.join(others) or 'none'}"
            raise CheckpointError(f"{path}: {error}. {beside}") from error
    found = CheckpointStore(path, keep=1, best=None).last(report)
    if found is None:
        raise CheckpointError(
            f"{path} holds no whole checkpoint; wanted a run's folder or its checkpoints/step-N"
        )
    return found


def _write_manifest(folder: Path) -> None:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    for path in files:
        sync(path)
    entries = {
        str(p.relative_to(folder)): {"size": p.stat().st_size, "sha256": sha256(p)} for p in files
    }
    for inner in [p for p in folder.rglob("*") if p.is_dir()]:
        sync(inner)
    manifest = {"format": FORMAT, "files": entries, "digest": _digest(entries)}
    write_json(folder / _MANIFEST, manifest)


def _digest(entries: Any) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def _remove(folder: Path) -> None:
    """Remove a checkpoint so that no half of it is ever taken for one."""
    hidden = folder.with_name(f".{folder.name}.gone.tmp")
    shutil.rmtree(hidden, ignore_errors=True)
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path.name} holds a {type(data).__name__}, wanted an object")
    return data


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], where: str, prefix: str = ""
) -> list[str]:
    """Return a sentence for each option that is not what it was ``where`` it stood before."""
    notes: list[str] = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            notes += differences(old, new, where, f"{prefix}{key}.")
        elif old != new:
            notes.append(f"{prefix}{key} was {old!r} {where}; going on with {new!r}")
    return notes
