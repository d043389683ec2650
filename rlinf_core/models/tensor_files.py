"""Published checkpoints: named tensors in safetensors files, whole or not at all.

A module is filled only when every name and shape fits; all that does not is one error. Tensors are
read one by one, so no second copy of a large model stands in memory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rlinf_core.errors import CheckpointError, RequestError
from rlinf_core.files import sync, write_text

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class Stored:
    """A tensor that is read when it is asked for.

    Attributes:
        shape: its shape.
        read: returns it, on the CPU.
    """

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


def in_memory(tensors: Mapping[str, Tensor]) -> dict[str, Stored]:
    """Return tensors that are there already in the form of those that are not."""
    return {
        name: Stored(tuple(tensor.shape), lambda tensor=tensor: tensor)  # type: ignore[misc]
        for name, tensor in tensors.items()
    }


def weight_files(folder: Path) -> dict[str, str]:
    """Return which file of a folder holds each tensor.

    Raises:
        CheckpointError: there are no weights, or a file of the index is missing.
    """
    index = folder / INDEX
    try:
        if index.exists():
            named = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        else:
            with safe_open(folder / SINGLE, framework="pt") as file:
                return dict.fromkeys(file.keys(), SINGLE)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot read the weights of {folder}: {error}; wanted {SINGLE}, or {INDEX} and the "
            "files that it names"
        ) from None
    if absent := sorted({name for name in named.values() if not (folder / name).is_file()}):
        raise CheckpointError(f"{folder} lacks {absent}, which {INDEX} names; copy them as well")
    return dict(named)


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Return every tensor of a published folder, by name, without reading it.

    Raises:
        CheckpointError: as :func:`weight_files`, or a file is damaged or lacks a tensor.
    """
    tensors: dict[str, Stored] = {}
    files = weight_files(folder)
    for file_name in sorted(set(files.values())):
        path = folder / file_name
        try:
            with safe_open(path, framework="pt") as file:
                shapes = {n: tuple(file.get_slice(n).get_shape()) for n in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot read {path}: {error}; copy it again") from None
        expected = {name for name, home in files.items() if home == file_name}
        if absent := sorted(expected - shapes.keys()):
            raise CheckpointError(f"{path} lacks {absent}, which {INDEX} says it holds")
        for name, shape in shapes.items():
            tensors[name] = Stored(shape, _reader(path, name))
    return tensors


def _reader(path: Path, name: str) -> Callable[[], Tensor]:
    def read() -> Tensor:
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    return read


def fill(
    module: nn.Module,
    stored: Mapping[str, Stored],
    where: str,
    optional: Callable[[str], bool] = lambda name: False,
) -> None:
    """Copy stored tensors into a module of exactly these names and shapes.

    Args:
        module: its tensors keep their dtype and device.
        stored: by name.
        where: what the tensors are of, for the message.
        optional: names that may be missing, and keep what they have.

    Raises:
        CheckpointError: lists every missing, extra and misshaped tensor; nothing was copied.
    """
    own: dict[str, Tensor] = module.state_dict()
    missing = sorted(name for name in own.keys() - stored.keys() if not optional(name))
    extra = sorted(stored.keys() - own.keys())
    misshaped = [
        f"{name}: found {list(stored[name].shape)}, wanted {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in stored and stored[name].shape != tuple(tensor.shape)
    ]
    if missing or extra or misshaped:
        raise CheckpointError(
            f"{where} does not fit {type(module).__name__} as configured: missing {missing}; extra "
            f"{extra}; misshaped {misshaped}. Nothing was loaded; choose the checkpoint's own "
            "options, or another checkpoint"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            if name in stored:
                tensor.copy_(stored[name].read())


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    like: Path,
    parts: Mapping[str, Callable[[Path], None]] = MappingProxyType({}),
) -> None:
    """Write a published checkpoint again with other values: its files, split and dtypes.

    Everything but the weights (configuration, tokenizer, processor) is copied. With the values
    that were read, every file is the same byte for byte.

    Args:
        folder: a new folder; it appears whole or not at all.
        tensors: by name; exactly those of ``like``.
        like: the published folder.
        parts: further files of weights by name, and what writes each to a path.

    Raises:
        RequestError: ``folder`` exists.
        CheckpointError: names differ from those of ``like``.
    """
    files = weight_files(like)
    if differ := sorted(files.keys() ^ tensors.keys()):
        raise CheckpointError(f"cannot write {folder} like {like}: tensors differ in {differ}")
    with new_folder(folder) as beside:
        weights = {*files.values(), *parts}
        for path in sorted(like.iterdir()):
            if path.is_file() and path.name not in weights:
                shutil.copyfile(path, beside / path.name)
                sync(beside / path.name)
        for name, write in parts.items():
            write(beside / name)
            sync(beside / name)
        for name in sorted(set(files.values())):
            with safe_open(like / name, framework="pt") as file:
                metadata = file.metadata()
                kept = {n: file.get_slice(n).get_dtype() for n in file.keys()}  # noqa: SIM118
            part = {n: tensors[n].detach().cpu().to(_DTYPES[kept[n]]).contiguous() for n in kept}
            save_file(part, beside / name, metadata)
            sync(beside / name)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes ``folder`` at the end, or vanishes on an error.

    Raises:
        RequestError: ``folder`` exists.
    """
    if folder.exists():
        raise RequestError(f"{folder} exists and nothing is overwritten; choose another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    beside.mkdir()
    try:
        yield beside
        sync(beside)
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync(folder.parent)


_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def write_shards(folder: Path, tensors: Mapping[str, Tensor], most: int) -> None:
    """Write weights into files of at most ``most`` bytes, unless one tensor is larger.

    Args:
        folder: an existing one.
        tensors: by name, on any device.
        most: bytes in a file; an index is written where there are several files.
    """
    shards: list[dict[str, Tensor]] = [{}]
    room = most
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size > room and shards[-1]:
            shards.append({})
            room = most
        shards[-1][name] = tensor.detach().cpu().contiguous()
        room -= size
    count = len(shards)
    names = [f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]
    for name, shard in zip(names if count > 1 else [SINGLE], shards, strict=True):
        save_file(shard, folder / name, {"format": "pt"})
        sync(folder / name)
    if count > 1:
        where = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        total = sum(t.numel() * t.element_size() for t in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
        write_text(folder / INDEX, json.dumps(index, indent=2) + "\n")
