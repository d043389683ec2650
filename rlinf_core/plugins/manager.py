"""Our own loader: every distribution ends as a record, and one that fails harms no other.

pluggy's loader gives up at the first bad entry point; this one goes on. Phases run in the order
of :class:`rlinf_core.plugins.records.Phase`; each is one function that raises
:class:`_RefusedError` where it ends the distribution. Add a phase to :func:`_load`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pluggy
from packaging.requirements import InvalidRequirement

import rlinf_core
from rlinf_core import hookspecs
from rlinf_core.errors import did_you_mean
from rlinf_core.hookspecs import HOOK_KINDS, PROJECT
from rlinf_core.plugins.discovery import Found, discover, package_folders
from rlinf_core.plugins.records import Phase, PluginRecord, Status
from rlinf_core.plugins.resolve import Registry
from rlinf_core.plugins.settings import PluginSettings, user_settings
from rlinf_core.plugins.tracebacks import own_traceback
from rlinf_core.plugins.versions import core_range, misfit
from rlinf_core.specs import (
    PLUGIN_API_VERSION,
    Component,
    ComponentSpec,
    EngineAdapterSpec,
    Kind,
)

_HOOK_NAMES = frozenset(n for n in dir(hookspecs) if n.startswith(f"{PROJECT}_"))


class PluginManager:
    """All plugins of this environment, loaded once.

    Args:
        settings: who is enabled and preferred; what the user's file says if not given.

    Raises:
        ConfigError: the user's file is malformed. Nothing that a plugin does raises here.
    """

    def __init__(self, settings: PluginSettings | None = None) -> None:
        self.settings = user_settings() if settings is None else settings
        found, rejected = discover()
        self._loaded: dict[str, _Loaded] = {}
        records = []
        for item in found:
            loaded = _load(item, self.settings)
            records.append(loaded.record)
            if loaded.record.ok:
                self._loaded[item.distribution] = loaded
        self.records = _ordered([*records, *rejected])
        self.registry = Registry(self.records, self.settings)

    def config_folders(self) -> list[tuple[str, Path]]:
        """Return (distribution, folder) of the run files and groups that plugins ship."""
        return [
            (record.distribution, folder)
            for record in self.records
            if record.ok
            for package in record.configs
            for folder in package_folders(package)
        ]

    def notify(self, hook: str, **arguments: Any) -> list[str]:
        """Call a side-effect hook of every plugin; return a sentence for each one that failed."""
        failures = []
        for distribution in self._loaded:
            try:
                self.call(distribution, hook, **arguments)
            except BaseException as error:
                if type(error) is KeyboardInterrupt:
                    raise
                failures.append(f"{distribution}: {hook} failed: {type(error).__name__}: {error}")
        return failures

    def call(self, distribution: str, hook: str, **arguments: Any) -> None:
        """Call one plugin's implementations of a side-effect hook; what they raise passes."""
        loaded = self._loaded[distribution]
        if loaded.implementations(hook):
            getattr(loaded.pluggy.hook, hook)(**arguments)

    def implementing(self, hook: str) -> list[str]:
        """Return the distributions that implement a hook, in the order of loading."""
        return [name for name, it in self._loaded.items() if it.implementations(hook)]


def records_of_metadata(settings: PluginSettings) -> tuple[PluginRecord, ...]:
    """Return what can be told of each distribution without importing any.

    ``OK`` means here that nothing speaks against loading it; components are not known.
    """
    found, rejected = discover()
    records = []
    for item in found:
        try:
            _check_policy(item, settings)
            _check_version(item)
            records.append(item.record(Status.OK))
        except _RefusedError as refused:
            records.append(item.record(refused.status, refused.phase, str(refused)))
    return _ordered([*records, *rejected])


def _ordered(records: Iterable[PluginRecord]) -> tuple[PluginRecord, ...]:
    return tuple(sorted(records, key=lambda r: (r.distribution, not r.ok)))


class _RefusedError(Exception):
    """Ends the loading of one distribution."""

    def __init__(self, status: Status, phase: Phase, error: str) -> None:
        super().__init__(error)
        self.status, self.phase = status, phase


class _Loaded:
    """A distribution while it is loaded, and what came of it."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.components: list[Component] = []
        self.configs: list[str] = []
        # One pluggy manager each, so that dropping a plugin is dropping its manager.
        self.pluggy = pluggy.PluginManager(PROJECT)
        self.record = found.record(Status.OK)

    def implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """Return the plugin's implementations of a hook."""
        caller = getattr(self.pluggy.hook, hook, None)
        return caller.get_hookimpls() if caller else []


def _load(found: Found, settings: PluginSettings) -> _Loaded:
    loaded = _Loaded(found)
    try:
        _check_policy(found, settings)
        _check_version(found)
        module = _import(found)
        _check_api(module)
        _register(loaded, module)
        _collect(loaded)
    except _RefusedError as refused:
        cause = refused.__cause__
        shown = own_traceback(cause) if cause else ""
        loaded.record = replace(
            found.record(refused.status, refused.phase, str(refused)),
            traceback=shown,
            exception=cause,
        )
    loaded.record = replace(
        loaded.record, components=tuple(loaded.components), configs=tuple(loaded.configs)
    )
    return loaded


def _check_policy(found: Found, settings: PluginSettings) -> None:
    if reason := settings.why_disabled(found.distribution):
        raise _RefusedError(Status.DISABLED, Phase.POLICY, reason)


