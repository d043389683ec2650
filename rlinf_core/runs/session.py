"""Session: the groups and channels of an embodied run, from its validated configuration.

What is the same for training and evaluating stands here; what happens in which order stands in
``embodied.py`` and ``evaluation.py``. Nothing here imports torch: workers are named by string.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlinf_core.capability import Capability, Level
from rlinf_core.config.validate import Run
from rlinf_core.errors import RequestError
from rlinf_core.placement import GroupPlace
from rlinf_core.plugins.resolve import load
from rlinf_core.protocols.runtime import Runtime, WorkerGroup, WorkerSpec
from rlinf_core.specs import ComponentRef, Facts, Kind

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


def choose_device(run: Run) -> str:
    """Return the torch name of the device to use: the accelerator named, or the best there is.

    Raises:
        RequestError: the accelerator named has no device on this machine.
    """
    named = run.components.get("devices")
    if named is not None:
        accelerator = load(named.component)()
        if accelerator.count() == 0:
            raise RequestError(
                f"cluster.devices: {named.component.spec.name}, but this machine has none; wanted "
                "'auto', 'cpu' or an accelerator that is there"
            )
        return str(accelerator.torch_name)
    every = [load(c)() for c in run.registry.components(Kind.ACCELERATOR)]
    found = [a for a in every if a.torch_name != "cpu" and a.count() > 0]
    return str(found[0].torch_name) if found else "cpu"


class Session:
    """Launches the groups of one run on a runtime.

    Args:
        run: the validated run.
        runtime: where its workers run.
    """

    def __init__(self, run: Run, runtime: Runtime) -> None:
        self.run, self.runtime = run, runtime
        self.device = choose_device(run)
        self._placed: dict[str, GroupPlace] = {}

    def simulator_can(self, capability: Capability) -> bool:
        """Return whether the simulator, so configured, declares a capability."""
        declared = self.run.components["simulator"].component.spec.capabilities
        levels = {**declared, **self.run.facts["simulator"].capabilities}
        return levels.get(capability) is Level.FULL

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

    def _launch(self, name: str, worker: str, **arguments: Any) -> WorkerGroup:
        return self.runtime.launch(WorkerSpec(name, f"{_WORKERS}.{worker}", arguments))

    def simulation(self, name: str, envs: int, stages: int, group_size: int = 1) -> WorkerGroup:
        """Launch a group that simulates ``envs`` environments, with groups of them if need be."""
        simulator, config = self._part("simulator")
        return self._launch(
            name,
            "simulation:SimulationWorker",
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
            engine=engine,
            engine_config=engine_config,
            device=self.device,
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
            backend=backend,
            backend_config=backend_config,
            algorithm=algorithm,
            algorithm_config=algorithm_config,
            epochs=update.epochs,
            minibatch_size=update.minibatch_size,
            microbatch_size=update.microbatch_size or update.minibatch_size,
            device=self.device,
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
