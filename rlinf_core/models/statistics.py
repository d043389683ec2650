"""Choosing the statistics that un-normalise a model's actions. Imports no torch.

Checkpoints carry statistics of each dataset they saw, by key: ``{key: {"action": {"q01": [...],
"q99": [...], "mask": [...]}, "proprio": {...}}}``. The wrong ones move a robot wrongly without any
error, so nothing here guesses: what is missing, ambiguous or of another width is refused, which a
model's ``facts`` can do before a run starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlinf_core.errors import RequestError, did_you_mean


@dataclass(frozen=True)
class Statistics:
    """Statistics of one vector over one dataset.

    Attributes:
        key: of the dataset.
        values: by name, such as ``q01``, one number per dimension.
        mask: which dimensions are normalised; the others (a gripper) stay as they are.
    """

    key: str
    values: Mapping[str, tuple[float, ...]]
    mask: tuple[bool, ...]

    @property
    def width(self) -> int:
        """Number of dimensions."""
        return len(self.mask)


def choose_statistics(
    datasets: Mapping[str, Any],
    key: str | None,
    *,
    of: str = "action",
    width: int | None = None,
    names: Iterable[str] = ("q01", "q99"),
) -> Statistics:
    """Return the statistics of one dataset.

    Args:
        datasets: statistics by dataset and vector, as in ``norm_stats`` of a checkpoint.
        key: a dataset, or the beginning of the names of exactly one (``libero_spatial`` for
            ``libero_spatial_no_noops``); None only where there is one dataset.
        of: the vector, ``action`` or ``proprio``.
        width: number of dimensions wanted; None takes any.
        names: the statistics wanted.

    Raises:
        RequestError: no key or several match, the vector or a statistic is not there, or the width
            is another; the text names the keys that exist.
    """
    known = sorted(datasets)
    exist = f"the checkpoint has statistics of {known}"
    if not known:
        raise RequestError(
            "the checkpoint has no statistics to un-normalise with; add norm_stats to its "
            "config.json, or dataset_statistics.json beside it"
        )
    found = [key] if key in known else [k for k in known if key is None or k.startswith(key)]
    if not found:
        raise RequestError(
            f"no statistics have the key {key!r}; {exist}.{did_you_mean(str(key), known)} Set "
            "model.unnorm_key to one of them"
        )
    if len(found) > 1:
        what = "no key was given" if key is None else f"the key {key!r} matches {found}"
        raise RequestError(f"{what}, and {exist}; set model.unnorm_key to one of them")
    chosen = str(found[0])
    vector = datasets[chosen].get(of)
    if vector is None:
        raise RequestError(
            f"the statistics {chosen!r} have none of {of!r}, but of {sorted(datasets[chosen])}; "
            f"{exist}; set model.unnorm_key to one that has"
        )
    wanted = list(names)
    if absent := [name for name in wanted if name not in vector]:
        raise RequestError(
            f"the statistics {chosen!r} of {of!r} lack {absent}; they have {sorted(vector)}"
        )
    values = {name: tuple(float(x) for x in vector[name]) for name in wanted}
    lengths = {len(v) for v in values.values()}
    mask = tuple(bool(x) for x in vector.get("mask", [True] * max(lengths)))
    if len(lengths | {len(mask)}) != 1 or (width is not None and len(mask) != width):
        sizes = {**{name: len(v) for name, v in values.items()}, "mask": len(mask)}
        raise RequestError(
            f"the statistics {chosen!r} of {of!r} have widths {sizes}, wanted "
            f"{'one width' if width is None else width}; {exist}; set model.unnorm_key to those of "
            "this robot"
        )
    return Statistics(chosen, values, mask)
