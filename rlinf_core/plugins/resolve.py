"""From names to components, from components to code, and from a driver to its workers.

Selecting something that cannot be used always raises, with the original traceback where there is
one; nothing is ever replaced by something else.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.utils import canonicalize_name

from rlinf_core.errors import (
    AmbiguousComponentError,
    PluginError,
    UnknownComponentError,
    did_you_mean,
)
from rlinf_core.plugins.discovery import installed_version
from rlinf_core.plugins.records import PREFIX, PluginRecord, Status
from rlinf_core.plugins.settings import PluginSettings
from rlinf_core.plugins.tracebacks import own_traceback
from rlinf_core.specs import Component, ComponentRef, Kind

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
"""What a distribution may be named."""


class Registry:
    """Every component that can be used, and why others cannot.

    Args:
        records: what became of each distribution.
        settings: whom to prefer where two provide one name.
    """

    def __init__(
        self, records: Iterable[PluginRecord], settings: PluginSettings | None = None
    ) -> None:
        self.records = tuple(records)
        self.settings = settings or PluginSettings()

    def components(self, kind: Kind | None = None) -> tuple[Component, ...]:
        """Return the usable components, of one kind or of all, by kind and name."""
        usable = (c for record in self.records if record.ok for c in record.components)
        chosen = (c for c in usable if kind is None or c.kind is kind)
        kinds = list(Kind)
        return tuple(
            sorted(chosen, key=lambda c: (kinds.index(c.kind), c.spec.name, c.distribution))
        )

    def quarantined(self) -> tuple[PluginRecord, ...]:
        """Return the records of distributions none of whose components can be used."""
        return tuple(r for r in self.records if not r.ok and r.status is not Status.SHADOWED)

    def component(self, kind: Kind, name: str) -> Component:
        """Return the component that ``[distribution/]name`` names.

        Raises:
            UnknownComponentError: nobody provides it; close matches and suspects are named.
            AmbiguousComponentError: several provide it and nothing says whom to prefer.
            PluginError: its plugin is broken, incompatible or disabled; raised from what the
                plugin raised, with the plugin's own traceback in the text.
        """
        given, _, bare = name.rpartition("/")
        because = ""
        if "/" in name and not names_distribution(given):
            raise self._unknown(kind, "", name, because)
        if not given:
            given, origin = self.settings.preferred(kind, bare)
            because = f" (plugins.prefer of {origin})" if given else ""
        distribution = str(canonicalize_name(given)) if given else ""
        named = [c for c in self.components(kind) if c.spec.name == bare]
        matches = [c for c in named if distribution in ("", c.distribution)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise _ambiguous(kind, bare, matches)
        if suspects := self._suspects(kind, distribution, bare):
            raise _unusable(kind, bare, suspects) from suspects[0].exception
        raise self._unknown(kind, distribution, bare, because)

    def _suspects(self, kind: Kind, distribution: str, name: str) -> list[PluginRecord]:
        """Return quarantined distributions that would have provided a component."""
        out = self.quarantined()
        if distribution:
            return [record for record in out if record.distribution == distribution]
        known = [
            r for r in out if any(c.kind is kind and c.spec.name == name for c in r.components)
        ]
        return known or [record for record in out if record.may_provide(name)]

    def _unknown(
        self, kind: Kind, distribution: str, name: str, because: str
    ) -> UnknownComponentError:
        there = self.components(kind)
        near = did_you_mean(name.lower(), {c.spec.name for c in there})
        who = f"no plugin provides {with_article(kind)}"
        if distribution:
            near = did_you_mean(f"{distribution}/{name}", {c.qualified_name for c in there})
            who = f"{distribution}{because} provides no {kind}"
        text = (
            f"{who} named {name!r}.{near} "
            f"Installed: {', '.join(c.qualified_name for c in there) or 'none of this kind'}."
        )
        wanted = distribution or (PREFIX + canonicalize_name(name) if _NAME.fullmatch(name) else "")
        if (
            not near
            and names_distribution(wanted)
            and wanted not in {record.distribution for record in self.records}
        ):
            text += f" If its plugin is not installed: pip install {wanted}"
        if out := self.quarantined():
            shown = "".join(f"\n  {record.sentence}" for record in out)
            text += f"\nThese plugins cannot be used and might have provided it:{shown}"
        return UnknownComponentError(text)

    def ref(self, component: Component) -> ComponentRef:
        """Return what a worker needs to import a component by itself."""
        return ComponentRef(
            component.kind,
            component.spec.name,
            component.spec.target,
            component.distribution,
            component.version,
        )

    def load(self, component: Component) -> Any:
        """Import a component's target and return it.

        Raises:
            PluginError: a module that it requires is missing, or importing it failed.
        """
        return load(component)


def load(component: Component) -> Any:
    """Import a component's target and return it; see :meth:`Registry.load`."""
    who = describe(component)
    for module in component.spec.requires:
        # Looking for a module imports the packages that it lies in.
        with plugin_code(f"{who} needs the module {module!r}, which cannot be looked for"):
            there = _importable(module)
        if not there:
            raise PluginError(
                f"{who} needs the module {module!r}, which is not installed. "
                f"Its plugin brings it: pip install --upgrade {component.distribution}"
            )
    return import_target(component.spec.target, who)


