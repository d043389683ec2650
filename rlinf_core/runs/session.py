"""Session: the groups and channels of an embodied run, from its validated configuration.

What is the same for training and evaluating stands here; what happens in which order stands in
``embodied.py`` and ``evaluation.py``. Nothing here imports torch: workers are named by string.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.config.validate import Run
from rlinf_core.errors import ConfigError
from rlinf_core.flow.arrange import arranged
from rlinf_core.flow.memory import takes_turns
from rlinf_core.placement import GroupPlace
from rlinf_core.plugins.resolve import load
from rlinf_core.protocols.runtime import Runtime, WorkerGroup, WorkerSpec
from rlinf_core.runs.deadlines import deadlines, restarts, unknown_methods
from rlinf_core.specs import ComponentRef, Facts

_WORKERS = "rlinf_core.runs.workers"


@contextmanager
def open_runtime(run: Run) -> Iterator[Runtime]:
    """Start the run's runtime; whatever happens, everything it started ends with the block."""
    chosen = run.components["runtime"]
    runtime: Runtime = load(chosen.component)(chosen.config)
    try:
        yield runtime
    finally:
        runtime.close()


class Session:
    """Launches the groups of one run on a runtime, each where the placement says.

    Args:
        run: the validated run.
        runtime: where its workers run.

    Raises:
        ConfigError: the run's placement does not fit this machine, its numbers the placement, or
            its deadlines are of methods that there are not.
        RequestError: the runtime has no such devices.
    """

    def __init__(self, run: Run, runtime: Runtime) -> None:
        self.run, self.runtime = run, runtime
        if unknown := list(unknown_methods(run)):
            raise ConfigError(unknown)
        self.arrangement = arranged(run)
        self._turns = takes_turns(run, self.arrangement)
        self._placed: dict[str, GroupPlace] = {}
        runtime.reserve(self.arrangement.groups.values())

    @property
    def stages(self) -> int:
        """Pipeline stages of each simulation process."""
        return self.arrangement.stages

    def simulator_can(self, capability: Capability) -> bool:
        """Return whether the simulator, so configured, declares a capability."""
        return self.run.can("simulator", capability)

    @property
    def group_size(self) -> int:
        """How many consecutive environments the algorithm compares; 1 where there are no groups."""
        return self.run.facts.get("algorithm", Facts()).group_size

    def devices(self) -> dict[str, list[str]]:
        """Return the devices of each worker that was launched, ``{"rollout[0]": ["cpu:2"]}``."""
        return {
            f"{name}[{rank}]": [str(device) for device in process.devices]
            for name, place in self._placed.items()
            for rank, process in enumerate(place)
        }

    def _part(self, section: str) -> tuple[ComponentRef, Any]:
        chosen = self.run.components[section]
        return self.run.registry.ref(chosen.component), chosen.config

    def _launch(self, name: str, worker: str, place: GroupPlace, **arguments: Any) -> WorkerGroup:
        part = worker.partition(":")[0]
        spec = WorkerSpec(
            name,
            f"{_WORKERS}.{worker}",
            arguments,
            part in self._turns,
            deadlines(self.run, part),
            restarts(self.run, part),
        )
        self._placed[name] = place
        return self.runtime.launch(spec, len(place), place)

    def simulation(self, name: str, envs: int, stages: int, group_size: int = 1) -> WorkerGroup:
        """Launch a group that simulates ``envs`` environments, with groups of them if need be.

        It goes where simulation is placed, in no more processes than it has environments.
        """
        simulator, config = self._part("simulator")
        return self._launch(
            name,
            "simulation:SimulationWorker",
            self.arrangement.beside_simulation(envs),
            simulator=simulator,
            config=config,
            envs=envs,
            stages=stages,
            group_size=group_size,
            chunk=self.run.config.collect.chunk,
            seed=self.run.config.seed,
        )

    def rollout(self) -> WorkerGroup:
        """Launch the group that acts."""
        engine, engine_config = self._part("rollout")
        return self._launch(
            "rollout",
            "rollout:RolloutWorker",
            self.arrangement.groups["rollout"],
            engine=engine,
            engine_config=engine_config,
            **self._model(),
        )

    def training(self) -> WorkerGroup:
        """Launch the group that learns."""
        backend, backend_config = self._part("training")
        algorithm, algorithm_config = self._part("algorithm")
        update = self.run.config.update
        return self._launch(
            "training",
            "training:TrainingWorker",
            self.arrangement.groups["training"],
            backend=backend,
            backend_config=backend_config,
            algorithm=algorithm,
            algorithm_config=algorithm_config,
            epochs=update.epochs,
            minibatch_size=update.minibatch_size,
            microbatch_size=update.microbatch_size or update.minibatch_size,
            streaming=update.streaming,
            **self._model(),
        )

    def _model(self) -> dict[str, Any]:
        model, model_config = self._part("model")
        weights, weights_config = self._part("weights")
        return {
            "model": model,
            "model_config": model_config,
            "weights": weights,
            "weights_config": weights_config,
            "chunk": self.run.config.collect.chunk,
            "seed": self.run.config.seed,
        }
