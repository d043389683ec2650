"""The core's own components, registered like those of any plugin.

Add a component here only where no run of the kind could start without it; anything that stands on
a library belongs to a plugin of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlinf_core.capability import Capability
from rlinf_core.hookspecs import hookimpl
from rlinf_core.specs import ComponentSpec

RLINF_PLUGIN_API = 1


@hookimpl
def rlinf_runtimes() -> Iterable[ComponentSpec]:
    """Return the runtime that needs no other process."""
    return [
        ComponentSpec(
            "inline",
            "One thread per worker, of which one runs at a time; deterministic, and pdb works.",
            "rlinf_core.runtime.inline:InlineRuntime",
        )
    ]


@hookimpl
def rlinf_rollout_engines() -> Iterable[ComponentSpec]:
    """Return the engine that serves every embodied policy."""
    return [
        ComponentSpec(
            "direct",
            "Calls the policy itself, with its own batch size and precision.",
            "rlinf_core.builtin.direct:DirectEngine",
            config="rlinf_core.builtin.config:DirectConfig",
            capabilities={Capability.LOGPROB, Capability.OFFLOAD},
        )
    ]


@hookimpl
def rlinf_weight_transports() -> Iterable[ComponentSpec]:
    """Return the transport within one process."""
    return [
        ComponentSpec(
            "memory",
            "Hands weights on within one process, checked against their header.",
            "rlinf_core.builtin.memory:MemoryTransport",
        )
    ]


@hookimpl
def rlinf_loggers() -> Iterable[ComponentSpec]:
    """Return the loggers that every run has by default."""
    return [
        ComponentSpec(
            "console",
            "Shows progress and metrics on standard error.",
            "rlinf_core.builtin.console:ConsoleLogger",
            config="rlinf_core.builtin.config:ConsoleConfig",
        ),
        ComponentSpec(
            "jsonl",
            "Keeps metrics as one JSON object per line.",
            "rlinf_core.builtin.jsonl:JsonlLogger",
        ),
    ]


@hookimpl
def rlinf_accelerators() -> Iterable[ComponentSpec]:
    """Return the kinds of device that torch itself knows everywhere."""
    return [
        ComponentSpec("cpu", "The processor.", "rlinf_core.builtin.accelerators:Cpu"),
        ComponentSpec("cuda", "NVIDIA GPUs.", "rlinf_core.builtin.accelerators:Cuda"),
    ]


@hookimpl
def rlinf_dequeue_policies() -> Iterable[ComponentSpec]:
    """Return the order that channels keep by default."""
    return [ComponentSpec("fifo", "Oldest first.", "rlinf_core.builtin.fifo:Fifo")]
