"""What the backend writes to a folder and reads back: safetensors and JSON, never a pickle.

    model.safetensors       the policy's parameters and buffers
    optimizer.safetensors   ``state/PARAMETER/KEY`` of the optimizer, ``random/DEVICE`` generators
    optimizer.json          format, optimizer, iteration, gradient scaler

Files are flushed to the disk. That a checkpoint appears whole or not at all is the caller's part:
it writes into a new folder and renames it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf_core.api import CheckpointError

FORMAT = 1
"""Goes up by one when a reader of today could not understand what is written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors, each with its own bytes (tied weights are written once per name)."""
    own = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    save_file(own, path)
    _flush(path)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object."""
    path.write_text(json.dumps({"format": FORMAT, **content}, indent=2) + "\n", encoding="utf-8")
    _flush(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file, on the CPU.

    Raises:
        CheckpointError: the file is missing or not whole.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; use an older checkpoint") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: the file is missing, not whole, or of another format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; use an older checkpoint") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(
            f"{path} has format {found!r}, wanted {FORMAT}; read it with the version of "
            "rlinf-plugin-torch that wrote it"
        )
    return content


def check_weights(folder: Path, weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse weights whose names, shapes or dtypes are not exactly those of a model's ``own``.

    Raises:
        CheckpointError: names the first tensors that differ.
    """
    found = {name: f"{t.dtype}{list(t.shape)}" for name, t in weights.items()}
    wanted = {name: f"{t.dtype}{list(t.shape)}" for name, t in own.items()}
    differ = [
        f"{name}: found {found.get(name, 'nothing')}, wanted {wanted.get(name, 'nothing')}"
        for name in sorted(found.keys() | wanted.keys())
        if found.get(name) != wanted.get(name)
    ]
    if differ:
        raise CheckpointError(
            f"{folder} holds another model, {len(differ)} tensors differ: {'; '.join(differ[:5])}; "
            "resume with the model that was saved"
        )


def _flush(path: Path) -> None:
    for place in (path, path.parent):  # the bytes, and the folder's entry for them
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
