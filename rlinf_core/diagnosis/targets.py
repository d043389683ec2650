"""The third stage of a check: a component's code is imported and compared with its protocol.

Runs in a process of its own, one for each component. A check is a function of the imported target;
add it to :data:`CHECKS`.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.diagnosis.findings import Finding, Outcome, Stage
from rlinf_core.errors import PluginError
from rlinf_core.plugins.resolve import import_target
from rlinf_core.specs import Kind


class Contract(typing.NamedTuple):
    """What the code of a kind must be.

    Attributes:
        protocol: ``"module:Name"``; by name, since nobody needs all of them.
        arguments: what its target is called with, in order.
        optional: method to the capability without which it may be missing.
    """

    protocol: str
    arguments: tuple[str, ...]
    optional: Mapping[str, Capability] = MappingProxyType({})


_P = "rlinf_core.protocols."
_RESTORE = MappingProxyType(dict.fromkeys(("state_dict", "load_state_dict"), Capability.RESTORE))

CONTRACTS: Mapping[Kind, Contract] = MappingProxyType(
    {
        Kind.SIMULATOR: Contract(f"{_P}simulator:Simulator", ("config", "slots"), _RESTORE),
        Kind.MODEL: Contract(f"{_P}policy:Policy", ("config", "spaces", "chunk")),
        Kind.ALGORITHM: Contract(f"{_P}algorithm:Algorithm", ("config",)),
        Kind.TRAINING_BACKEND: Contract(
            f"{_P}training_backend:TrainingBackend", ("config", "device")
        ),
        Kind.ROLLOUT_ENGINE: Contract(
            f"{_P}rollout_engine:RolloutEngine",
            ("config", "device"),
            MappingProxyType({"generate": Capability.GENERATE}),
        ),
        Kind.ENGINE_ADAPTER: Contract(f"{_P}engine_adapter:EngineAdapter", ("config",)),
        Kind.WEIGHT_TRANSPORT: Contract(f"{_P}weight_transport:WeightTransport", ("config",)),
        Kind.REWARD: Contract(f"{_P}reward:Reward", ("config",)),
        Kind.DATASET: Contract(f"{_P}dataset:Dataset", ("config",)),
        Kind.LOGGER: Contract(f"{_P}logger:RunLogger", ("config", "info")),
        Kind.RUNTIME: Contract(f"{_P}runtime:Runtime", ("config",)),
        Kind.ACCELERATOR: Contract(f"{_P}accelerator:Accelerator", ()),
        Kind.SCHEDULER: Contract(f"{_P}scheduler:Scheduler", ("config",)),
        Kind.DEQUEUE_POLICY: Contract(f"{_P}dequeue_policy:DequeuePolicy", ()),
    }
)
"""Of each kind. A protocol's module says the same in its docstring, and a test compares them."""

_STATE: Mapping[str, Callable[[], bool]] = MappingProxyType(
    {
        "a process group of torch.distributed": lambda: _asked("torch.distributed"),
        "CUDA": lambda: _asked("torch.cuda"),
        "Ray": lambda: _asked("ray"),
    }
)
"""What importing must not initialise, and how to tell; only where its module was imported."""


def takes(function: Any, arguments: int) -> bool:
    """Return whether something can be called with so many arguments in order."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a built-in that does not tell
        return callable(function)
    return True


class Target(typing.NamedTuple):
    """An imported target, and what is known of its component."""

    value: Any
    component: Mapping[str, Any]
    contract: Contract


def check_target(component: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Import a component's target and check it.

    Args:
        component: one of what :func:`rlinf_core.diagnosis.manifest.check_manifest` returned.
    """
    try:
        value = import_target(component["target"], component["who"])
    except PluginError as error:
        sentence, _, detail = str(error).partition("\n")
        remedy = "correct the target in plugin.py, or what its module imports"
        return [_finding(component, "target", Outcome.FAILED, sentence, remedy, detail).as_json()]
    target = Target(value, component, CONTRACTS[Kind(component["kind"])])
    return [finding.as_json() for check in CHECKS for finding in check(target)]


