"""A small world of plugins, and folders of run files, for the tests of configuration."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlinf_core.config.validate import Run, load_run
from rlinf_core.errors import RequestError

FACTORY = Path(__file__).parents[1] / "distributions" / "factory.py"

PLUGIN = """
from rlinf_core.api import Capability, ComponentSpec, Kind, Level, hookimpl

@hookimpl
def rlinf_simulators():
    return [
        ComponentSpec("zoo-world", "x", "zoo:World", config="rlinf_plugin_zoo.config:WorldConfig",
                      facts="rlinf_plugin_zoo.facts:world",
                      capabilities={Capability.STATE}),
        ComponentSpec("zoo-chunky", "x", "zoo:World", capabilities={Capability.ACTION_CHUNK}),
    ]

@hookimpl
def rlinf_models():
    return [
        ComponentSpec("zoo-critic", "x", "zoo:Critic", config="rlinf_plugin_zoo.config:ModelConfig",
                      facts="rlinf_plugin_zoo.facts:model",
                      capabilities={Capability.VALUE, Capability.ACTION_CHUNK}),
        ComponentSpec("zoo-actor", "x", "zoo:Actor"),
        ComponentSpec("zoo-claims", "x", "zoo:Actor", facts="rlinf_plugin_zoo.facts:claims"),
        ComponentSpec("zoo-soon", "x", "zoo:Actor", capabilities={Capability.VALUE: Level.PLANNED}),
    ]

@hookimpl
def rlinf_algorithms():
    return [
        ComponentSpec("zoo-a2c", "x", "zoo:A2C", config="rlinf_plugin_zoo.config:A2CConfig",
                      needs={Kind.MODEL: {Capability.VALUE}}),
        ComponentSpec("zoo-plain", "x", "zoo:Plain"),
    ]

@hookimpl
def rlinf_training_backends():
    return [ComponentSpec("zoo-sgd", "x", "zoo:SGD", config="rlinf_plugin_zoo.config:SGDConfig")]

@hookimpl
def rlinf_loggers():
    return [ComponentSpec("zoo-log", "x", "zoo:Log", config="rlinf_plugin_zoo.config:LogConfig")]

@hookimpl
def rlinf_configs():
    return ["rlinf_plugin_zoo.configs"]
"""

CONFIG = '''
import enum
from pathlib import Path
from typing import Annotated, Any, Literal
from pydantic import Field, field_validator
from rlinf_core.api import Config

class WorldConfig(Config):
    """A world."""
    horizon: int = Field(default=10, ge=1)
    """Steps."""
    size: float = Field(default=1.0, allow_inf_nan=True)
    """Size."""
    secret: str = ""
    """Secret."""
    crash: bool = False
    """Whether the facts fail."""
    value: bool | None = None
    """A level of the model's capability VALUE to claim."""

    any: Any = None
    """Anything."""
    breaks: int = 0
    """Whose check fails with anything but 0."""

    @field_validator("breaks")
    @classmethod
    def _break(cls, number: int) -> int:
        if number:
            raise type("Stop", (KeyboardInterrupt,), {})("zoo")
        return number

class Precision(enum.Enum):
    LOW = "low"
    HIGH = "high"

class ModelConfig(Config):
    """A model."""
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (8, 8)
    """Widths."""
    precision: Precision = Precision.LOW
    """Precision."""
    weights: Path | None = None
    """Where weights lie."""
    critic: bool = True
    """Whether there is a critic."""

class A2CConfig(Config):
    """An algorithm."""
    clip_ratio: float = Field(default=0.2, gt=0, lt=1)
    """Clip."""
    gamma: float = 0.99
    """Discount."""
    level: Literal["token", "chunk"] = "chunk"
    """Level."""

    @field_validator("gamma")
    @classmethod
    def _sensible(cls, gamma: float) -> float:
        if gamma == 0.5:
            raise ValueError("gamma 0.5 is of no use; try 0.9")
        return gamma

class Schedule(Config):
    """A schedule."""
    kind: Literal["constant", "linear"] = "constant"
    """Kind."""
    iterations: int | None = None
    """Iterations."""

class Group(Config):
    """Parameters."""
    match: str
    """Which."""

class SGDConfig(Config):
    """A backend."""
    learning_rate: float = 0.1
    """Rate."""
    schedule: Schedule = Schedule()
    """Schedule."""
    groups: tuple[Group, ...] = ()
    """Groups."""
    threads: int | Literal["auto", "all"] = "auto"
    """Threads."""

class LogConfig(Config):
    """A logger."""
    every: int = 1
    """Steps."""
'''

FACTS = """
from rlinf_core.api import Capability, Facts, Level

def world(config, upstream):
    if config.crash:
        raise ZeroDivisionError("no such size")
    return Facts(parameters=0, conventions={"horizon": str(config.horizon)})

def claims(config, upstream):
    return Facts(capabilities={Capability.VALUE: Level.FULL})

def model(config, upstream):
    horizon = int(upstream["simulator"].conventions["horizon"])
    level = Level.FULL if config.critic else Level.UNSUPPORTED
    return Facts(parameters=horizon * upstream["chunk"], capabilities={Capability.VALUE: level})
"""

RUN = """
simulator: zoo-world
model: zoo-critic
algorithm: zoo-a2c
training: zoo-sgd
"""


@pytest.fixture(autouse=True)
def _no_user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("RLINF_CONFIG", raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Return a folder of distributions that this process finds first."""
    spec = importlib.util.spec_from_file_location("factory", FACTORY)
    assert spec is not None
    assert spec.loader is not None
    factory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(factory)
    site = factory.Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    yield site
    for name in [name for name in sys.modules if name.startswith("rlinf_plugin_zoo")]:
        del sys.modules[name]


@pytest.fixture
def zoo(site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install one plugin with components of every kind that a run needs; go to an empty folder."""
    files = {"config.py": CONFIG, "facts.py": FACTS, "configs/zoo_run.yaml": RUN}
    site.add("rlinf-plugin-zoo", PLUGIN, files=files)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return site


@pytest.fixture
def write(zoo) -> Callable[..., None]:
    """Return a function that writes files into the current folder."""

    def write(**texts: str) -> None:
        for name, text in texts.items():
            path = Path(f"{name.replace('__', '/')}.yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")

    return write


@pytest.fixture
def load(zoo) -> Callable[..., Run]:
    """Return a function that loads ``run.yaml``, or another run, with overrides."""

    def load(*overrides: str, run: str = "run.yaml", sections: set[str] | None = None) -> Run:
        return load_run(run, list(overrides), sections=sections)

    return load


@pytest.fixture
def refuse(load) -> Callable[..., list[str]]:
    """Return a function that loads a run that must be refused, and returns the lines of why."""

    def refuse(*overrides: str, **options) -> list[str]:
        with pytest.raises(RequestError) as caught:
            load(*overrides, **options)
        assert caught.value.exit_code == 2
        return str(caught.value).splitlines()

    return refuse
