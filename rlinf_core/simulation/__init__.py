"""Simulators: what stands between a simulator library and the ``Simulator`` protocol.

``environment``  the contract of one environment that lives in a child process, and the child's loop
``processes``    :class:`ProcessSimulator`: N environments over P processes
``layout``       what lies where in the memory that both share
``memory``       that memory, which has no name: arrays that driver and children both see
``zygotes``      the processes that children are forked from, shared by simulators
``vector``       :func:`from_vector_env`: a Gymnasium vector environment as a simulator
``mapping``      how Gymnasium's spaces become ours
``states``       virtual sequences of initial states, and the seed that belongs to each

Importing this package imports no torch, since children import ``environment``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf_core.simulation.environment import Environment
    from rlinf_core.simulation.processes import ProcessSimulator
    from rlinf_core.simulation.states import StateRange, state_seed
    from rlinf_core.simulation.vector import VectorSimulator, from_vector_env

_HOME = {
    "Environment": "environment",
    "ProcessSimulator": "processes",
    "StateRange": "states",
    "VectorSimulator": "vector",
    "from_vector_env": "vector",
    "state_seed": "states",
}

__all__ = [
    "Environment",
    "ProcessSimulator",
    "StateRange",
    "VectorSimulator",
    "from_vector_env",
    "state_seed",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
