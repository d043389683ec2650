"""Options of the runtime ``ray``. A new option goes here, with its help below it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from rlinf_core.api import Config

Name = Annotated[str, Field(min_length=1, max_length=100)]
Path = Annotated[str, Field(min_length=1, max_length=4_096)]

_ADDRESS = re.compile(r"auto|local|[A-Za-z0-9_.-]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}")


class RayConfig(Config):
    """Which Ray a run uses, and how."""

    address: str | None = Field(default=None, max_length=1_000)
    """HOST:PORT of a cluster, "auto" for the one that runs on this machine, "local" for one that is
    started here and ends with the run. null takes the cluster that RAY_ADDRESS names or that ``ray
    start`` started here, else it is as "local"."""

    object_store_memory: int = Field(default=512 * 2**20, ge=80 * 2**20, le=2**46)
    """Bytes of shared memory for items, in a cluster that is started for the run. What does not fit
    is put on disk."""

    log_to_driver: bool = False
    """Whether to show what workers print while they run. Its end comes with an error anyway."""

    patience: float = Field(default=60.0, ge=0.0, le=1e6)
    """Seconds to wait until the devices that a run needs are free, where others have them."""

    interpreters: dict[Name, Path] = Field(default_factory=dict)
    """Label of a node group to the Python that its workers run, a path on its machines; by default
    the one that its machines' Ray runs."""

    resources: dict[Name, Name] = Field(default_factory=dict)
    """Kind of device to what Ray calls it, such as ``{ascend: NPU}``. Slots of a processor are CPU,
    and all other kinds GPU, where this does not say otherwise."""

    @field_validator("address")
    @classmethod
    def _can_be_reached(cls, address: str | None) -> str | None:
        if address is not None and address.startswith("ray://"):
            raise ValueError(
                f"{address} is Ray's client, whose workers cannot be watched; start the run on a "
                "machine of the cluster, with its HOST:PORT or 'auto'"
            )
        if address is not None and not _ADDRESS.fullmatch(address):
            raise ValueError(f"found {address!r}; wanted 'auto', 'local' or HOST:PORT")
        return address
