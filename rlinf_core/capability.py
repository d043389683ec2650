"""What components can do, as an enum with levels, so that a run is checked before it starts.

Add a capability when one component must be able to *require* it of another; its docstring says
who declares it and what it promises.
"""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """How far a component supports a capability. Only ``FULL`` satisfies a need."""

    UNKNOWN = 0
    """Nobody has said; the planner prints "unknown" and refuses where it is needed."""
    UNSUPPORTED = 1
    """It will not work."""
    PLANNED = 2
    """Not yet; the component's page says when."""
    FULL = 3
    """It works, and a test shows it."""


class Capability(enum.StrEnum):
    """The things that one component may need of another."""

    VALUE = "value"
    """Model: ``act`` and ``evaluate`` give a state value, so that a critic can be trained."""
    ENTROPY = "entropy"
    """Model: ``evaluate`` gives the entropy of the action distribution."""
    LOGPROB = "logprob"
    """Model or engine: actions come with the log-probability they were sampled with."""
    DISCRETE_ACTIONS = "discrete-actions"
    """Model: its action distribution is categorical, so a masked or greedy token is exact."""
    LORA = "lora"
    """Model: names the modules that low-rank adapters attach to."""
    SHARDING = "sharding"
    """Model: names the modules that a sharding backend wraps."""
    RESTORE = "restore"
    """Simulator: ``state_dict`` and ``load_state_dict`` restore running episodes exactly."""
    SHARED_STATES = "shared-states"
    """Simulator: several environments can start from one initial state (needed for groups)."""
    SUCCESS = "success"
    """Simulator: reports task success at every step."""
    RENDER = "render"
    """Simulator: ``render`` gives RGB frames where the machine has a renderer."""
    IMAGES = "images"
    """Simulator: observations hold camera images. Model: reads camera images."""
    STATE = "state"
    """Simulator: observations hold a state vector. Model: reads a state vector."""
    INSTRUCTION = "instruction"
    """Simulator: observations hold an instruction. Model: reads an instruction."""
    ACTION_CHUNK = "action-chunk"
    """Simulator or model: more than one action a call."""
    OFFLOAD = "offload"
    """Any: ``offload`` and ``onload`` free and refill the device."""
    DISTRIBUTED = "distributed"
    """Training backend: trains one model on several ranks."""
    PROCESSES = "processes"
    """Runtime: every worker runs in a process of its own, so that groups work side by side."""
    CLUSTER = "cluster"
    """Runtime: devices are those of several machines, so a run's are not counted on this one."""
    GENERATE = "generate"
    """Rollout engine: generates text."""
