"""WeightStream: named tensors behind a header, so a receiver can check that nothing is missing.

A training backend exports one; a rollout engine loads one. :func:`check_fit` and :func:`load_into`
are the one place where names, shapes, dtypes and completeness are checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn

from rlinf_core.errors import WeightSyncError, did_you_mean
from rlinf_core.transport.routes import Part


class Piece(NamedTuple):
    """A tensor of a stream, or a part of one.

    Attributes:
        name: the public name.
        tensor: its entries.
        part: which entries of the whole tensor these are; None for all that the header announces.
    """

    name: str
    tensor: Tensor
    part: Part | None = None


@dataclass(frozen=True)
class Header:
    """What a stream is about to yield.

    Attributes:
        version: version of the weights.
        shapes: shape of each public name, of the whole tensor.
        bytes: sum over all that is yielded.
        dtypes: torch's name of the dtype of each public name, such as "float32".
        parts: of each name, the part that is yielded, where it is not the whole tensor.
        base: the version that the receiver must hold, where only what has changed since is
            yielded; None where all is.
        changed: the names that are yielded where there is a base.
        dtype: the dtype that both ends agreed to send floating-point numbers in, so that the
            receiver may convert what comes; None where tensors come in the dtype they are held in.
    """

    version: int
    shapes: Mapping[str, tuple[int, ...]]
    bytes: int
    dtypes: Mapping[str, str]
    parts: Mapping[str, Part] = field(default_factory=dict)
    base: int | None = None
    changed: frozenset[str] = frozenset()
    dtype: str | None = None

    def part(self, name: str) -> Part:
        """Return the part of a tensor that is yielded."""
        return self.parts.get(name) or Part.whole(tuple(self.shapes[name]))

    @property
    def names(self) -> frozenset[str]:
        """The names that are yielded."""
        return frozenset(self.shapes) if self.base is None else self.changed


@dataclass
class WeightStream:
    """A header and, once, an iterator of what it announces.

    Args:
        header: what is yielded.
        content: pieces, or (public name, tensor), in any order.
    """

    header: Header
    content: Iterable[Piece | tuple[str, Tensor]] = field(repr=False)

    def pieces(self) -> Iterator[Piece]:
        """Yield pieces as they come: for whoever can take a tensor part by part."""
        for item in self.content:
            yield item if isinstance(item, Piece) else Piece(*item)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (public name, tensor), each put together from its pieces.

        Raises:
            WeightSyncError: the stream ends within a tensor.
        """
        begun: dict[str, Tensor] = {}
        left: dict[str, int] = {}
        for name, tensor, part in self.pieces():
            if part is None or part == self.header.part(name):
                yield name, tensor
                continue
            announced = self.header.part(name)
            if name not in begun:
                begun[name] = tensor.new_empty(announced.shape)
                left[name] = announced.size
            begun[name][part.within(announced)].copy_(tensor)
            left[name] -= part.size
            if not left[name]:
                yield name, begun.pop(name)
        if begun:
            raise WeightSyncError(f"the stream ended early, within {sorted(begun)}")

    @staticmethod
    def of(module: nn.Module, version: int) -> WeightStream:
        """Return all parameters and persistent buffers of a module, without copying them."""
        return WeightStream.from_tensors(module.state_dict(), version)

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], version: int) -> WeightStream:
        """Return a stream over named tensors, without copying them."""
        return WeightStream.from_shards(tensors, version, {})

    @staticmethod
    def from_shards(
        tensors: Mapping[str, Tensor],
        version: int,
        places: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> WeightStream:
        """Return a stream over what one rank has of tensors that are spread over ranks.

        Args:
            tensors: this rank's tensors by public name, not copied. A name may be missing.
            version: of the weights.
            places: of each tensor that is a part: the shape of the whole, and the index in it of
                this part's first entry.
        """
        parts = {
            name: Part(tuple(start), tuple(tensors[name].shape))
            for name, (_, start) in places.items()
        }
        header = Header(
            version,
            {n: tuple(places[n][0]) if n in places else tuple(t.shape) for n, t in tensors.items()},
            sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
            {name: dtype_name(tensor.dtype) for name, tensor in tensors.items()},
            parts,
        )
        return WeightStream(header, tensors.items())


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a name."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


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


def check_fit(module: nn.Module, header: Header) -> dict[str, Tensor]:
    """Return a module's own tensors, if a stream with this header fits them.

    Raises:
        WeightSyncError: a name is missing or unknown, or of another shape; or of another dtype,
            and the two ends did not agree to convert it.
    """
    own: dict[str, Tensor] = module.state_dict()
    shapes = header.shapes
    missing, unknown = sorted(own.keys() - shapes.keys()), sorted(shapes.keys() - own.keys())
    both = [name for name in own if name in shapes]
    misshapen = [
        f"{name}: got {list(header.part(name).shape)}, wanted {list(own[name].shape)}"
        for name in both
        if header.part(name).shape != tuple(own[name].shape)
    ]
    mistyped = [
        f"{name}: got {header.dtypes[name]}, wanted {dtype_name(own[name].dtype)}"
        for name in both
        if header.dtype is None and header.dtypes[name] != dtype_name(own[name].dtype)
    ]
    if missing or unknown or misshapen or mistyped:
        raise WeightSyncError(
            f"weights of version {header.version} do not fit {type(module).__name__}: "
            f"missing {missing}; unknown {unknown}; misshapen {misshapen}; of another dtype "
            f"{mistyped}"
            + (did_you_mean(unknown[0], missing) if unknown and missing else "")
            + (". To convert on the way, set weights.dtype" if mistyped else "")
        )
    return own


def load_into(module: nn.Module, stream: WeightStream) -> int:
    """Copy a stream into a module of the same names and shapes; return the number of tensors.

    Nothing is changed unless the header fits. What fails later, because the stream does not keep to
    its header or breaks off, leaves a module that is partly old and partly new.

    Raises:
        WeightSyncError: see :func:`check_fit`; or something is yielded twice, beside the header or
            not at all.
    """
    own, header = check_fit(module, stream.header), stream.header
    left = {name: own[name].numel() for name in header.names}
    with torch.no_grad():
        for name, tensor, part in stream.pieces():
            if name not in left or tensor.numel() > left[name]:
                raise WeightSyncError(f"the stream yields {name!r} twice or beside its header")
            target = own[name] if part is None else own[name][part.within(header.part(name))]
            if target.shape != tensor.shape:
                raise WeightSyncError(
                    f"the stream yields {name!r} of shape {list(tensor.shape)}; wanted "
                    f"{list(target.shape)}"
                )
            target.copy_(tensor)
            left[name] -= tensor.numel()
            if not left[name]:
                del left[name]
    if left:
        raise WeightSyncError(
            f"the stream ended early: {sorted(left)} of its header did not come, or not all of it"
        )
    return len(header.names)


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return SHA-256 over names, dtypes, shapes and bytes of tensors, in sorted order."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
