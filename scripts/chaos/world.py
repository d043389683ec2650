"""A world of one number in processes of its own, as an installed plugin, and a run in it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

PLUGIN = """
from rlinf_core.api import Capability, ComponentSpec, hookimpl

@hookimpl
def rlinf_simulators():
    able = [Capability.STATE, Capability.SUCCESS, Capability.RESTORE]
    target = "rlinf_plugin_chaos.world:make"
    return [ComponentSpec("chaos", "A point on a line.", target, capabilities=able)]
"""
METADATA = """Metadata-Version: 2.1
Name: rlinf-plugin-chaos
Version: 1.0
Requires-Dist: rlinf-core>=0.1,<0.2
"""


def install(site: Path) -> None:
    """Lay out the plugin below a folder of ``PYTHONPATH``."""
    package, about = site / "rlinf_plugin_chaos", site / "rlinf_plugin_chaos-1.0.dist-info"
    for folder in (package, about):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text(PLUGIN)
    shutil.copy(__file__, package / "world.py")
    (about / "METADATA").write_text(METADATA)
    (about / "entry_points.txt").write_text("[rlinf.plugins]\nchaos = rlinf_plugin_chaos.plugin\n")


def run_file(runtime: str) -> dict[str, Any]:
    """Return a run that is quick, never ends, and survives what can be survived."""
    return {
        "run": "embodied",
        "name": "small",
        "steps": 1_000_000,
        "cluster": {
            "runtime": runtime,
            "devices": "2 x cpu",
            # making a policy imports much
            "deadlines": {
                "start": 60,
                "call": 6,
                "rollout": {"build": 60},
                "training": {"build": 60},
            },
            "restarts": {"simulation": 100_000, "rollout": 100_000},
        },
        "placement": {"simulation": "0-1:2", "rollout": "0-1:1", "training": "0-1:1"},
        "simulator": {"name": "chaos"},
        "model": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "ppo"},
        "training": {"name": "torch", "threads": 1},
        "loggers": ["jsonl"],
        "collect": {"envs": 4, "steps": 5, "stages": 1},
        "update": {"epochs": 2, "minibatch_size": 10},
        "checkpoint": {"every": 7},
        "evaluation": {"every": 11, "episodes": 3, "video": False},
    }


def make(config: Any, slots: Any) -> Any:
    """Make the simulator."""
    from gymnasium import spaces

    from rlinf_core.api import Spaces
    from rlinf_core.simulation import ProcessSimulator

    return ProcessSimulator(
        slots,
        Spaces(
            spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (2,), np.float32)}),
            spaces.Box(-1.0, 1.0, (1,), np.float32),
        ),
        "rlinf_plugin_chaos.world:Point",
        {},
        states={"train": 1000, "test": 10},
        processes=2,
        timeout=5.0,
    )


class Point:
    """A point that should come near 0 within seven steps."""

    def reset(self, state: Any) -> dict[str, Any]:
        self._position, self._count = (state.index % 17 - 8) / 8.0, 0
        return self._seen()

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, bool]:
        self._position += float(np.clip(action[0], -1, 1)) / 4
        self._count += 1
        near = abs(self._position) < 0.125
        return self._seen(), -abs(self._position), False, self._count >= 7, near

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position, self._count = state["position"], state["count"]

    def _seen(self) -> dict[str, Any]:
        return {"state": np.array([self._position, self._count], np.float32)}
