"""Nested plain data with tensors in it, kept as one JSON file and one safetensors file.

NAME.json           the structure; a tensor stands as {"tensor": "its key"}
NAME.safetensors    the tensors
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf_core.errors import CheckpointError

_MARK = "tensor"


def save_tree(folder: Path, name: str, tree: Any) -> None:
    """Write mappings, lists, numbers, strings, None and tensors of any device.

    Raises:
        CheckpointError: the tree holds something else; the text says where.
    """
    tensors: dict[str, Tensor] = {}
    structure = _pull(tree, "", tensors)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(structure), encoding="utf-8")


def load_tree(folder: Path, name: str) -> Any:
    """Read what :func:`save_tree` wrote; tensors come on the CPU.

    Raises:
        CheckpointError: a file is missing or not whole.
    """
    try:
        tensors = load_file(folder / f"{name}.safetensors")
        structure = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        return _put(structure, tensors)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {name} in {folder}: {error!r}") from error


def _pull(node: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, Tensor):
        tensors[path] = node.detach().to("cpu", copy=True).contiguous()
        return {_MARK: path}
    if isinstance(node, Mapping):
        if _MARK in node or not all(isinstance(key, str) for key in node):
            raise CheckpointError(
                f"{path or 'the tree'} has keys {list(node)}; wanted strings other than {_MARK!r}"
            )
        return {key: _pull(value, f"{path}/{key}", tensors) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_pull(value, f"{path}/{index}", tensors) for index, value in enumerate(node)]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise CheckpointError(
        f"{path or 'the tree'} is a {type(node).__name__}; wanted plain data or a tensor"
    )


def _put(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(node, dict):
        if set(node) == {_MARK}:
            return tensors[node[_MARK]]
        return {key: _put(value, tensors) for key, value in node.items()}
    return [_put(value, tensors) for value in node] if isinstance(node, list) else node