def _call(target: Target) -> Iterator[Finding]:
    wanted = f"({', '.join(target.contract.arguments)})"
    name = target.component["target"]
    if not callable(target.value):
        sentence = f"{name} is {target.value!r}, wanted a class or a function of {wanted}"
        yield _finding(target.component, "target", Outcome.FAILED, sentence, "name another target")
    elif not takes(target.value, len(target.contract.arguments)):
        sentence = f"{name} cannot be called as the core calls it, with {wanted}"
        yield _finding(
            target.component, "target", Outcome.FAILED, sentence, "change its parameters"
        )
    else:
        yield _finding(target.component, "target", Outcome.OK, f"{name} is called with {wanted}")


def _methods(target: Target) -> Iterator[Finding]:
    made = _made_by(target.value)
    if made is None:
        sentence = (
            "the target is a function that does not say what it returns, so the protocol's methods "
            "cannot be looked for"
        )
        remedy = "annotate what it returns with its class"
        yield _finding(target.component, "protocol", Outcome.SKIPPED, sentence, remedy)
        return
    protocol = import_target(target.contract.protocol, "the protocol")
    wrong = [
        text
        for name, method in _methods_of(protocol)
        if name not in target.contract.optional
        or target.contract.optional[name] in target.component["capabilities"]
        if (text := _compare(_found(made, name), name, method))
    ]
    if wrong:
        sentence = f"{made.__name__} does not keep {protocol.__name__}: {'; '.join(wrong)}"
        remedy = f"see rlinf_core.api.{protocol.__name__}"
        yield _finding(target.component, "protocol", Outcome.FAILED, sentence, remedy)
    else:
        sentence = f"{made.__name__} has the methods of {protocol.__name__}"
        yield _finding(target.component, "protocol", Outcome.OK, sentence)


def _made_by(value: Any) -> type | None:
    """Return the class of what a target makes, or None where it does not say."""
    if isinstance(value, type):
        return value
    try:
        made = typing.get_type_hints(value).get("return")
    except Exception:  # annotations may name what is not there at run time
        return None
    if not isinstance(made, type) or made.__module__.startswith(_P):
        return None  # a protocol promises and shows nothing
    return made


def _methods_of(protocol: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(protocol).items():
        method = value.__func__ if isinstance(value, staticmethod) else value
        if inspect.isfunction(method) and (not name.startswith("_") or name in _SPECIAL):
            yield name, value


_SPECIAL = {"__call__", "__len__", "__getitem__"}


def _found(made: type, name: str) -> Any:
    """Return a method of a class; every class could be called, so its own metaclass is left out."""
    return getattr(made, name) if any(name in vars(base) for base in made.__mro__) else None


def _compare(found: Any, name: str, method: Any) -> str:
    """Return what is wrong with a method of a class; empty if nothing."""
    static = isinstance(method, staticmethod)
    wanted = inspect.signature(method.__func__ if static else method)
    shown = ", ".join(p for p in wanted.parameters if p != "self")
    if found is None:
        return f"there is no {name}({shown})"
    needed = [
        p for p in wanted.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD and not static
    ]
    if callable(found) and takes(found, len(needed)):
        return ""
    return f"{name} cannot be called as {name}({shown})"


def _side_effects(target: Target) -> Iterator[Finding]:
    started = [what for what, is_on in _STATE.items() if is_on()]
    if started:
        sentence = f"importing it initialised {' and '.join(started)}"
        remedy = "do that when the component is made, not when its module is imported"
        yield _finding(target.component, "import-effects", Outcome.FAILED, sentence, remedy)
    else:
        sentence = "importing it initialised no process group, no CUDA and no Ray"
        yield _finding(target.component, "import-effects", Outcome.OK, sentence)


def _asked(name: str) -> bool:
    module = sys.modules.get(name)
    return bool(getattr(module, "is_initialized", bool)())


CHECKS: tuple[Callable[[Target], Iterator[Finding]], ...] = (_call, _methods, _side_effects)
"""In order."""


def _finding(
    component: Mapping[str, Any],
    check: str,
    outcome: Outcome,
    sentence: str,
    remedy: str = "",
    detail: str = "",
) -> Finding:
    return Finding(Stage.IMPORT, check, outcome, sentence, remedy, component["label"], detail)
