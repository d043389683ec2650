"""Weights of a published checkpoint: into a network, and back into files of the same layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from rlinf_core.api import Stored, fill, weight_files, write_checkpoint
from rlinf_plugin_openvla.llama import reset_rotary
from rlinf_plugin_openvla.network import OpenVLANetwork

CRITIC = "value_head."


@contextmanager
def making(dtype: str, empty: bool) -> Iterator[None]:
    """Make modules of this number format, ``empty`` without memory until :func:`give_memory`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device("meta") if empty else nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)


def give_memory(network: OpenVLANetwork) -> None:
    """Give memory to an empty network on the CPU; its weights are anything."""
    network.to_empty(device="cpu")
    reset_rotary(network.language_model)


def load(network: OpenVLANetwork, stored: Mapping[str, Stored], folder: Path) -> None:
    """Read published tensors into a network.

    A critic is read where there is one, and keeps its initial weights where ``stored`` has none.

    Args:
        network: exactly these tensors.
        stored: by name.
        folder: where they are from, for the message.

    Raises:
        CheckpointError: lists every missing, extra and misshaped tensor.
    """
    if network.value_head is None:
        stored = {name: tensor for name, tensor in stored.items() if not name.startswith(CRITIC)}
    there = any(name.startswith(CRITIC) for name in stored)
    fill(network, stored, str(folder), lambda name: name.startswith(CRITIC) and not there)


def save(network: OpenVLANetwork, folder: Path, like: Path) -> None:
    """Write a network into a new folder in the layout of a published one.

    A critic is written where ``like`` has one.

    Raises:
        RequestError: ``folder`` exists.
        CheckpointError: ``like`` is another network's.
    """
    there = weight_files(like)
    tensors = {
        name: tensor
        for name, tensor in network.state_dict().items()
        if name in there or not name.startswith(CRITIC)
    }
    write_checkpoint(folder, tensors, like)
