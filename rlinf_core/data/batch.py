"""Batch: a nested mapping of tensors (or lists of strings) that share their first dimension.

It is what moves through channels and what policies read. Thin on purpose: anything numeric is a
function of tensors in ``rlinf_core.rl``; anything about episodes is in ``rlinf_core.data.episode``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rlinf_core.errors import BatchError, MissingKeyError, did_you_mean

Leaf: TypeAlias = Tensor | list[str]


class Batch(Mapping[str, Any]):
    """A nested, immutable mapping whose leaves have the same number of rows.

    Args:
        entries: tensors of at least one dimension, lists of strings, or nested mappings.
        rows: the number of rows, needed only where there are no entries.

    Raises:
        BatchError: leaves differ in rows or are of another type; the text names the path.
    """

    __slots__ = ("_entries", "_rows")

    def __init__(self, entries: Mapping[str, Any], rows: int | None = None) -> None:
        self._entries: dict[str, Any] = {}
        for key, value in entries.items():
            if isinstance(value, Mapping) and not isinstance(value, Batch):
                value = Batch(value, rows)
            if not isinstance(value, Batch | Tensor | list) or (
                isinstance(value, Tensor) and value.ndim == 0
            ):
                raise BatchError(
                    f"batch entry {key!r} is {_describe(value)}; wanted a tensor with a row "
                    "dimension, a list of strings or a mapping of these"
                )
            if rows is None:
                rows = len(value)
            if len(value) != rows:
                raise BatchError(
                    f"batch entry {key!r} has {len(value)} rows; the entries before it have {rows}"
                )
            self._entries[key] = value
        if rows is None:
            raise BatchError("a batch without entries needs its number of rows")
        self._rows = rows

    # --- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of rows (not of entries)."""
        return self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> Any:
        """Return an entry; a name that is not there raises with near matches (never a default)."""
        try:
            return self._entries[key]
        except KeyError:
            raise MissingKeyError(
                f"a batch has no entry {key!r}; it has {sorted(self._entries)}."
                + did_you_mean(str(key), self._entries)
            ) from None

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
        """Yield (dotted path, leaf), depth first."""
        for key, value in self._entries.items():
            if isinstance(value, Batch):
                yield from value.leaves(f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    def __repr__(self) -> str:
        parts = ", ".join(f"{path}: {_describe(leaf)}" for path, leaf in self.leaves())
        return f"Batch({self._rows} rows; {parts})"

    # --- making new ones -------------------------------------------------------------------------

    def with_entries(self, **entries: Any) -> Batch:
        """Return a batch with these entries added or replaced."""
        return Batch({**self._entries, **entries}, self._rows)

    def without_strings(self) -> Batch:
        """Return the batch without its lists of strings, which cannot be stacked over time."""
        kept = {
            key: value.without_strings() if isinstance(value, Batch) else value
            for key, value in self._entries.items()
            if not isinstance(value, list)
        }
        return Batch(kept, self._rows)

    def select(self, *keys: str) -> Batch:
        """Return a batch of only these entries."""
        return Batch({key: self[key] for key in keys}, self._rows)

    def map(self, fn: Callable[[Tensor], Tensor]) -> Batch:
        """Apply ``fn`` to each tensor; strings stay as they are."""
        mapped = {
            key: value.map(fn)
            if isinstance(value, Batch)
            else (fn(value) if isinstance(value, Tensor) else value)
            for key, value in self._entries.items()
        }
        return Batch(mapped, None if mapped else self._rows)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on ``device``; tensors already there are shared, not copied."""
        return self.map(lambda tensor: tensor.to(device))

    def rows(self, index: slice | Tensor | Sequence[int]) -> Batch:
        """Return some rows: a slice (views), a boolean mask [B] or an index tensor (copies)."""
        if isinstance(index, slice):
            chosen = list(range(self._rows))[index]
            return self._pick(
                lambda leaf: leaf[index], lambda text: [text[i] for i in chosen], len(chosen)
            )
        index = torch.as_tensor(index)
        if index.dtype == torch.bool:
            if index.shape != (self._rows,):
                raise BatchError(f"a row mask of shape {tuple(index.shape)}; rows: {self._rows}")
            index = index.nonzero().squeeze(-1)
        positions = index.tolist() if any(True for _ in self._strings()) else []
        return self._pick(
            lambda leaf: leaf.index_select(0, index.to(leaf.device)),
            lambda text: [text[i] for i in positions],
            len(index),
        )

    def split(self, size: int) -> list[Batch]:
        """Return consecutive pieces of at most ``size`` rows, as views."""
        if size < 1:
            raise BatchError(f"split into pieces of {size} rows; wanted at least 1")
        return [self.rows(slice(i, i + size)) for i in range(0, self._rows, size)]

    def flatten(self) -> Batch:
        """Join the first two dimensions of every tensor: [T, N, ...] becomes [T*N, ...]."""
        return self._pick(lambda leaf: leaf.flatten(0, 1), None, None)

    def where(self, mask: Tensor, other: Batch) -> Batch:
        """Return rows of ``self`` where ``mask`` [B] is true, else those of ``other``."""
        flags = mask.tolist()

        def choose(key: str) -> Any:
            mine, theirs = self[key], other[key]
            if isinstance(mine, Batch):
                return mine.where(mask, theirs)
            if isinstance(mine, Tensor):
                return torch.where(mask.reshape(-1, *[1] * (mine.ndim - 1)), mine, theirs)
            return [a if flag else b for flag, a, b in zip(flags, mine, theirs, strict=True)]

        return Batch({key: choose(key) for key in self}, self._rows)

    @staticmethod
    def cat(batches: Sequence[Batch], dim: int = 0) -> Batch:
        """Join batches of equal entries along ``dim``."""
        return _join(batches, lambda parts: torch.cat(parts, dim), strings=dim == 0)

    @staticmethod
    def stack(batches: Sequence[Batch]) -> Batch:
        """Stack batches of equal entries along a new first dimension."""
        return _join(batches, torch.stack, strings=False)

    def to_dict(self) -> dict[str, Any]:
        """Return nested dictionaries that share this batch's leaves."""
        return {k: v.to_dict() if isinstance(v, Batch) else v for k, v in self._entries.items()}

    # --- TensorDict ------------------------------------------------------------------------------

    def to_tensordict(self) -> Any:
        """Return a ``tensordict.TensorDict`` that shares this batch's tensors (tensordict)."""
        from tensordict import TensorDict

        return TensorDict(self.to_dict(), batch_size=[self._rows])

    @staticmethod
    def from_tensordict(source: Any) -> Batch:
        """Return a batch that shares the tensors of a ``TensorDict``."""

        def plain(part: Any) -> dict[str, Any]:
            return {k: v if isinstance(v, Tensor) else plain(v) for k, v in part.items()}

        return Batch(plain(source), int(source.batch_size[0]))

    # --- private ---------------------------------------------------------------------------------

    def _strings(self) -> Iterator[list[str]]:
        return (leaf for _, leaf in self.leaves() if isinstance(leaf, list))

    def _pick(
        self,
        tensor: Callable[[Tensor], Tensor],
        text: Callable[[list[str]], list[str]] | None,
        rows: int | None,
    ) -> Batch:
        picked: dict[str, Any] = {}
        for key, value in self._entries.items():
            if isinstance(value, Batch):
                picked[key] = value._pick(tensor, text, rows)
            elif isinstance(value, Tensor):
                picked[key] = tensor(value)
            elif text is None:
                raise BatchError(f"batch entry {key!r} holds strings, which have one dimension")
            else:
                picked[key] = text(value)
        return Batch(picked, rows)


def _join(batches: Sequence[Batch], join: Callable[[list[Tensor]], Tensor], strings: bool) -> Batch:
    if not batches:
        raise BatchError("no batches to join")
    first = batches[0]
    for other in batches[1:]:
        if set(other) != set(first):
            raise BatchError(f"cannot join batches of entries {sorted(first)} and {sorted(other)}")
    joined: dict[str, Any] = {}
    for key in first:
        parts = [batch[key] for batch in batches]
        if isinstance(parts[0], Batch):
            joined[key] = _join(parts, join, strings)
        elif isinstance(parts[0], Tensor):
            joined[key] = join(parts)
        elif strings:
            joined[key] = [line for part in parts for line in part]
        else:
            raise BatchError(f"batch entry {key!r} holds strings, which can only be joined by row")
    return Batch(joined, None if joined else sum(map(len, batches)))


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list):
        return f"{len(value)} strings"
    return f"a {type(value).__name__}"
