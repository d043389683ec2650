"""An embodied run: simulate and act, learn, send the new weights; again.

The flow is written once, as calls on groups joined by channels. Where groups run and what overlaps
is the runtime's and the placement's affair; neither changes this file.

    simulation --observations--> rollout --trajectories--> training
               <----actions-----         <----weights-----
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.config.validate import Run
from rlinf_core.data.outcomes import summary
from rlinf_core.protocols.runtime import Runtime
from rlinf_core.protocols.weight_transport import Layout
from rlinf_core.runs.checkpoint import Checkpoint
from rlinf_core.runs.evaluation import Evaluation, Evaluator, check_states
from rlinf_core.runs.layout import stage_keys, stream_channel
from rlinf_core.runs.session import Session


@dataclass(frozen=True)
class Iteration:
    """What one iteration came to.

    Attributes:
        step: iterations done.
        env_steps: environment steps done over the whole run.
        metrics: by name; those under ``time/`` differ from run to run, all others do not.
    """

    step: int
    env_steps: int
    metrics: Mapping[str, float]


class EmbodiedRun:
    """Trains the policy of one run. Make it, :meth:`load` if resuming, then :meth:`iterate`.

    Making it starts every group, so what cannot work is refused here.

    Args:
        run: the validated run.
        runtime: where its workers run.
        report: takes lines meant for a person.

    Raises:
        RequestError: the simulator has fewer initial states than evaluation asks for.
    """

    def __init__(self, run: Run, runtime: Runtime, report: Callable[[str], None]) -> None:
        self._config = run.config
        self._report = report
        session = Session(run, runtime)
        collect = run.config.collect
        # The episodes of a group end with the rollout, so none is under way at a checkpoint.
        groups = session.group_size
        self._restores = groups == 1 and session.simulator_can(Capability.RESTORE)
        self._success = session.simulator_can(Capability.SUCCESS)
        self._simulation = session.simulation("simulation", collect.envs, session.stages, groups)
        self._rollout = session.rollout()
        self._training = session.training()
        self._evaluator = Evaluator(session, self._rollout)
        self._keys = stage_keys(self._simulation.size, session.stages)
        room = stream_channel(len(self._keys))
        self._observations = runtime.channel("observations", room)
        self._actions = runtime.channel("actions", room)
        self._trajectories = runtime.channel("trajectories", room)
        self._step, self._env_steps = 0, 0

        spaces = self._simulation.call("spaces").wait()[0]
        check_states(self._simulation, run.config.evaluation.split, run.config.evaluation.episodes)
        built = [group.call("build", spaces) for group in (self._rollout, self._training)]
        self._open_weights(runtime)
        for future in built:
            future.wait()
        self._sync_weights()

    def iterate(self) -> Iteration:
        """Collect, learn, send the new weights."""
        collect = self._config.collect
        began = time.perf_counter()
        simulated = self._simulation.call(
            "collect", collect.steps, self._observations, self._actions
        )
        acted = self._rollout.call(
            "serve",
            self._step * collect.steps,
            collect.steps,
            self._keys,
            self._observations,
            self._actions,
            self._trajectories,
        )
        trained = self._training.call(
            "update", self._step, collect.steps * collect.envs, self._trajectories
        )
        episodes = [episode for part in simulated.wait() for episode in part]
        acted.wait()
        learned = trained.wait()[0]
        self._sync_weights()
        ended = time.perf_counter()

        self._step += 1
        executed = int(learned.pop("executed_steps"))
        self._env_steps += executed
        metrics = {
            "env_steps": float(self._env_steps),
            **summary(episodes, self._success),
            **learned,
            "time/iteration_s": ended - began,
            "time/collect_s": ended - began - learned["time/update_s"],
            "time/env_steps_per_s": executed / (ended - began),
        }
        return Iteration(self._step, self._env_steps, metrics)

    # --- weights ---------------------------------------------------------------------------------

    def _open_weights(self, runtime: Runtime) -> None:
        channel = runtime.channel("weights")
        source, target = Layout(self._training.size), Layout(self._rollout.size)
        for group in (self._training, self._rollout):
            group.call("open_weights", channel, source, target).wait()

    def _sync_weights(self) -> None:
        sent = self._training.call("send_weights")
        received = self._rollout.call("receive_weights")
        sent.wait()
        received.wait()

    # --- evaluation ------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Evaluate the current weights greedily on held-out initial states."""
        evaluation = self._config.evaluation
        return self._evaluator.run(evaluation.split, evaluation.episodes)

    def record(self, path: Path) -> str:
        """Write a video of a few evaluation episodes; return why not, or ""."""
        return self._evaluator.record(self._config.evaluation.split, path)

    # --- checkpoints -----------------------------------------------------------------------------

    def save(self, folder: Path) -> dict[str, Any]:
        """Write what training needs below ``folder`` and return where the run is.

        Episodes under way are saved where the simulator restores its state. Elsewhere they are
        abandoned here, so that going on and resuming see the same.
        """
        version = self._training.call("save", str(folder / "training")).wait()[0]
        if self._restores:
            self._simulation.call("save", str(folder / "simulation")).wait()
        elif any(self._simulation.call("restart").wait()):
            self._report("episodes under way were restarted: this simulator cannot restore them")
        counters: dict[str, int] = {}
        for part in self._simulation.call("counters").wait():
            counters |= part
        return {
            "env_steps": self._env_steps,
            "version": version,
            "episode_counters": counters,
        }

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self._training.call("load", str(checkpoint.training)).wait()
        self._sync_weights()
        self._simulation.call("set_counters", checkpoint.state["episode_counters"]).wait()
        if self._restores:
            restored = self._simulation.call("load", str(checkpoint.folder / "simulation")).wait()
            if not all(restored):
                self._report("episodes under way start anew: environments are laid out differently")
        self._step = checkpoint.step
        self._env_steps = int(checkpoint.state["env_steps"])
