"""What lies beside published weights: the horizon they were trained with, and statistics.

Imports no torch, so that what does not fit is refused when a run is planned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlinf_core.api import RequestError, Statistics, choose_statistics
from rlinf_plugin_pi0.config import Pi0Config

STATISTICS = "norm_stats.json"

NAMES = {"z-score": ("mean", "std"), "quantile": ("q01", "q99")}
"""The statistics that each normalisation reads."""

SIZES = {
    "horizon": ("action_horizon", "chunk_size"),
    "action_dim": ("action_dim", "max_action_dim"),
}
"""What an option is called in ``config.json``, by openpi and by LeRobot."""


def check_sizes(config: Pi0Config, chunk: int) -> None:
    """Refuse a chunk or a checkpoint of another length than was configured.

    Raises:
        RequestError: the run's chunk is longer than the horizon, the checkpoint is not there, or
            its own ``config.json`` states another horizon or width.
    """
    if chunk > config.horizon:
        raise RequestError(
            f"the run's chunk has {chunk} actions, but the model plans {config.horizon}; set "
            f"collect.chunk to at most {config.horizon}, or model.horizon to the checkpoint's"
        )
    if config.checkpoint is None:
        return
    folder = Path(config.checkpoint).expanduser()
    if not folder.is_dir():
        raise RequestError(
            f"there is no folder {folder}; set model.checkpoint to the folder of model.safetensors"
        )
    path = folder / "config.json"
    if not path.is_file():
        return
    stated = _read(path)
    for option, names in SIZES.items():
        for name in names:
            found, wanted = stated.get(name), getattr(config, option)
            if found is not None and found != wanted:
                raise RequestError(
                    f"{path} states {name}={found}, but model.{option} is {wanted}; set "
                    f"model.{option} to {found}, or choose another checkpoint"
                )


def statistics(config: Pi0Config, of: str, width: int) -> Statistics | None:
    """Return the statistics of ``state`` or ``actions``; None where none are configured.

    Raises:
        RequestError: none has the key, several do, or they are of another width; the text names
            the keys that exist.
    """
    if config.statistics is None:
        return None
    return choose_statistics(
        datasets(Path(config.statistics).expanduser()),
        config.unnorm_key or None,
        of=of,
        width=width,
        names=NAMES[config.normalization],
    )


def datasets(place: Path) -> Mapping[str, Any]:
    """Return statistics by asset: of one ``norm_stats.json``, or of all in a folder.

    The key is the file's folder: relative to ``place``, or its last name where it is ``place``.

    Raises:
        RequestError: there are none, or a file cannot be read.
    """
    files = sorted(place.rglob(STATISTICS)) if place.is_dir() else [place]
    if not files or not files[0].is_file():
        raise RequestError(f"there is no {STATISTICS} in {place}; set model.statistics to one")
    found: dict[str, Any] = {}
    for path in files:
        key = path.parent.name if path.parent in (place, place.parent) else _relative(path, place)
        content = _read(path).get("norm_stats")
        if not isinstance(content, dict):
            raise RequestError(f"{path} has no norm_stats; wanted statistics as openpi writes them")
        found[key] = content
    return found


def _relative(path: Path, place: Path) -> str:
    return path.parent.relative_to(place).as_posix()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"cannot read {path}: {error}; copy it again") from None
    if not isinstance(content, dict):
        raise RequestError(f"{path} holds a {type(content).__name__}; wanted a JSON object")
    return content
