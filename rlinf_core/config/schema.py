"""What a run file may say: the base class of all options, and the core's own sections.

An option's help is the docstring below it. Add an option with a default and a range; a rule that
joins several options belongs to :mod:`rlinf_core.config.arithmetic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rlinf_core.devices import AUTO
from rlinf_core.specs import Kind

SECTIONS: Mapping[str, Kind] = MappingProxyType(
    {
        "simulator": Kind.SIMULATOR,
        "data": Kind.DATASET,
        "model": Kind.MODEL,
        "rollout": Kind.ROLLOUT_ENGINE,
        "reward": Kind.REWARD,
        "algorithm": Kind.ALGORITHM,
        "training": Kind.TRAINING_BACKEND,
        "weights": Kind.WEIGHT_TRANSPORT,
        "cluster.runtime": Kind.RUNTIME,
    }
)
"""Dotted path of each section that chooses one component, and the kind it chooses. In this order
facts are worked out, so that each component may look at those before it."""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"rollout": "direct", "weights": "memory", "cluster.runtime": "inline"}
)
"""The component that a section chooses where it names none."""

UNREAD = frozenset({"reward", "data"})
"""Sections that an embodied run does not read, and refuses."""

REQUIRED = frozenset({"simulator", "model", "algorithm", "training", "rollout", "weights"})
"""The sections without which nothing can be trained."""

ALWAYS = frozenset({"cluster.runtime"})
"""The sections that everything needs, whatever else it needs."""


MOST_ENVS, MOST_STEPS, MOST_CHUNK = 1_000_000, 1_000_000_000, 10_000
MOST_STAGES, MOST_ROWS = 1_000, 1_000_000_000
"""Upper bounds, far above what anybody runs: they catch what would overflow later."""


class Config(BaseModel):
    """Base of every component's options: frozen, no unknown keys, no silent conversion.

    A subclass declares fields with types, defaults and ranges, each followed by a docstring, in a
    module that imports no heavy library. Strict means that ``"3"`` is no integer and ``1`` no
    boolean; an integer is still a number, and a YAML list becomes a tuple. Numbers are finite; an
    option that may be infinite says so with ``Field(allow_inf_nan=True)``. Give integers an upper
    bound, too.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
    )


def as_section(value: Any) -> Any:
    """Return a section in its long form: ``ppo`` is short for ``{name: ppo}``."""
    return {"name": value} if isinstance(value, str) else value


class Section(Config):
    """A component that a run uses: its name, and options that its own ``Config`` checks."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(min_length=1)
    """``[distribution/]name`` of the component."""

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the name, as given."""
        return dict(self.model_extra or {})


Label = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
"""What a group of nodes may be called."""

Text = Annotated[str, Field(max_length=1_000_000)]
"""Text of a sensible length."""

Chosen = Annotated[Section, BeforeValidator(as_section)]
"""A section in its short or its long form."""


def as_placement(value: Any) -> Any:
    """Return a placement whose lines are text: ``rollout: 2`` is short for ``rollout: "2"``."""
    if not isinstance(value, dict):
        return value
    lines = {k: str(v) if type(v) is int else v for k, v in value.items()}
    for key, line in lines.items():
        if not isinstance(line, str):  # said here: a union would say it of each of its members
            raise ValueError(f"{key} is {line!r}; wanted devices, such as {key}: 0-3")
    return lines


class CollectConfig(Config):
    """How much experience one iteration collects."""

    envs: int = Field(default=16, ge=1, le=MOST_ENVS)
    """Number of environments."""
    steps: int = Field(default=100, ge=1, le=MOST_STEPS)
    """Steps per environment and iteration, each of one chunk of actions."""
    stages: int | None = Field(default=None, ge=1, le=MOST_STAGES)
    """Groups of environments of one simulation process that take turns, so that simulating and
    acting overlap; null is 2 where these have devices of their own, else 1. Changes no number."""
    chunk: int = Field(default=1, ge=1, le=MOST_CHUNK)
    """Actions per chunk."""
    max_staleness: int = Field(default=0, ge=0, le=100)
    """How many versions the weights that act may lag behind those that learn. 0 is on-policy; with
    k, up to k further iterations are collected while one is learned from."""


class UpdateConfig(Config):
    """How an iteration's experience is used."""

    epochs: int = Field(default=10, ge=1, le=10_000)
    """Times that each row is used."""
    minibatch_size: int = Field(default=400, ge=1, le=MOST_ROWS)
    """Rows per optimizer step."""
    microbatch_size: int | None = Field(default=None, ge=1, le=MOST_ROWS)
    """Rows held in memory at a time; the whole minibatch if not given. Changes no number."""
    streaming: bool = False
    """Whether the first epoch begins with the stages that have finished, while others still act.
    Its minibatches are then each of one stage, so the number of stages changes what is learned."""


class EvaluationConfig(Config):
    """When and how a policy is evaluated."""

    every: int = Field(default=0, ge=0, le=MOST_STEPS)
    """Iterations between evaluations; 0 evaluates only after training."""
    episodes: int = Field(default=100, ge=1, le=1_000_000)
    """Number of episodes, each from an initial state of its own."""
    split: str = Field(default="test", min_length=1)
    """Which initial states of the simulator to start from."""
    envs: int | None = Field(default=None, ge=1, le=MOST_ENVS)
    """Number of environments; that of ``collect`` if not given. Changes no number."""
    video: bool = True
    """Whether to record a video where the simulator can render."""


