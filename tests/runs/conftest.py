"""Two small simulators as an installed plugin, for tests of whole runs."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

PLUGIN = """
from rlinf_core.api import Capability, ComponentSpec, hookimpl

ABLE = [Capability.STATE, Capability.ACTION_CHUNK, Capability.SUCCESS, Capability.RENDER]
PARTS = {
    "target": "rlinf_core.testing.toy:ToySimulator",
    "config": "rlinf_core.testing.toy:ToyConfig",
}

FRAGILE = {
    "target": "rlinf_plugin_toys.fragile:Simulator",
    "config": "rlinf_plugin_toys.fragile:SimulatorOptions",
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
        ComponentSpec("fragile", "A line.", capabilities=[*ABLE, Capability.RESTORE], **FRAGILE),
        ComponentSpec("fragile-forgetful", "A line.", capabilities=ABLE, **FRAGILE),
        ComponentSpec(
            "fragile-shared", "A line.", capabilities=[*ABLE, Capability.SHARED_STATES], **FRAGILE
        ),
    ]

@hookimpl
def rlinf_rollout_engines():
    config = "rlinf_plugin_toys.fragile:EngineOptions"
    return [ComponentSpec("fragile", "A.", "rlinf_plugin_toys.fragile:Engine", config=config)]

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
from rlinf_core.api import Config

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


FRAGILE = '''
import os
import signal
import time
from pathlib import Path

from rlinf_core.builtin.config import DirectConfig
from rlinf_core.builtin.direct import DirectEngine
from rlinf_core.testing import ToyConfig, ToySimulator


class SimulatorOptions(ToyConfig):
    at: int = -1
    """The step at which it fails, counted over all that it does; -1 never."""
    how: str = "raise"
    """What happens then."""
    marker: str = ""
    """A file that says that it has happened: it does so once."""


class EngineOptions(DirectConfig):
    at: int = -1
    """The act at which it fails; -1 never."""
    how: str = "raise"
    """What happens then."""
    marker: str = ""
    """A file that says that it has happened: it does so once."""


class Fragile:
    def __init__(self, config):
        self.options, self.done = config, 0

    def __call__(self):
        self.done += 1
        if self.done != self.options.at or Path(self.options.marker).exists():
            return
        Path(self.options.marker).write_text(str(os.getpid()))
        if self.options.how == "raise":
            raise ZeroDivisionError("as it was told")
        if self.options.how == "hang":
            return time.sleep(30)
        os.kill(os.getpid(), getattr(signal, self.options.how))
        time.sleep(30)


class Simulator(ToySimulator):
    def __init__(self, config, slots):
        super().__init__(config, slots)
        self.fragile = Fragile(config)

    def step(self, actions):
        if 0 in self.slots.ids:
            self.fragile()
        return super().step(actions)


class Engine(DirectEngine):
    def __init__(self, config, device):
        super().__init__(config, device)
        self.fragile = Fragile(config)

    def act(self, obs, draws, mode):
        self.fragile()
        return super().act(obs, draws, mode)
'''


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Install the simulators ``toy`` and ``toy-forgetful`` for this process and its children."""
    path = Path(__file__).parents[1] / "distributions" / "factory.py"
    spec = importlib.util.spec_from_file_location("factory", path)
    factory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(factory)
    site = tmp_path / "site"
    factory.Site(site).add(
        "rlinf-plugin-toys", PLUGIN, files={"code.py": LOGGER, "fragile.py": FRAGILE}
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    return site
