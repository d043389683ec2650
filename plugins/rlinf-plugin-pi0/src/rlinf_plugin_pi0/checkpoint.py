"""Published weights of openpi and LeRobot: read into a model, written back, converted.

LeRobot puts ``model.`` before openpi's names. The token embedding may stand under its own name,
under that of the ``lm_head`` it is tied to, or under both. The expert's ``lm_head`` is of no use:
it is not loaded, and is kept as it was where a checkpoint is written again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rlinf_core.api import (
    CheckpointError,
    RequestError,
    Stored,
    fill,
    new_folder,
    stored_tensors,
    write_checkpoint,
    write_shards,
)

PREFIX = {"openpi": "", "lerobot": "model."}
"""What stands before every name, by layout."""
EMBEDDING = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
TIED = "paligemma_with_expert.paligemma.lm_head.weight"
UNUSED = "paligemma_with_expert.gemma_expert.lm_head.weight"
HEADS = "rlinf_heads.safetensors"
"""The file of what reinforcement learning adds, beside the published one."""
ADDED = ("value_head.", "noise_head.", "iterations")
"""How the names of what it adds begin."""


def load(model: nn.Module, checkpoint: str) -> None:
    """Fill a model with a checkpoint's tensors; heads that are not in it keep what they have.

    Args:
        model: its names are openpi's.
        checkpoint: the folder of ``model.safetensors``, or of several files and their index.

    Raises:
        CheckpointError: lists every missing, extra and misshaped tensor, or the file cannot be
            read; nothing was loaded.
    """
    folder = _folder(checkpoint)
    stored = plain(stored_tensors(folder), folder)
    heads = folder / HEADS
    if heads.is_file():
        stored |= _stored_file(heads)
    fill(model, stored, str(folder), optional=lambda name: name.startswith(ADDED))


def plain(stored: Mapping[str, Stored], folder: Path) -> dict[str, Stored]:
    """Return tensors by a model's own names: no prefix, one embedding, nothing unused.

    Raises:
        CheckpointError: the two copies of the embedding differ.
    """
    prefix = _prefix(stored)
    named = {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
    named.pop(UNUSED, None)
    tied = named.pop(TIED, None)
    if tied is not None and EMBEDDING not in named:
        named[EMBEDDING] = tied
    elif tied is not None and not torch.equal(tied.read(), named[EMBEDDING].read()):
        raise CheckpointError(
            f"{folder}: {TIED} and {EMBEDDING} differ, wanted one tensor under both names; the "
            "checkpoint is not one of pi0"
        )
    return named


def save(model: nn.Module, folder: Path, like: str) -> None:
    """Write a model as the checkpoint ``like`` is: its layout, names, files and dtypes.

    With the values that were read, every file is the same byte for byte. What reinforcement
    learning added, and ``like`` does not have, goes into a file ``rlinf_heads.safetensors``.

    Raises:
        RequestError: ``folder`` exists.
        CheckpointError: the model's tensors are not those of ``like``.
    """
    source = _folder(like)
    stored, own = stored_tensors(source), model.state_dict()
    prefix = _prefix(stored)
    added = [n for n in own if n.startswith(ADDED) and prefix + n not in stored]
    heads = {name: own.pop(name) for name in added}
    tensors: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        bare = name.removeprefix(prefix)
        bare = EMBEDDING if bare == TIED else bare
        if bare in own:
            tensors[name] = own[bare]
        elif bare == UNUSED:
            tensors[name] = tensor.read()
    known = {name.removeprefix(prefix) for name in tensors} | {EMBEDDING}
    if strange := sorted(own.keys() - known):
        raise CheckpointError(f"{source} has no place for {strange}; write like another checkpoint")
    parts = {HEADS: lambda path: _write(path, heads)} if heads else {}
    write_checkpoint(folder, tensors, source, parts)


def convert(checkpoint: str, folder: Path, layout: Literal["openpi", "lerobot"]) -> None:
    """Write a checkpoint's weights under the names of another layout, in one file.

    Converting there and back gives the first file again, byte for byte, if it was one file. Only
    the weights are written: configuration and statistics of the two have not the same meaning.

    Raises:
        RequestError: ``folder`` exists.
    """
    source = _folder(checkpoint)
    stored = stored_tensors(source)
    prefix = _prefix(stored)
    with new_folder(folder) as beside:
        renamed = {
            PREFIX[layout] + name.removeprefix(prefix): tensor.read()
            for name, tensor in stored.items()
        }
        write_shards(beside, renamed, most=sys.maxsize)


def _folder(checkpoint: str) -> Path:
    place = Path(checkpoint).expanduser()
    if not place.is_dir():
        raise RequestError(
            f"there is no folder {place}; set model.checkpoint to the folder of model.safetensors"
        )
    return place


def _prefix(stored: Mapping[str, Stored]) -> str:
    """Return LeRobot's prefix if every name has it, else none."""
    prefix = PREFIX["lerobot"]
    return prefix if stored and all(name.startswith(prefix) for name in stored) else ""


def _stored_file(path: Path) -> dict[str, Stored]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {n: Stored(tuple(t.shape), lambda t=t: t) for n, t in tensors.items()}


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    own = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    save_file(own, path, {"format": "pt"})