def resolve_ref(ref: ComponentRef) -> Any:
    """Import what a driver chose, in a worker that has registered nothing.

    Raises:
        PluginError: this process would import another version of it, or cannot import it.
    """
    here = installed_version(ref.distribution)
    if here != ref.version:
        found = f"has version {here}" if here else "has none"
        raise PluginError(
            f"the {ref.kind} {ref.name!r} was chosen from {ref.distribution} {ref.version}, and "
            f"this worker ({sys.executable}) {found}. Install the same version everywhere: "
            f"pip install {ref.distribution}=={ref.version}"
        )
    return import_target(ref.target, f"the {ref.kind} {ref.name!r} (from {ref.distribution})")


def import_target(target: str, who: str) -> Any:
    """Return what ``"package.module:Name"`` names.

    Args:
        target: as in :class:`rlinf_core.specs.ComponentSpec`.
        who: whose target it is, for messages.

    Raises:
        PluginError: from what importing raised, with its traceback in the text.
    """
    module_name, _, path = target.partition(":")
    with plugin_code(f"{who} cannot be imported from {module_name}"):
        value: Any = importlib.import_module(module_name)
    for name in path.split("."):
        missing = None
        with plugin_code(f"{who} cannot be taken from {module_name}"):
            try:
                value = getattr(value, name)  # a module may make its names when they are asked for
            except AttributeError as error:
                missing = error
        if missing is not None:
            near = did_you_mean(name, dir(value))
            raise PluginError(
                f"{who} names {target!r}, and there is no {name!r} in it.{near}"
            ) from missing
    return value


@contextlib.contextmanager
def plugin_code(what: str) -> Iterator[None]:
    """Turn whatever the code of a selected component raises into an error that shows it.

    Only a plain ``KeyboardInterrupt`` passes: that is Ctrl-C. A subclass of it is the plugin's own.

    Raises:
        PluginError: from the original exception, with its traceback in the text.
    """
    try:
        yield
    except BaseException as error:  # even SystemExit: a component must not end the command
        if type(error) is KeyboardInterrupt:
            raise
        shown = _indented(own_traceback(error))
        raise PluginError(f"{what}: {type(error).__name__}: {error}\n{shown}") from error


def names_distribution(name: str) -> bool:
    """Return whether a distribution could be so named, and pip asked for it."""
    return _NAME.fullmatch(name) is not None


def with_article(kind: Kind) -> str:
    """Return ``a model`` or ``an algorithm``."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def describe(component: Component) -> str:
    """Return ``the algorithm 'ppo' (from rlinf-plugin-ppo)``."""
    return f"the {component.kind} {component.spec.name!r} (from {component.distribution})"


def _ambiguous(kind: Kind, name: str, matches: list[Component]) -> AmbiguousComponentError:
    return AmbiguousComponentError(
        f"{len(matches)} plugins provide {with_article(kind)} named {name!r}: "
        f"{', '.join(f'{c.distribution} {c.version}' for c in matches)}. "
        f"Name one of them, {' or '.join(repr(c.qualified_name) for c in matches)}, or choose once "
        f"and for all with plugins.prefer: {{{kind}/{name}: {matches[0].distribution}}}"
    )


def _unusable(kind: Kind, name: str, suspects: list[PluginRecord]) -> PluginError:
    parts = [f"the {kind} {name!r} cannot be used:"]
    for record in suspects:
        parts.append(f"  {record.sentence}")
        if record.traceback:
            parts.append(_indented(record.traceback))
    return PluginError("\n".join(parts))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
