"""The hooks that a plugin may implement: one per kind of component, and a few side effects.

A plugin is a tiny module named by one entry point in the group ``rlinf.plugins``. It implements
the hooks it needs with :data:`hookimpl`, and they return *data*: specs that name code by string.
Nothing that happens at every step of a run goes through a hook.

Add a hook here, with its kind in :data:`HOOK_KINDS` and a page ``docs/reference/hooks/<hook>.md``.
Within one ``PLUGIN_API_VERSION`` hooks are only added; none changes or goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pluggy

from rlinf_core.specs import ComponentSpec, EngineAdapterSpec, Kind

if TYPE_CHECKING:
    import typer

PROJECT = "rlinf"
"""Name of the project in pluggy; a hook's name starts with it."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin module as the implementation of the hook of that name."""

HOOK_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "rlinf_simulators": Kind.SIMULATOR,
        "rlinf_models": Kind.MODEL,
        "rlinf_algorithms": Kind.ALGORITHM,
        "rlinf_training_backends": Kind.TRAINING_BACKEND,
        "rlinf_rollout_engines": Kind.ROLLOUT_ENGINE,
        "rlinf_engine_adapters": Kind.ENGINE_ADAPTER,
        "rlinf_weight_transports": Kind.WEIGHT_TRANSPORT,
        "rlinf_rewards": Kind.REWARD,
        "rlinf_datasets": Kind.DATASET,
        "rlinf_loggers": Kind.LOGGER,
        "rlinf_runtimes": Kind.RUNTIME,
        "rlinf_accelerators": Kind.ACCELERATOR,
        "rlinf_schedulers": Kind.SCHEDULER,
        "rlinf_dequeue_policies": Kind.DEQUEUE_POLICY,
    }
)
"""Which kind of component each hook returns."""


@hookspec
def rlinf_simulators() -> Iterable[ComponentSpec]:
    """Return simulators, the worlds a policy acts in; a run names one in ``simulator``.

    >>> from rlinf_core.api import Capability, ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_simulators():
    ...     return [
    ...         ComponentSpec(
    ...             "cart",
    ...             "Keep a pole upright on a cart.",
    ...             "rlinf_plugin_cart.simulator:Cart",
    ...             config="rlinf_plugin_cart.config:CartConfig",
    ...             capabilities={Capability.STATE, Capability.SUCCESS},
    ...         )
    ...     ]
    >>> [spec.name for spec in rlinf_simulators()]
    ['cart']
    """
    raise NotImplementedError


@hookspec
def rlinf_models() -> Iterable[ComponentSpec]:
    """Return models, the policies that act and are trained; a run names one in ``model``.

    >>> from rlinf_core.api import Capability, ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_models():
    ...     return [
    ...         ComponentSpec(
    ...             "tiny",
    ...             "Two layers and a critic.",
    ...             "rlinf_plugin_tiny.model:build",
    ...             config="rlinf_plugin_tiny.config:TinyConfig",
    ...             facts="rlinf_plugin_tiny.facts:tiny",
    ...             capabilities={Capability.VALUE, Capability.ENTROPY, Capability.STATE},
    ...         )
    ...     ]
    >>> sorted(str(capability) for capability in rlinf_models()[0].capabilities)
    ['entropy', 'state', 'value']
    """
    raise NotImplementedError


@hookspec
def rlinf_algorithms() -> Iterable[ComponentSpec]:
    """Return algorithms, what an update maximises; a run names one in ``algorithm``.

    >>> from rlinf_core.api import Capability, ComponentSpec, Kind, hookimpl
    >>> @hookimpl
    ... def rlinf_algorithms():
    ...     return [
    ...         ComponentSpec(
    ...             "a2c",
    ...             "Advantage actor-critic.",
    ...             "rlinf_plugin_a2c.algorithm:A2C",
    ...             config="rlinf_plugin_a2c.config:A2CConfig",
    ...             needs={Kind.MODEL: {Capability.VALUE}},
    ...         )
    ...     ]
    >>> {str(kind): [str(c) for c in cs] for kind, cs in rlinf_algorithms()[0].needs.items()}
    {'model': ['value']}
    """
    raise NotImplementedError


