"""What a run's code may assume of its workers, without importing them.

Which channels each method reads and writes, and what it returns on a dry pass where the run looks
at it. Change it with the worker: a test compares it with the classes, and with who really puts and
gets what in a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rlinf_core.config.validate import Run
from rlinf_core.data.outcomes import Episode
from rlinf_core.flow.sizes import Size
from rlinf_core.flow.trace import Interface, Method
from rlinf_core.flow.transfers import Scale, Traffic
from rlinf_core.specs import Facts

_EPISODE = Episode(0, "dry/0", 1, 0.0, False, False)

_DEVICES = {"offload": Method(), "onload": Method()}

_WEIGHTS = {
    "open_weights": Method(("channel", "source", "target"), keeps=("channel",)),
}


def _simulation(run: Run) -> Interface:
    return {
        **_DEVICES,
        "spaces": Method(result=run.facts.get("simulator", Facts()).spaces),
        "count_states": Method(("split",), result=math.inf),  # known once a simulator is there
        "collect": Method(
            ("steps", "observations", "actions"), ("actions",), ("observations",), result=[]
        ),
        "evaluate": Method(
            ("split", "episodes", "observations", "actions", "frames"),
            ("actions",),
            ("observations",),
            result=([_EPISODE], None, ""),
        ),
        "restart": Method(result=False),
        "counters": Method(result={}),
        "set_counters": Method(("counters",)),
        "remember": Method(("whole",), result=[]),
        "go_back": Method(("remembered", "skip")),
        "save": Method(("folder",)),
        "load": Method(("folder",), result=True),
        "close": Method(),
    }


def _rollout(run: Run) -> Interface:
    return {
        "build": Method(("spaces",)),
        **_DEVICES,
        **_WEIGHTS,
        "receive_weights": Method(reads=("channel",)),
        "load_weights": Method(("folder", "version")),
        "serve": Method(
            ("first_step", "steps", "keys", "observations", "actions", "trajectories", "owned"),
            ("observations",),
            ("actions", "trajectories"),
        ),
        "answer": Method(("keys", "observations", "actions"), ("observations",), ("actions",)),
        "close": Method(),
    }


def _training(run: Run) -> Interface:
    return {
        "build": Method(("spaces",)),
        **_DEVICES,
        **_WEIGHTS,
        "join": Method(("gradients",), keeps=("gradients",)),
        "gather": Method(("sources", "owned", "trajectories"), ("trajectories",)),
        "update": Method(
            ("iteration", "sources", "owned", "trajectories"),
            ("trajectories", "gradients"),
            ("gradients",),
            result={"executed_steps": 0.0, "time/update_s": 0.0},
        ),
        "send_weights": Method(writes=("channel",)),
        "save": Method(("folder",), result=0),
        "load": Method(("folder",)),
        "close": Method(),
    }


_MAKERS = MappingProxyType(
    {
        "rlinf_core.runs.workers.simulation:SimulationWorker": _simulation,
        "rlinf_core.runs.workers.rollout:RolloutWorker": _rollout,
        "rlinf_core.runs.workers.training:TrainingWorker": _training,
    }
)
"""Target of a worker to what makes its interface."""


def interfaces(run: Run) -> Mapping[str, Interface]:
    """Return the interface of each worker of a run, by target."""
    return {target: make(run) for target, make in _MAKERS.items()}


# --- what goes through the channels ---------------------------------------------------------------

_IDS = 8  # an environment's id, a step's number, a version: int64
_NEXT_VALUE = 4
_OUTCOME = 4 + 4 * 1  # reward in float32; terminated, truncated, success, valid


def _observations(scale: Scale) -> Traffic:
    rows = scale.envs // scale.streams
    first = scale.observation + Size(_IDS)
    later = first + Size(_OUTCOME * scale.chunk)
    total = (first + later * scale.steps) * scale.envs
    note = "and the final observations of episodes that are truncated"
    return Traffic(scale.streams * (scale.steps + 1), later * rows, total, note=note)


def _actions(scale: Scale) -> Traffic:
    row = scale.action * scale.chunk
    rows = scale.envs // scale.streams
    return Traffic(scale.streams * scale.steps, row * rows, row * scale.envs * scale.steps)


def _trajectories(scale: Scale) -> Traffic:
    row = scale.observation + scale.act
    row += Size(3 * _IDS + _OUTCOME * scale.chunk + _NEXT_VALUE * scale.values)
    rows = scale.envs // scale.streams * scale.steps
    return Traffic(scale.streams, row * rows, row * scale.envs * scale.steps)


def _weights(scale: Scale) -> Traffic:
    return Traffic(scale.receivers, scale.weights, scale.weights * scale.receivers, resident=True)


def _gradients(scale: Scale) -> Traffic:
    others = 2 * (scale.receivers - 1)  # to rank 0, and back
    items, note = scale.optimizer_steps * others, "and a few sums of counts and metrics"
    return Traffic(items, scale.weights, scale.weights * items, resident=True, note=note)


CONTENTS: Mapping[str, Callable[[Scale], Traffic]] = MappingProxyType(
    {
        "observations": _observations,
        "actions": _actions,
        "trajectories": _trajectories,
        "channel": _weights,
        "gradients": _gradients,
    }
)
"""Channel, by the name of the writer's parameter, to what goes through it in one iteration."""
