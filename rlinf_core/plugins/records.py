"""What became of each distribution that offers a plugin: plain data for lists and errors.

Add a :class:`Status` or a :class:`Phase` here when loading can end in a new way.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from rlinf_core.specs import Component

CORE = "rlinf-core"
"""Canonical name of the core's own distribution."""

PREFIX = "rlinf-plugin-"
"""How distributions of plugins are named; what follows is most often a component's name."""


class Status(enum.StrEnum):
    """How loading a distribution ended."""

    OK = "ok"
    """Its components can be used."""
    DISABLED = "disabled"
    """A configuration says not to load it; it was not imported."""
    INCOMPATIBLE = "incompatible"
    """It is made for other versions of the core."""
    BROKEN = "broken"
    """It could not be loaded."""
    SHADOWED = "shadowed"
    """Another copy of the same distribution is loaded instead."""


class Phase(enum.StrEnum):
    """The steps of loading, in order; a record names the one that ended it."""

    METADATA = "metadata"
    POLICY = "policy"
    VERSION = "version"
    IMPORT = "import"
    API = "api"
    HOOKS = "hooks"
    SPECS = "specs"


@dataclass(frozen=True)
class PluginRecord:
    """One distribution that offers a plugin, and what became of it.

    Args:
        distribution: canonical name, such as ``rlinf-plugin-ppo``.
        version: version in its metadata; empty where that cannot be read.
        status: how loading ended.
        origin: where its metadata lies.
        module: what its entry point names.
        entry_point: name of its entry point, often that of a component.
        phase: the step that ended it; None where the status is OK.
        error: what was found, what was wanted, what to do; empty where the status is OK.
        traceback: the original traceback, formatted; empty where nothing was raised.
        exception: what was raised, to chain further errors from.
        components: what it provides; where it broke late, what it had named before.
        configs: packages of run files and groups that it ships.
    """

    distribution: str
    version: str
    status: Status
    origin: str
    module: str = ""
    entry_point: str = ""
    phase: Phase | None = None
    error: str = ""
    traceback: str = ""
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    components: tuple[Component, ...] = ()
    configs: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether its components can be used."""
        return self.status is Status.OK

    @property
    def sentence(self) -> str:
        """One line: who, what became of it, why."""
        text = f"{self.distribution} {self.version}".rstrip()
        return f"{text} is {self.status}" + (f": {self.error}" if self.error else "")

    def may_provide(self, name: str) -> bool:
        """Return whether its own names suggest that it would provide a component ``name``.

        Of a distribution that was not imported nobody knows the components, only its name and its
        entry point's.
        """
        return name in (self.entry_point, self.distribution, self.distribution.removeprefix(PREFIX))