@hookspec
def rlinf_training_backends() -> Iterable[ComponentSpec]:
    """Return training backends, which own optimizer and loop; named in ``training``.

    >>> from rlinf_core.api import Capability, ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_training_backends():
    ...     return [
    ...         ComponentSpec(
    ...             "sharded",
    ...             "Shards one model over all ranks.",
    ...             "rlinf_plugin_sharded.backend:Sharded",
    ...             capabilities={Capability.DISTRIBUTED, Capability.OFFLOAD},
    ...         )
    ...     ]
    >>> rlinf_training_backends()[0].summary
    'Shards one model over all ranks.'
    """
    raise NotImplementedError


@hookspec
def rlinf_rollout_engines() -> Iterable[ComponentSpec]:
    """Return rollout engines, which run a policy to act or to generate; named in ``rollout``.

    >>> from rlinf_core.api import Capability, ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_rollout_engines():
    ...     return [
    ...         ComponentSpec(
    ...             "fastgen",
    ...             "Generates text quickly.",
    ...             "rlinf_plugin_fastgen.engine:FastGen",
    ...             capabilities={Capability.GENERATE, Capability.LOGPROB},
    ...             requires=("fastgen",),
    ...         )
    ...     ]
    >>> rlinf_rollout_engines()[0].requires
    ('fastgen',)
    """
    raise NotImplementedError


@hookspec
def rlinf_engine_adapters() -> Iterable[EngineAdapterSpec]:
    """Return adapters, each for one half-open range of versions of one rollout engine.

    >>> from rlinf_core.api import EngineAdapterSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_engine_adapters():
    ...     return [
    ...         EngineAdapterSpec(
    ...             "fastgen-06",
    ...             "Speaks to fastgen 0.6.",
    ...             "rlinf_plugin_fastgen_06.adapter:Adapter",
    ...             engine="fastgen",
    ...             distributions=("fastgen", "fastgen-cpu"),
    ...             versions=">=0.6,<0.7",
    ...             tested=("0.6.1",),
    ...         )
    ...     ]
    >>> rlinf_engine_adapters()[0].versions
    '>=0.6,<0.7'
    """
    raise NotImplementedError


@hookspec
def rlinf_weight_transports() -> Iterable[ComponentSpec]:
    """Return weight transports, from training backend to rollout engines; named in ``weights``.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_weight_transports():
    ...     return [ComponentSpec("shelf", "Through files.", "rlinf_plugin_shelf.transport:Shelf")]
    >>> rlinf_weight_transports()[0].target
    'rlinf_plugin_shelf.transport:Shelf'
    """
    raise NotImplementedError


@hookspec
def rlinf_rewards() -> Iterable[ComponentSpec]:
    """Return rewards, which score what the simulator does not; named in ``reward``.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_rewards():
    ...     return [ComponentSpec("exact", "1 for the exact answer.", "rlinf_plugin_exact.r:Exact")]
    >>> [spec.name for spec in rlinf_rewards()]
    ['exact']
    """
    raise NotImplementedError


@hookspec
def rlinf_datasets() -> Iterable[ComponentSpec]:
    """Return datasets, samples in an order that can be resumed; a run names one in ``data``.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_datasets():
    ...     return [ComponentSpec("sums", "Sums of two numbers.", "rlinf_plugin_sums.data:Sums")]
    >>> [spec.name for spec in rlinf_datasets()]
    ['sums']
    """
    raise NotImplementedError


@hookspec
def rlinf_loggers() -> Iterable[ComponentSpec]:
    """Return loggers, which show or keep what a run reports; listed in ``loggers``.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_loggers():
    ...     return [ComponentSpec("csv", "One row per step.", "rlinf_plugin_csv.logger:CsvLogger")]
    >>> [spec.name for spec in rlinf_loggers()]
    ['csv']
    """
    raise NotImplementedError


