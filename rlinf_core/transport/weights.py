"""WeightStream: named tensors behind a header, so a receiver can check that nothing is missing.

A training backend exports one; a rollout engine loads one. :func:`load_into` is the one place
where names, shapes and completeness are checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from rlinf_core.errors import WeightSyncError, did_you_mean


@dataclass(frozen=True)
class Header:
    """What a stream is about to yield.

    Attributes:
        version: version of the weights.
        shapes: shape of each public name.
        bytes: sum over all tensors, in the dtype in which they are sent.
    """

    version: int
    shapes: Mapping[str, tuple[int, ...]]
    bytes: int


@dataclass
class WeightStream:
    """A header and, once, an iterator of (public name, tensor)."""

    header: Header
    tensors: Iterable[tuple[str, Tensor]] = field(repr=False)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self.tensors)

    @staticmethod
    def of(module: nn.Module, version: int) -> WeightStream:
        """Return all parameters and persistent buffers of a module, without copying them."""
        return WeightStream.from_tensors(module.state_dict(), version)

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], version: int) -> WeightStream:
        """Return a stream over named tensors, without copying them."""
        header = Header(
            version,
            {name: tuple(tensor.shape) for name, tensor in tensors.items()},
            sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
        )
        return WeightStream(header, tensors.items())


def stream_from_files(folder: Path, version: int) -> WeightStream:
    """Return the weights of ``folder/model.safetensors``, as a training backend saves them.

    Raises:
        WeightSyncError: there is no such file.
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        raise WeightSyncError(f"{folder} holds no model.safetensors; wanted a checkpoint's folder")
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return WeightStream.from_tensors(tensors, version)


def load_into(module: nn.Module, stream: WeightStream) -> int:
    """Copy a stream into a module of the same names and shapes; return the number of tensors.

    Nothing is changed unless the header fits; tensors are cast to the module's own dtypes.

    Raises:
        WeightSyncError: a name is missing, unknown, sent twice or of another shape.
    """
    own: dict[str, Tensor] = module.state_dict()
    shapes = stream.header.shapes
    missing, unknown = sorted(own.keys() - shapes.keys()), sorted(shapes.keys() - own.keys())
    misshapen = [
        f"{name}: got {list(shapes[name])}, wanted {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in shapes and tuple(shapes[name]) != tuple(tensor.shape)
    ]
    if missing or unknown or misshapen:
        raise WeightSyncError(
            f"weights of version {stream.header.version} do not fit {type(module).__name__}: "
            f"missing {missing}; unknown {unknown}; misshapen {misshapen}"
            + (did_you_mean(unknown[0], missing) if unknown and missing else "")
        )
    seen: set[str] = set()
    with torch.no_grad():
        for name, tensor in stream:
            if name not in own or name in seen:
                raise WeightSyncError(f"the stream yields {name!r} twice or beside its header")
            own[name].copy_(tensor)
            seen.add(name)
    if len(seen) != len(own):
        raise WeightSyncError(
            f"the stream ended early: {sorted(own.keys() - seen)} of its header did not come"
        )
    return len(seen)


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return SHA-256 over names, dtypes, shapes and bytes of tensors, in sorted order."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
