"""Which components a run uses: found by name, their options and their capabilities checked.

A rule about several components belongs to :meth:`Chooser.check_needs`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlinf_core.capability import Capability, Level
from rlinf_core.config.findings import Findings, check, options
from rlinf_core.config.origins import join
from rlinf_core.config.schema import Config
from rlinf_core.devices import parse_devices
from rlinf_core.errors import CapabilityError, PluginError, Problem, RequestError
from rlinf_core.plugins.resolve import Registry, describe, import_target, plugin_code, with_article
from rlinf_core.specs import Component, Facts, Kind

_SAYS = {
    Level.UNKNOWN: "does not declare it",
    Level.UNSUPPORTED: "declares that it will not work",
    Level.PLANNED: "declares it as planned, which is not yet",
}


class Chosen(NamedTuple):
    """A component that a run uses, and its checked options; None where it takes none."""

    component: Component
    config: Config | None


class Chooser:
    """Chooses the components of one run, in the order of facts.

    Args:
        registry: the components there are.
        findings: takes what is wrong.
        chunk: actions per chunk, which facts of a model may depend on.
    """

    def __init__(self, registry: Registry, findings: Findings, chunk: int) -> None:
        self.chosen: dict[str, Chosen] = {}
        self._paths: dict[str, str] = {}
        self._complete = True
        self.facts: dict[str, Facts] = {}
        self._registry, self._findings, self._chunk = registry, findings, chunk

    def choose(self, kind: Kind, section: Any, path: str) -> Chosen | None:
        """Return the component that a section names, with its options; None if any is wrong.

        Args:
            kind: the kind it must be of.
            section: the section in its long form.
            path: dotted path of the section.
        """
        if not isinstance(section, dict):
            self._findings.add(path, f"found {section!r}, {self.wanted(kind, path)}")
            return None
        try:
            component = self._component(kind, section.get("name"), f"{path}.name")
            return None if component is None else self._configured(component, section, path)
        except RequestError as error:
            self._findings.add_error(path, error)
            return None

    def section(self, kind: Kind, section: Any, path: str) -> None:
        """Choose the component of a section that has one, and work out its facts."""
        chosen = self.choose(kind, section, path)
        if chosen is None:
            self._complete = False
            return
        key = path.rpartition(".")[2]
        self.chosen[key], self._paths[key] = chosen, path
        if not self._complete:  # facts look at those before them, and one of those is missing
            return
        try:
            self.facts[key] = self._facts_of(chosen)
        except RequestError as error:
            self._complete = False
            self._findings.add_error(path, error)

    def lacking(self, kind: Kind, path: str) -> None:
        """Take note that a section is needed and not there."""
        self._complete = False
        self._findings.add(path, f"is missing; {self.wanted(kind, path)}")

    def devices(self, path: str, text: str) -> None:
        """Choose the kind of device that a text such as ``2 x cuda`` asks for."""
        wish = parse_devices(path, text)
        if isinstance(wish, Problem):
            self._findings.add_problem(wish)
        elif wish.kind:
            component = self._component(Kind.ACCELERATOR, wish.kind, path)
            if component is not None:
                self.chosen[path.removeprefix("cluster.")] = Chosen(component, None)

    def check_needs(self) -> None:
        """Check what components need of each other, and what the run itself needs of them."""
        for key, (component, _) in self.chosen.items():
            for kind, needed in component.spec.needs.items():
                for capability in sorted(needed):
                    who = f"{describe(component)} needs"
                    self._check_need(self._paths.get(key, key), who, kind, capability)
        if self._chunk > 1:
            who = f"collect.chunk={self._chunk} needs"
            for kind in (Kind.SIMULATOR, Kind.MODEL):
                self._check_need("collect.chunk", who, kind, Capability.ACTION_CHUNK)

    def check_conventions(self) -> None:
        """Check that the model gets what it expects: each conversion happens once, or not at all.

        The simulator says in its facts how it shows and takes things, the model what it expects.
        """
        ends = [self.facts.get(key, Facts()).conventions for key in ("simulator", "model")]
        given, expected = ends
        for name in sorted(given.keys() & expected.keys()):
            if given[name] != expected[name]:
                who, other = (describe(self.chosen[k].component) for k in ("model", "simulator"))
                self._findings.add(
                    f"{self._paths['model']}.name",
                    f"found {who}, which expects {name} {expected[name]!r}, and {other} gives "
                    f"{given[name]!r}, wanted both the same: options of one of them, or another "
                    "model",
                )

    def level(self, key: str, capability: Capability) -> Level:
        """Return how far a chosen component supports a capability, so configured."""
        declared = self.chosen[key].component.spec.capabilities.get(capability, Level.UNKNOWN)
        facts = self.facts.get(key)
        return facts.capabilities.get(capability, declared) if facts else declared

    def wanted(self, kind: Kind, path: str) -> str:
        """Return what belongs into a section, with an example."""
        names = [c.spec.name for c in self._registry.components(kind)]
        key = path.removesuffix(".name").rpartition(".")[2]
        example = f", such as {key}: {names[0]}" if names and not key.isdecimal() else ""
        wanted = (
            f"wanted the name of {with_article(kind)}, or a mapping with 'name' and its options"
        )
        return (
            f"{wanted}{example}. Installed: {', '.join(names) or 'none (see rlinf plugins list)'}"
        )

    def _component(self, kind: Kind, name: Any, path: str) -> Component | None:
        if not isinstance(name, str) or not name:
            self._findings.add(path, f"found {name!r}, {self.wanted(kind, path)}")
        if self._findings.about(path):
            return None
        try:
            return self._registry.component(kind, name)
        except RequestError as error:
            self._findings.add_error(path, error)
            return None

    def _configured(self, component: Component, section: Any, path: str) -> Chosen | None:
        given = {key: value for key, value in section.items() if key != "name"}
        model, who = config_class(component), describe(component)
        if model is None:
            for key in given:
                self._findings.add(join(path, key), f"no such option of {who}. {options(None)}")
            return None if given else Chosen(component, None)
        with plugin_code(f"checking the options of {who} failed"):
            config = check(model, given, path, who, self._findings)
        return None if config is None else Chosen(component, config)

    def _facts_of(self, chosen: Chosen) -> Facts:
        target = chosen.component.spec.facts
        if not target:
            return Facts()
        who = f"the facts of {describe(chosen.component)}"
        function = import_target(target, who)
        try:
            with plugin_code(f"{who}: {target} failed"):
                facts = function(chosen.config, {**self.facts, "chunk": self._chunk})
        except PluginError as error:
            if isinstance(error.__cause__, RequestError):  # meant for a person: no traceback
                raise error.__cause__ from None
            raise
        if not isinstance(facts, Facts):
            raise PluginError(f"{who}: {target} returned {facts!r}, wanted rlinf_core.api.Facts")
        return facts

    def _check_need(self, path: str, who: str, kind: Kind, capability: Capability) -> None:
        for key, (other, _) in self.chosen.items():
            level = self.level(key, capability)
            untold = bool(other.spec.facts) and key not in self.facts
            if other.kind is not kind or level is Level.FULL or untold:
                continue
            able = [
                c.spec.name
                for c in self._registry.components(kind)
                if c.spec.capabilities.get(capability) is Level.FULL
            ]
            self._findings.add_error(
                path,
                CapabilityError(
                    f"{who} {str(capability)!r} of the {kind}, and {describe(other)} "
                    f"{_SAYS[level]}. Installed with it: {', '.join(able) or 'none'}"
                ),
            )


def config_class(component: Component) -> type[Config] | None:
    """Return the class of a component's options, or None where it takes none.

    Raises:
        PluginError: it cannot be imported, or is no subclass of ``Config``.
    """
    target = component.spec.config
    if not target:
        return None
    who = f"the options of {describe(component)}"
    model = import_target(target, who)
    if not (isinstance(model, type) and issubclass(model, Config)):
        raise PluginError(f"{who}: {target} is {model!r}, wanted a subclass of api.Config")
    return model
