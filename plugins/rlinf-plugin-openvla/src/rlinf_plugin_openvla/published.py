"""The files of a published checkpoint beside its weights. Imports no torch.

config.json                architecture, and statistics of the datasets (``norm_stats``)
preprocessor_config.json   the two normalisations of an image
dataset_statistics.json    statistics of a fine-tuned checkpoint, which go before those above
tokenizer.json             the tokenizer
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rlinf_core.api import (
    CheckpointError,
    RequestError,
    Spaces,
    Statistics,
    choose_statistics,
    did_you_mean,
)
from rlinf_plugin_openvla.architecture import Architecture


class Published:
    """A checkpoint's folder.

    Args:
        folder: as the run file gives it.

    Raises:
        CheckpointError: it has no readable ``config.json``, or one of another network.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.config = self._json("config.json")
        self.architecture = Architecture.of(self.config)

    @cached_property
    def normalizations(self) -> tuple[list[list[float]], list[list[float]]]:
        """Means and deviations, one triple for each tower.

        Raises:
            CheckpointError: the file is missing or says nothing of them.
        """
        found = self._json("preprocessor_config.json").get("tvf_normalize_params", [])
        if len(found) != len(self.architecture.towers):
            raise CheckpointError(
                f"{self.folder}/preprocessor_config.json has {len(found)} tvf_normalize_params; "
                f"wanted {len(self.architecture.towers)}, one for each vision tower"
            )
        return [part["mean"] for part in found], [part["std"] for part in found]

    @cached_property
    def datasets(self) -> Mapping[str, Any]:
        """Statistics by dataset."""
        more: Mapping[str, Any] = {}
        if (self.folder / "dataset_statistics.json").exists():
            more = self._json("dataset_statistics.json")
        return {**(self.config.get("norm_stats") or {}), **more}

    def actions(self, key: str | None, width: int | None) -> Statistics:
        """Return the statistics that un-normalise actions.

        Raises:
            RequestError: there are none, several or those of another robot; see
                :func:`rlinf_core.api.choose_statistics`.
        """
        return choose_statistics(self.datasets, key, width=width)

    def require_chunk(self, option: int | None, default: int | None, chunk: int) -> None:
        """Refuse a run whose chunks are not those that the checkpoint was trained for.

        Args:
            option: ``model.trained_chunk``.
            default: what holds where nobody says; None where it must be said.
            chunk: the run's.

        Raises:
            RequestError: gives both numbers.
        """
        stated = self.config.get("num_action_chunks")
        if None not in (option, stated) and option != stated:
            raise RequestError(
                f"model.trained_chunk is {option}, but the checkpoint's config.json says "
                f"num_action_chunks {stated}; leave model.trained_chunk out"
            )
        trained = option or stated or default
        if trained is None:
            raise RequestError(
                f"{self.folder}/config.json does not say how many actions a chunk has; set "
                "model.trained_chunk to what the checkpoint was trained for (8 for LIBERO)"
            )
        if trained != chunk:
            raise RequestError(
                f"the checkpoint was trained for chunks of {trained} actions, and the run has "
                f"chunks of {chunk}; set collect.chunk={trained}, or take another checkpoint"
            )

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"cannot read {path}: {error}; model.checkpoint is the folder of a published "
                "checkpoint"
            ) from None
        if not isinstance(content, dict):
            raise CheckpointError(f"{path} holds a {type(content).__name__}; wanted an object")
        return content


def choose_cameras(wanted: Sequence[str], spaces: Spaces) -> tuple[str, ...]:
    """Return the cameras that a model sees, in its order.

    Args:
        wanted: ``model.cameras``; empty means the only one there is.
        spaces: of the simulator.

    Raises:
        RequestError: one is not there, or none was chosen and there is none or several.
    """
    there = list(getattr(spaces.observation.spaces.get("images"), "spaces", {}))
    if not wanted and len(there) == 1:
        return tuple(there)
    absent = [name for name in wanted if name not in there]
    if absent or not wanted:
        hint = did_you_mean(absent[0], there) if absent else ""
        raise RequestError(
            f"model.cameras is {list(wanted)}, and the simulator shows images of {sorted(there)}; "
            f"set model.cameras to those that the checkpoint was trained with.{hint}"
        )
    return tuple(wanted)