def _check_version(found: Found) -> None:
    try:
        allowed = core_range(found.requires)
    except InvalidRequirement as error:
        text = f"its requirement on the core cannot be read: {error}"
        raise _RefusedError(Status.BROKEN, Phase.VERSION, text) from error
    if reason := misfit(found.distribution, found.version, allowed, rlinf_core.__version__):
        raise _RefusedError(Status.INCOMPATIBLE, Phase.VERSION, reason)


def _import(found: Found) -> types.ModuleType:
    name = found.entries[0][1]
    try:
        with _guard(Phase.IMPORT, f"importing {name} failed"):
            return importlib.import_module(name)
    except _RefusedError as refused:
        missing = getattr(refused.__cause__, "name", None)
        gone = isinstance(refused.__cause__, ModuleNotFoundError)
        if gone and f"{name}.".startswith(f"{missing}."):  # not of what it imports, but its own
            text = (
                f"its files are gone: there is no module {missing!r}. Install it again (pip "
                f"install --force-reinstall {found.distribution}), or remove {found.origin}"
            )
            raise _RefusedError(Status.BROKEN, Phase.IMPORT, text) from refused.__cause__
        raise


def _check_api(module: types.ModuleType) -> None:
    declared = getattr(module, "RLINF_PLUGIN_API", PLUGIN_API_VERSION)
    if declared != PLUGIN_API_VERSION:
        raise _RefusedError(
            Status.INCOMPATIBLE,
            Phase.API,
            f"{module.__name__} declares RLINF_PLUGIN_API = {declared!r}, and this core speaks "
            f"{PLUGIN_API_VERSION}; install a version of the plugin made for it",
        )


def _register(loaded: _Loaded, module: types.ModuleType) -> None:
    """Let pluggy check the signatures, and look for hooks that nobody would ever call."""
    specs = types.ModuleType(hookspecs.__name__)  # of what it implements: telling all takes time
    for name, value in vars(module).items():
        if not isinstance(value, types.FunctionType):
            continue
        marked = getattr(value, f"{PROJECT}_impl", None)
        if marked and name not in _HOOK_NAMES:
            if marked["optionalhook"]:  # said to be of a newer core
                continue
            raise _RefusedError(
                Status.BROKEN,
                Phase.HOOKS,
                f"{module.__name__}.{name}: there is no such hook."
                f"{did_you_mean(name, _HOOK_NAMES)}",
            )
        if name in _HOOK_NAMES and not marked:
            raise _RefusedError(
                Status.BROKEN,
                Phase.HOOKS,
                f"{module.__name__}.{name} is not marked, so it would never be called; "
                "put @hookimpl above it",
            )
        if marked and name in _HOOK_NAMES:
            setattr(specs, name, getattr(hookspecs, name))
    with _guard(Phase.HOOKS, f"the hooks of {module.__name__} do not fit"):
        if vars(specs).keys() & _HOOK_NAMES:
            loaded.pluggy.add_hookspecs(specs)
        loaded.pluggy.register(module)


def _collect(loaded: _Loaded) -> None:
    for hook, kind in HOOK_KINDS.items():
        for item in _answers(loaded, hook):
            loaded.components.append(_component(loaded, hook, kind, item))
    for package in _answers(loaded, "rlinf_configs"):
        if not isinstance(package, str) or not package_folders(package):
            raise _RefusedError(
                Status.BROKEN,
                Phase.SPECS,
                f"rlinf_configs returned {package!r}, wanted packages that are folders, such as "
                "'rlinf_plugin_x.configs'",
            )
        loaded.configs.append(package)


def _answers(loaded: _Loaded, hook: str) -> Iterator[Any]:
    """Yield what each implementation of a hook returns, one implementation at a time."""
    for implementation in loaded.implementations(hook):
        with _guard(Phase.HOOKS, f"{hook} failed"):
            answer: Any = implementation.function()
            iterable = hasattr(answer, "__iter__") and not isinstance(answer, str)
            items = list(answer) if iterable else None
        if items is None:
            text = f"{hook} returned {answer!r}, wanted a list"
            raise _RefusedError(Status.BROKEN, Phase.SPECS, text)
        yield from items


def _component(loaded: _Loaded, hook: str, kind: Kind, item: Any) -> Component:
    wanted = EngineAdapterSpec if kind is Kind.ENGINE_ADAPTER else ComponentSpec
    if not isinstance(item, wanted):
        text = f"{hook} returned {item!r}, wanted a list of {wanted.__name__}"
        raise _RefusedError(Status.BROKEN, Phase.SPECS, text)
    if any(c.kind is kind and c.spec.name == item.name for c in loaded.components):
        text = f"{hook} returned two components named {item.name!r}; wanted one of each name"
        raise _RefusedError(Status.BROKEN, Phase.SPECS, text)
    return Component(kind, item, loaded.found.distribution, loaded.found.version)


@contextlib.contextmanager
def _guard(phase: Phase, what: str) -> Iterator[None]:
    """Turn whatever a plugin's code raises into a refusal, even an attempt to exit.

    Only a plain ``KeyboardInterrupt`` passes: that is Ctrl-C. A subclass of it is the plugin's own.
    """
    try:
        # What a plugin prints must not end up among the results of a command.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except BaseException as error:
        if type(error) is KeyboardInterrupt:
            raise
        text = f"{what}: {type(error).__name__}: {error}"
        raise _RefusedError(Status.BROKEN, phase, text) from error
