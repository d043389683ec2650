"""Zygotes that simulators share: training, evaluation and pipeline stages import once for all.

The last simulator to give one back ends it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf_core.runtime.zygote import Zygote

_lock = threading.Lock()
_shared: dict[Any, tuple[Zygote, int]] = {}


def borrow(imports: Sequence[str], variables: Mapping[str, str]) -> Zygote:
    """Return a running zygote with these imports and variables, new or shared."""
    # A zygote keeps the environment and path it began with, so these are part of what it is.
    key = (tuple(imports), *map(frozenset, (variables.items(), os.environ.items(), sys.path)))
    with _lock:
        zygote, users = _shared.get(key, (None, 0))
        if zygote is None or zygote.deaf or not zygote.alive:
            zygote, users = Zygote(imports, variables), 0
        _shared[key] = (zygote, users + 1)
        return zygote


def give_back(zygote: Zygote) -> None:
    """End the zygote unless another simulator has it too."""
    with _lock:
        for key, (shared, users) in _shared.items():
            if shared is zygote and users > 1:
                _shared[key] = (zygote, users - 1)
                return
            if shared is zygote:
                del _shared[key]
                break
    zygote.close()
