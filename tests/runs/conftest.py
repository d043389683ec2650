"""Two small simulators as an installed plugin, for tests of whole runs."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

PLUGIN = """
from rlinf_core.api import Capability, ComponentSpec, hookimpl

ABLE = [Capability.STATE, Capability.ACTION_CHUNK, Capability.SUCCESS, Capability.RENDER]
PARTS = {
    "target": "rlinf_core.testing.toy:ToySimulator",
    "config": "rlinf_core.testing.toy:ToyConfig",
}

@hookimpl
def rlinf_simulators():
    return [
        ComponentSpec("toy", "A line.", capabilities=[*ABLE, Capability.RESTORE], **PARTS),
        ComponentSpec("toy-forgetful", "A line.", capabilities=ABLE, **PARTS),
        ComponentSpec(
            "toy-shared",
            "A line.",
            capabilities=[*ABLE, Capability.SHARED_STATES, Capability.RESTORE],
            **PARTS,
        ),
        ComponentSpec("toy-silent", "A line.", capabilities=["state"], **PARTS),
        ComponentSpec(
            "toy-slow",
            "A line.",
            "rlinf_plugin_toys.code:Slow",
            config=PARTS["config"],
            capabilities=ABLE,
        ),
    ]

@hookimpl
def rlinf_models():
    able = [Capability.STATE, Capability.ACTION_CHUNK, Capability.VALUE, Capability.LOGPROB]
    return [ComponentSpec("toy", "A.", "rlinf_core.testing.toy:ToyPolicy", capabilities=able)]

@hookimpl
def rlinf_training_backends():
    config = "rlinf_plugin_torch.config:TorchConfig"
    return [ComponentSpec("solo", "A.", "rlinf_plugin_torch.backend:TorchBackend", config=config)]

@hookimpl
def rlinf_loggers():
    code = "rlinf_plugin_toys.code"
    return [ComponentSpec("brittle", "Fails.", f"{code}:Brittle", config=f"{code}:Options")]

@hookimpl
def rlinf_run_started(run):
    print("toys: started", run.config.name)

@hookimpl
def rlinf_run_finished(run, outcome):
    raise RuntimeError(f"toys: {outcome}")
"""


LOGGER = '''
import time

from rlinf_core.api import Config
from rlinf_core.testing.toy import ToySimulator

class Slow(ToySimulator):
    def step(self, actions):
        time.sleep(0.010)
        return super().step(actions)

class Options(Config):
    at: int
    """The step at which it fails; 0 is its start."""

class Brittle:
    def __init__(self, config, info):
        self.at = config.at
        self.log(0, {})

    def log(self, step, metrics):
        if step == self.at:
            raise OSError("no service")

    def message(self, text): pass
    def artifact(self, step, name, path): pass
    def close(self, outcome): pass
'''


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Install the simulators ``toy`` and ``toy-forgetful`` for this process and its children."""
    path = Path(__file__).parents[1] / "distributions" / "factory.py"
    spec = importlib.util.spec_from_file_location("factory", path)
    factory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(factory)
    site = tmp_path / "site"
    factory.Site(site).add("rlinf-plugin-toys", PLUGIN, files={"code.py": LOGGER})
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    return site
