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
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_core.errors import CheckpointError
from rlinf_core.files import sha256, sync, write_json

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
            CheckpointError: it could not be written; older ones are untouched.
        """
        final = self._root / f"step-{step}"
        beside = self._root / f".step-{step}.{os.getpid()}.tmp"
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._sweep()
            (beside / "training").mkdir(parents=True)
            state = save(beside)
            write_json(beside / "state.json", {"format": FORMAT, "step": step, **state})
            write_json(beside / "run.json", run)
            _write_manifest(beside)
            if final.exists():  # written before a resume from an older one; the new one replaces it
                _remove(final)
            beside.rename(final)
            sync(self._root)
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise CheckpointError(
                f"could not write {final}: {error}; older checkpoints are untouched"
            ) from error
        self._prune()
        return final

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
        names = [p.name for p in self._root.glob("step-*")] if self._root.is_dir() else []
        return [int(name[5:]) for name in names if name[5:].isdigit()]

    def _prune(self) -> None:
        steps = sorted(self._steps())
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

    def _sweep(self) -> None:
        """Remove what earlier tries of this run left half-done; its folder's lock is ours."""
        for left in self._root.glob(".*.tmp"):
            shutil.rmtree(left, ignore_errors=True)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Verify and read one checkpoint.

    Raises:
        CheckpointError: it is not whole; the text says which file and why.
    """
    manifest = _read_json(folder / _MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{_MANIFEST} is not of format {FORMAT}")
    if manifest.get("digest") != _digest(manifest.get("files")):
        raise CheckpointError(f"{_MANIFEST} is damaged (its own digest differs)")
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{name} is missing")
        if path.stat().st_size != entry["size"]:
            raise CheckpointError(f"{name} has {path.stat().st_size} bytes of {entry['size']}")
        if sha256(path) != entry["sha256"]:
            raise CheckpointError(f"{name} is damaged (its SHA-256 is not the manifest's)")
    state, run = _read_json(folder / "state.json"), _read_json(folder / "run.json")
    return Checkpoint(folder, int(state["step"]), state, run)


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


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}") from None
