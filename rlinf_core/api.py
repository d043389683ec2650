"""The public names for plugin authors. Importing it imports no torch; each name comes when used.

    from rlinf_core.api import Capability, ComponentSpec, Config, hookimpl

Add a name to :data:`_HOME` and to the imports for type checkers below it. Within one
``PLUGIN_API_VERSION`` names are only added; none changes or goes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf_core import rl as rl
    from rlinf_core.capability import Capability, Level
    from rlinf_core.config.schema import Config
    from rlinf_core.data.batch import Batch
    from rlinf_core.data.draws import Draws
    from rlinf_core.devices import visible
    from rlinf_core.errors import (
        AmbiguousComponentError,
        BatchError,
        CapabilityError,
        ChannelClosed,
        ChannelTimeout,
        CheckpointError,
        ConfigError,
        DeadlineExceeded,
        Deadlock,
        MissingKeyError,
        PluginError,
        ProducerGone,
        RequestError,
        RlinfError,
        RLInputError,
        RuntimeFailure,
        SimulatorError,
        StaleDataError,
        UnknownComponentError,
        WeightSyncError,
        WorkerDied,
        WorkerFailed,
        did_you_mean,
    )
    from rlinf_core.hookspecs import hookimpl
    from rlinf_core.models.actions import ActionBins
    from rlinf_core.models.heads import ValueHead
    from rlinf_core.models.images import (
        RESIZES,
        resize_pillow,
        resize_pillow_padded,
        resize_torch,
        resize_torch_padded,
        stack_normalized,
    )
    from rlinf_core.models.normalize import Bounds, ZScore, pad_last
    from rlinf_core.models.statistics import Statistics, choose_statistics
    from rlinf_core.models.tensor_files import (
        Stored,
        fill,
        in_memory,
        new_folder,
        stored_tensors,
        weight_files,
        write_checkpoint,
        write_shards,
    )
    from rlinf_core.placement import Device, GroupPlace, ProcessPlace
    from rlinf_core.protocols.accelerator import Accelerator
    from rlinf_core.protocols.algorithm import Algorithm, Counts, Needs
    from rlinf_core.protocols.dataset import Dataset
    from rlinf_core.protocols.dequeue_policy import DequeuePolicy
    from rlinf_core.protocols.engine_adapter import EngineAdapter
    from rlinf_core.protocols.logger import RunInfo, RunLogger
    from rlinf_core.protocols.policy import Act, Eval, LogprobLevel, Mode, Policy
    from rlinf_core.protocols.reward import Reward
    from rlinf_core.protocols.rollout_engine import RolloutEngine
    from rlinf_core.protocols.runtime import (
        Channel,
        ChannelSpec,
        Deadlines,
        Future,
        Runtime,
        Span,
        WorkerGroup,
        WorkerSpec,
    )
    from rlinf_core.protocols.scheduler import Scheduler
    from rlinf_core.protocols.simulator import (
        Autoreset,
        EnvSlots,
        Simulator,
        Spaces,
        StateId,
        Step,
    )
    from rlinf_core.protocols.training_backend import TrainingBackend
    from rlinf_core.protocols.weight_transport import Layout, Receipt, WeightTransport
    from rlinf_core.runtime import toolkit as toolkit
    from rlinf_core.runtime.worker import Place, Worker
    from rlinf_core.simulation import (
        Environment,
        ProcessSimulator,
        StateRange,
        from_vector_env,
        state_seed,
    )
    from rlinf_core.specs import (
        PLUGIN_API_VERSION,
        Component,
        ComponentRef,
        ComponentSpec,
        EngineAdapterSpec,
        Facts,
        Kind,
        Readiness,
        Unknown,
    )
    from rlinf_core.transport.routes import Part
    from rlinf_core.transport.weights import (
        Header,
        Piece,
        WeightStream,
        check_fit,
        checksum,
        load_into,
        stream_from_files,
    )

_HOME: dict[str, str] = {
    name: f"rlinf_core.{module}"
    for module, names in {
        "capability": "Capability Level",
        "config.schema": "Config",
        "data.batch": "Batch",
        "data.draws": "Draws",
        "devices": "visible",
        "errors": (
            "AmbiguousComponentError BatchError CapabilityError ChannelClosed ChannelTimeout "
            "CheckpointError ConfigError DeadlineExceeded Deadlock MissingKeyError PluginError "
            "ProducerGone RLInputError RequestError RlinfError RuntimeFailure SimulatorError "
            "StaleDataError UnknownComponentError WeightSyncError WorkerDied WorkerFailed "
            "did_you_mean"
        ),
        "hookspecs": "hookimpl",
        "models.actions": "ActionBins",
        "models.heads": "ValueHead",
        "models.images": (
            "RESIZES resize_pillow resize_pillow_padded resize_torch resize_torch_padded "
            "stack_normalized"
        ),
        "models.normalize": "Bounds ZScore pad_last",
        "models.statistics": "Statistics choose_statistics",
        "models.tensor_files": (
            "Stored fill in_memory new_folder stored_tensors weight_files write_checkpoint "
            "write_shards"
        ),
        "placement": "Device GroupPlace ProcessPlace",
        "protocols.accelerator": "Accelerator",
        "protocols.algorithm": "Algorithm Counts Needs",
        "protocols.dataset": "Dataset",
        "protocols.dequeue_policy": "DequeuePolicy",
        "protocols.engine_adapter": "EngineAdapter",
        "protocols.logger": "RunInfo RunLogger",
        "protocols.policy": "Act Eval LogprobLevel Mode Policy",
        "protocols.reward": "Reward",
        "protocols.rollout_engine": "RolloutEngine",
        "protocols.runtime": (
            "Channel ChannelSpec Deadlines Future Runtime Span WorkerGroup WorkerSpec"
        ),
        "protocols.scheduler": "Scheduler",
        "protocols.simulator": "Autoreset EnvSlots Simulator Spaces StateId Step",
        "protocols.training_backend": "TrainingBackend",
        "protocols.weight_transport": "Layout Receipt WeightTransport",
        "runtime.worker": "Place Worker",
        "simulation": "Environment ProcessSimulator StateRange from_vector_env state_seed",
        "specs": (
            "PLUGIN_API_VERSION Component ComponentRef ComponentSpec EngineAdapterSpec Facts Kind "
            "Readiness Unknown"
        ),
        "transport.routes": "Part",
        "transport.weights": (
            "Header Piece WeightStream check_fit checksum load_into stream_from_files"
        ),
    }.items()
    for name in names.split()
}
"""Where each name lives."""

_MODULES = {"rl": "rlinf_core.rl", "toolkit": "rlinf_core.runtime.toolkit"}
"""Names that are modules."""

__all__ = [
    "PLUGIN_API_VERSION",
    "RESIZES",
    "Accelerator",
    "Act",
    "ActionBins",
    "Algorithm",
    "AmbiguousComponentError",
    "Autoreset",
    "Batch",
    "BatchError",
    "Bounds",
    "Capability",
    "CapabilityError",
    "Channel",
    "ChannelClosed",
    "ChannelSpec",
    "ChannelTimeout",
    "CheckpointError",
    "Component",
    "ComponentRef",
    "ComponentSpec",
    "Config",
    "ConfigError",
    "Counts",
    "Dataset",
    "DeadlineExceeded",
    "Deadlines",
    "Deadlock",
    "DequeuePolicy",
    "Device",
    "Draws",
    "EngineAdapter",
    "EngineAdapterSpec",
    "EnvSlots",
    "Environment",
    "Eval",
    "Facts",
    "Future",
    "GroupPlace",
    "Header",
    "Kind",
    "Layout",
    "Level",
    "LogprobLevel",
    "MissingKeyError",
    "Mode",
    "Needs",
    "Part",
    "Piece",
    "Place",
    "PluginError",
    "Policy",
    "ProcessPlace",
    "ProcessSimulator",
    "ProducerGone",
    "RLInputError",
    "Readiness",
    "Receipt",
    "RequestError",
    "Reward",
    "RlinfError",
    "RolloutEngine",
    "RunInfo",
    "RunLogger",
    "Runtime",
    "RuntimeFailure",
    "Scheduler",
    "Simulator",
    "SimulatorError",
    "Spaces",
    "Span",
    "StaleDataError",
    "StateId",
    "StateRange",
    "Statistics",
    "Step",
    "Stored",
    "TrainingBackend",
    "Unknown",
    "UnknownComponentError",
    "ValueHead",
    "WeightStream",
    "WeightSyncError",
    "WeightTransport",
    "Worker",
    "WorkerDied",
    "WorkerFailed",
    "WorkerGroup",
    "WorkerSpec",
    "ZScore",
    "check_fit",
    "checksum",
    "choose_statistics",
    "did_you_mean",
    "fill",
    "from_vector_env",
    "hookimpl",
    "in_memory",
    "load_into",
    "new_folder",
    "pad_last",
    "resize_pillow",
    "resize_pillow_padded",
    "resize_torch",
    "resize_torch_padded",
    "rl",
    "stack_normalized",
    "state_seed",
    "stored_tensors",
    "stream_from_files",
    "toolkit",
    "visible",
    "weight_files",
    "write_checkpoint",
    "write_shards",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name.startswith("__"):  # asked for by the import machinery, for every plugin
        raise AttributeError(name)
    if name not in _HOME:
        from rlinf_core.errors import did_you_mean

        raise AttributeError(
            f"rlinf_core.api has no public name {name!r}.{did_you_mean(name, __all__)}"
        )
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