@hookspec
def rlinf_runtimes() -> Iterable[ComponentSpec]:
    """Return runtimes, which decide where workers run; a run names one in ``cluster.runtime``.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_runtimes():
    ...     return [
    ...         ComponentSpec(
    ...             "swarm",
    ...             "Workers on many machines.",
    ...             "rlinf_plugin_swarm.runtime:Swarm",
    ...             config="rlinf_plugin_swarm.config:SwarmConfig",
    ...         )
    ...     ]
    >>> rlinf_runtimes()[0].config
    'rlinf_plugin_swarm.config:SwarmConfig'
    """
    raise NotImplementedError


@hookspec
def rlinf_accelerators() -> Iterable[ComponentSpec]:
    """Return accelerators, kinds of device and how to find them; named in ``cluster.devices``.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_accelerators():
    ...     return [ComponentSpec("npu", "Neural cards.", "rlinf_plugin_npu.accelerator:Npu")]
    >>> [spec.name for spec in rlinf_accelerators()]
    ['npu']
    """
    raise NotImplementedError


@hookspec
def rlinf_schedulers() -> Iterable[ComponentSpec]:
    """Return schedulers, which search for a placement where a run asks for ``auto``.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_schedulers():
    ...     return [ComponentSpec("greedy", "First fit.", "rlinf_plugin_greedy.scheduler:Greedy")]
    >>> [spec.name for spec in rlinf_schedulers()]
    ['greedy']
    """
    raise NotImplementedError


@hookspec
def rlinf_dequeue_policies() -> Iterable[ComponentSpec]:
    """Return dequeue policies, which choose what a channel hands out next.

    >>> from rlinf_core.api import ComponentSpec, hookimpl
    >>> @hookimpl
    ... def rlinf_dequeue_policies():
    ...     return [ComponentSpec("lifo", "Newest first.", "rlinf_plugin_lifo.policy:Lifo")]
    >>> [spec.name for spec in rlinf_dequeue_policies()]
    ['lifo']
    """
    raise NotImplementedError


@hookspec
def rlinf_configs() -> Iterable[str]:
    """Return packages whose folders hold run files and groups, such as ``rlinf_plugin_x.configs``.

    They join the search path of ``rlinf train`` after the core's own folders. The folder holds
    YAML files and needs no ``__init__.py``.

    >>> from rlinf_core.api import hookimpl
    >>> @hookimpl
    ... def rlinf_configs():
    ...     return ["rlinf_core.builtin"]
    >>> list(rlinf_configs())
    ['rlinf_core.builtin']
    """
    raise NotImplementedError


@hookspec
def rlinf_cli(group: typer.Typer) -> None:
    """Add commands to ``rlinf``. The core's own names and those of earlier plugins win.

    Args:
        group: a Typer app of this plugin alone; its commands become commands of ``rlinf``.

    >>> import typer
    >>> from rlinf_core.api import hookimpl
    >>> @hookimpl
    ... def rlinf_cli(group):
    ...     @group.command()
    ...     def hello() -> None:
    ...         '''Greet.'''
    ...         print("hello")
    >>> group = typer.Typer()
    >>> rlinf_cli(group)
    >>> [command.callback.__name__ for command in group.registered_commands]
    ['hello']
    """


@hookspec
def rlinf_run_started(run: Any) -> None:
    """Take notice that a run is about to start; a raised error is shown and the run goes on.

    Args:
        run: the validated :class:`rlinf_core.config.validate.Run`.

    >>> from types import SimpleNamespace
    >>> from rlinf_core.api import hookimpl
    >>> @hookimpl
    ... def rlinf_run_started(run):
    ...     print("started", run.config.name)
    >>> rlinf_run_started(run=SimpleNamespace(config=SimpleNamespace(name="demo")))
    started demo
    """


@hookspec
def rlinf_run_finished(run: Any, outcome: str) -> None:
    """Take notice that a run has ended; a raised error is shown and changes nothing.

    Args:
        run: the validated :class:`rlinf_core.config.validate.Run`.
        outcome: "done", "failed" or "interrupted".

    >>> from types import SimpleNamespace
    >>> from rlinf_core.api import hookimpl
    >>> @hookimpl
    ... def rlinf_run_finished(run, outcome):
    ...     print(run.config.name, outcome)
    >>> rlinf_run_finished(run=SimpleNamespace(config=SimpleNamespace(name="demo")), outcome="done")
    demo done
    """
