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
    """Return the runtimes of one machine."""
    return [
        ComponentSpec(
            "inline",
            "One thread per worker, of which one runs at a time; deterministic, and pdb works.",
            "rlinf_core.runtime.inline:InlineRuntime",
        ),
        ComponentSpec(
            "processes",
            "One process per worker on this machine, joined by shared memory.",
            "rlinf_core.runtime.processes:ProcessRuntime",
            capabilities={Capability.PROCESSES},
        ),
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
    """Return the transports between any numbers of processes."""
    return [
        ComponentSpec(
            "full",
            "Sends all weights in one go and waits for nobody.",
            "rlinf_core.builtin.weights:FullTransport",
            config="rlinf_core.builtin.config:WeightsConfig",
        ),
        ComponentSpec(
            "bucketed",
            "Sends weights in buckets, so that sending and loading overlap.",
            "rlinf_core.builtin.weights:BucketedTransport",
            config="rlinf_core.builtin.config:BucketedConfig",
        ),
        ComponentSpec(
            "changed",
            "Sends only the weights that changed, in buckets.",
            "rlinf_core.builtin.weights:ChangedTransport",
            config="rlinf_core.builtin.config:ChangedConfig",
        ),
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
    """Return the orders that a channel can keep."""
    return [
        ComponentSpec("fifo", "Oldest item first.", "rlinf_core.runtime.dequeue:Fifo"),
        ComponentSpec(
            "round_robin",
            "Oldest item first; consumers that wait take turns.",
            "rlinf_core.runtime.dequeue:RoundRobin",
        ),
        ComponentSpec(
            "balanced",
            "Heaviest item first, to the consumer with the least work so far.",
            "rlinf_core.runtime.dequeue:Balanced",
        ),
    ]