class CheckpointConfig(Config):
    """What is kept on disk."""

    every: int = Field(default=10, ge=0, le=MOST_STEPS)
    """Iterations between checkpoints; 0 writes one only at the end."""
    keep: int = Field(default=3, ge=1, le=10_000)
    """How many of the newest are kept."""
    best: str | None = "episode/success_once"
    """Metric whose highest value marks the checkpoint kept as best; null keeps none."""


class NodeGroupConfig(Config):
    """Devices that are named together, and what their processes find in their environment."""

    devices: str = Field(default=AUTO, min_length=1)
    """As ``cluster.devices``."""
    environment: dict[str, Text] = {}
    """Environment variables of every process that is placed on this group."""


Seconds = Annotated[float, Field(gt=0, le=1e9)]
"""A stretch of time."""

Methods = Seconds | dict[str, Seconds]
"""Deadlines of one component: one for all its methods, or some by the name of the method."""


class DeadlinesConfig(Config):
    """How many seconds workers may take; who takes longer has failed, and its process is killed."""

    start: Seconds = 300.0
    """From the launch of a worker until it is made: its imports, its simulator or engine."""
    call: Seconds = 3600.0
    """A call of any method, such as the collection of an iteration or an update, with its waits."""
    simulation: Methods = {}
    """Instead of ``call`` for simulation: one number, or some by method, ``{collect: 60}``."""
    rollout: Methods = {}
    """The same for rollout, ``{serve: 60}``."""
    training: Methods = {}
    """The same for training, ``{update: 600}``."""


class RestartsConfig(Config):
    """How often workers that fail are made anew. Training is not: it goes on from checkpoints."""

    simulation: int = Field(default=0, ge=0, le=1_000_000)
    """How many failures of each group of simulators the run survives."""
    rollout: int = Field(default=0, ge=0, le=1_000_000)
    """How many failures of the workers that act it survives."""
    lost: Literal["redo", "drop"] = "redo"
    """What becomes of an iteration that was being collected: "redo" goes back to its beginning, so
    that an undisturbed run would give the same numbers where the simulator restores its state;
    "drop" goes on with the episodes that are left, and keeps no copy of the simulators' state."""


class ClusterConfig(Config):
    """Where a run takes place."""

    runtime: Chosen = Section(name=DEFAULTS["cluster.runtime"])
    """The runtime, which decides where workers run."""
    devices: str = Field(default=AUTO, min_length=1)
    """The run's devices: "auto" for the best accelerator there is, an accelerator's name for all
    that the machine has of it, or a number of them, such as "2 x cuda". "4 x cpu" declares four
    slots of the processor. A runtime of a cluster takes a number as it is: the devices are
    elsewhere."""
    node_groups: dict[Label, NodeGroupConfig] = {}
    """Instead of ``devices``: label to devices that are named together, ``{left: {devices: 2 x
    cpu}}``. On one machine all groups share its devices, and each takes the next ones; a runtime of
    a cluster says which machines a label stands for."""
    sharing: Literal["auto", "resident", "turns"] = "auto"
    """Whether groups on one device all keep their memory there ("resident") or offload it while
    another works ("turns"); "auto" takes turns where they are known not to fit together."""
    deadlines: DeadlinesConfig = DeadlinesConfig()
    """How long workers may take before they count as failed."""
    restarts: RestartsConfig = RestartsConfig()
    """Which workers are made anew when they fail."""


class PluginsConfig(Config):
    """Which plugins this run loads; on top of what the user's own file says."""

    enable: tuple[str, ...] = ()
    """Distributions to load although the user's file disables them."""
    disable: tuple[str, ...] = ()
    """Distributions not to load; "*" is every one that ``enable`` does not name."""
    prefer: dict[str, str] = {}
    """``kind/name`` to the distribution that provides it, where several do."""


class RunConfig(Config):
    """A whole run file."""

    run: Literal["embodied"] = "embodied"
    """Kind of run."""
    name: str = Field(default="run", max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Name of the run; that of its file if not given."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Where all random numbers of the run come from."""
    steps: int = Field(default=100, ge=1, le=MOST_STEPS)
    """Number of iterations."""
    simulator: Chosen | None = None
    """The world to act in."""
    model: Chosen | None = None
    """The policy."""
    algorithm: Chosen | None = None
    """What an update maximises."""
    training: Chosen | None = None
    """The training backend."""
    rollout: Chosen = Section(name=DEFAULTS["rollout"])
    """The engine that runs the policy to collect experience."""
    weights: Chosen = Section(name=DEFAULTS["weights"])
    """How weights travel from training to rollout."""
    reward: Chosen | None = None
    """What scores where the simulator does not."""
    data: Chosen | None = None
    """The samples to start from, where a run needs any."""
    loggers: tuple[Chosen, ...] = (Section(name="console"), Section(name="jsonl"))
    """What shows or keeps what the run reports."""
    collect: CollectConfig = CollectConfig()
    """How much experience one iteration collects."""
    update: UpdateConfig = UpdateConfig()
    """How that experience is used."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """When and how the policy is evaluated."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """What is kept on disk."""
    placement: Annotated[
        Literal["auto"] | dict[str, Text] | None, BeforeValidator(as_placement)
    ] = None
    """Which devices each of ``simulation``, ``rollout`` and ``training`` gets, and in how many
    processes, such as ``{simulation: 0-1, rollout: 2, training: "all:1"}``; null puts each into one
    process that has all of them."""
    cluster: ClusterConfig = ClusterConfig()
    """Where the run takes place."""
    plugins: PluginsConfig = PluginsConfig()
    """Which plugins this run loads."""
