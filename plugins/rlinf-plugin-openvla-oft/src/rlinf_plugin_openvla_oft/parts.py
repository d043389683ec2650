"""The files that OFT publishes beside the weights, ``PART--STEP_checkpoint.pt``, in and out.

Names in them begin with ``module.`` where they were trained on several devices; a file is written
again as it was.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rlinf_plugin_openvla.weights import CRITIC
from torch import Tensor

from rlinf_core.api import (
    CheckpointError,
    Stored,
    in_memory,
    stored_tensors,
    write_checkpoint,
)
from rlinf_plugin_openvla_oft.network import OFTNetwork

WRAPPED = "module."


def parts_of(network: OFTNetwork) -> list[str]:
    """Return the names of the modules that have a file of their own."""
    there = {
        "action_head": network.action_head is not None,
        "proprio_projector": network.proprio_projector is not None,
        "vision_backbone": network.film,
    }
    return [name for name, present in there.items() if present]


def find(folder: Path, part: str) -> Path:
    """Return the file of a part.

    Raises:
        CheckpointError: there is none, or there are several.
    """
    found = sorted(folder.glob(f"{part}--*checkpoint.pt"))
    if len(found) != 1:
        raise CheckpointError(
            f"{folder} has {[path.name for path in found]} for {part}; wanted one file "
            f"{part}--*checkpoint.pt: copy it there, or choose the checkpoint's own options"
        )
    return found[0]


def stored(network: OFTNetwork, folder: Path) -> dict[str, Stored]:
    """Return every tensor of a published folder, by its name in the network.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    parts = parts_of(network)
    # The weights hold towers without FiLM as well, which those of the part replace.
    tensors = {n: t for n, t in stored_tensors(folder).items() if n.partition(".")[0] not in parts}
    for part in parts:
        read = _read(find(folder, part))
        tensors |= in_memory({f"{part}.{n.removeprefix(WRAPPED)}": t for n, t in read.items()})
    return tensors


def save(network: OFTNetwork, folder: Path, like: Path) -> None:
    """Write a network into a new folder in the layout of a published one.

    Raises:
        RequestError: ``folder`` exists.
        CheckpointError: ``like`` is another network's.
    """
    own, parts, there = network.state_dict(), parts_of(network), stored_tensors(like)
    tensors = {
        name: tensor
        for name, tensor in own.items()
        if name.partition(".")[0] not in parts and (name in there or not name.startswith(CRITIC))
    }
    tensors |= {n: kept.read() for n, kept in there.items() if n.partition(".")[0] in parts}
    writers: dict[str, Callable[[Path], None]] = {}
    for part in parts:
        path = find(like, part)
        writers[path.name] = partial(_write, _read(path), part, own)
    write_checkpoint(folder, tensors, like, writers)


def _write(content: MutableMapping[str, Tensor], part: str, own: Any, path: Path) -> None:
    for name, tensor in content.items():
        new = own[f"{part}.{name.removeprefix(WRAPPED)}"]
        content[name] = new.detach().cpu().to(tensor.dtype).contiguous()
    torch.save(content, path)


def _read(path: Path) -> MutableMapping[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; copy it again") from None
    if not isinstance(content, MutableMapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}; wanted tensors by name")
    return content
