"""A plugin with an accelerator whose memory is known, and components that state what they keep."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rlinf_core.config.validate import Run, load_run

PLUGIN = """
from rlinf_core.api import Capability, ComponentSpec, hookimpl

TOY = {"config": "rlinf_core.testing.toy:ToyConfig"}
WORLD = "rlinf_core.testing.toy:ToySimulator"
POLICY = "rlinf_core.testing.toy:ToyPolicy"
CODE = "rlinf_plugin_flow.code"
ABLE = [Capability.STATE, Capability.SUCCESS]

@hookimpl
def rlinf_simulators():
    return [
        ComponentSpec("world", "A.", WORLD, facts=f"{CODE}:world", capabilities=ABLE, **TOY),
        ComponentSpec("nimble", "A.", WORLD, facts=f"{CODE}:world",
                      capabilities=[*ABLE, Capability.OFFLOAD], **TOY),
        ComponentSpec("silent", "A.", WORLD, capabilities=ABLE, **TOY),
        ComponentSpec("upside", "A.", WORLD, facts=f"{CODE}:upside", capabilities=ABLE, **TOY),
    ]

@hookimpl
def rlinf_models():
    able = [Capability.STATE, Capability.VALUE, Capability.LOGPROB]
    return [
        ComponentSpec("light", "A.", POLICY, facts=f"{CODE}:light", capabilities=able),
        ComponentSpec("heavy", "A.", POLICY, facts=f"{CODE}:heavy", capabilities=able),
        ComponentSpec("vast", "A.", POLICY, facts=f"{CODE}:vast", capabilities=able),
    ]

@hookimpl
def rlinf_training_backends():
    return [ComponentSpec("solo", "A.", f"{CODE}:Tiny")]

@hookimpl
def rlinf_accelerators():
    return [ComponentSpec("tiny", "Three of 10 MB.", f"{CODE}:Tiny")]

@hookimpl
def rlinf_runtimes():
    return [ComponentSpec("apart", "A.", "rlinf_core.runtime.inline:InlineRuntime",
                          capabilities=[Capability.PROCESSES])]
"""

CODE = """
import numpy as np
from gymnasium import spaces
from rlinf_core.api import Facts, Spaces

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
SPACES = Spaces(spaces.Dict({"state": BOX}), BOX)

class Tiny:
    torch_name, visibility_variable, collective, handles = "tiny", "", "ring", True
    def count(self): return 3
    def memory(self, index): return 10_000_000

def world(config, upstream):
    return Facts(bytes=500_000, spaces=SPACES, conventions={"image_rotation": "180"})

def upside(config, upstream):
    return Facts(bytes=0, spaces=SPACES, conventions={"image_rotation": "0"})

def light(config, upstream):
    return Facts(parameters=100, bytes=400, act_bytes=12)

def heavy(config, upstream):
    return Facts(parameters=500_000, bytes=2_000_000, act_bytes=12,
                 conventions={"image_rotation": "180", "gripper": "open"})

def vast(config, upstream):
    return Facts(parameters=5_000_000, bytes=20_000_000, act_bytes=12)
"""

RUN = {
    "name": "flow",
    "simulator": "world",
    "model": "light",
    "algorithm": "ppo",
    "training": {"name": "torch", "threads": 1},
    "collect": {"envs": 8, "steps": 5},
    "update": {"minibatch_size": 20, "microbatch_size": 8, "epochs": 3},
    "evaluation": {"episodes": 4, "video": False},
    "cluster": {"devices": "3 x cpu"},
}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Return a function that loads a run with some sections changed."""
    path = Path(__file__).parents[1] / "distributions" / "factory.py"
    spec = importlib.util.spec_from_file_location("factory", path)
    factory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(factory)
    factory.Site(tmp_path / "site").add("rlinf-plugin-flow", PLUGIN, files={"code.py": CODE})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)

    def load(*overrides: str, **changes: object) -> Run:
        Path("flow.yaml").write_text(yaml.safe_dump(RUN | changes, sort_keys=False))
        return load_run("flow.yaml", overrides)

    yield load
    for name in [name for name in sys.modules if name.startswith("rlinf_plugin_flow")]:
        del sys.modules[name]
