"""An embodied run: simulate and act, learn, send the new weights; again.

The flow is written once, as calls on groups joined by channels. Where groups run and what overlaps
is the runtime's and the placement's affair; neither changes this file.

    simulation --observations--> rollout --trajectories--> training
               <----actions-----         <----weights-----

Where workers may be made anew (``cluster.restarts``), an iteration is first collected whole and
then learned from, so that a failure before spoils nothing that was learned, and one after is
mended without collecting again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlinf_core.capability import Capability
from rlinf_core.config.validate import Run
from rlinf_core.data.outcomes import Episode, summary
from rlinf_core.flow.timeline import TimelineWriter
from rlinf_core.protocols.runtime import Future, Runtime, Span
from rlinf_core.protocols.weight_transport import Layout
from rlinf_core.runs.checkpoint import Checkpoint
from rlinf_core.runs.evaluation import Evaluation, Evaluator, check_states
from rlinf_core.runs.layout import owned_envs, stage_keys, stream_channel, streams
from rlinf_core.runs.recovery import Collected, Made, Recovery
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
        self._session = session = Session(run, runtime)
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
        pieces = len(self._keys) * self._training.size * (1 + collect.max_staleness)
        self._trajectories = runtime.channel(
            "trajectories", replace(stream_channel(pieces), max_staleness=collect.max_staleness)
        )
        self._sources = streams(collect.envs, self._simulation.size, session.stages)
        self._owned = owned_envs(collect.envs, groups, self._training.size)
        self._step, self._env_steps = 0, 0
        self._collecting: deque[tuple[Future, Future]] = deque()
        self.recovery = Recovery(run, runtime, report)
        self._collected = Collected(
            self._simulation, self._restores, groups > 1, self.recovery.drops
        )
        self.recovery.persist(self._begin, lambda made: None)

    def _begin(self) -> None:
        """Make of the workers what a run needs."""
        evaluation = self._config.evaluation
        if self._training.size > 1:
            self._training.call("join", self._session.runtime.channel("gradients"))
        self._spaces = self._simulation.call("spaces").wait()[0]
        check_states(self._simulation, evaluation.split, evaluation.episodes)
        built = [group.call("build", self._spaces) for group in (self._rollout, self._training)]
        self._open_weights()
        for future in built:
            future.wait()
        self._sync_weights()
        self._remember()

    @property
    def collecting(self) -> int:
        """How many iterations beyond the last one have been begun."""
        return len(self._collecting)

    def iterate(self, ahead: int = 0) -> Iteration:
        """Collect, learn, send the new weights.

        Args:
            ahead: how many iterations after this one may begin to collect while it learns; at most
                the run's ``max_staleness`` do. They have to be iterated before a checkpoint.
        """
        began = time.perf_counter()
        flow = self._collect_then_learn if self.recovery.declared else self._collect_and_learn
        episodes, learned, learned_at = flow(ahead)
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
            "time/weight_sync_s": ended - learned_at,
            "time/env_steps_per_s": executed / (ended - began),
            **self.recovery.metrics(),
        }
        return Iteration(self._step, self._env_steps, metrics)

    def _collect_and_learn(self, ahead: int) -> tuple[list[Episode], dict[str, float], float]:
        """Do an iteration of which nothing is repeated.

        Returns:
            Its episodes and metrics, and when it had learned: a time of ``perf_counter``.
        """
        while self.collecting <= min(ahead, self._config.collect.max_staleness) or (
            not self._collecting
        ):
            self._collecting.append(self._collect(self._step + self.collecting))
        simulated, acted = self._collecting.popleft()
        trained = self._training.call(
            "update", self._step, self._sources, self._owned, self._trajectories
        )
        episodes = [episode for part in simulated.wait() for episode in part]
        acted.wait()
        learned = trained.wait()[0]
        learned_at = time.perf_counter()
        self._sync_weights()
        return episodes, learned, learned_at

    def _collect_then_learn(self, ahead: int) -> tuple[list[Episode], dict[str, float], float]:
        """Do the same in three parts, of which the first and the last can be repeated."""
        episodes = self.recovery.persist(self._collect_whole, self._restore_start)
        learned = self._once("update", self._step, self._sources, self._owned)[0]
        learned_at = time.perf_counter()
        self.recovery.persist(self._sync_weights, lambda made: self._restore(made, sending=True))
        return episodes, learned, learned_at

    def _once(self, method: str, *args: Any) -> list[Any]:
        """Call training for what must be done once, whoever else fails meanwhile."""
        called = self.recovery.persist(lambda: self._training.call(method, *args), self._restore)
        return self.recovery.finish(called)

    def _collect_whole(self) -> list[Episode]:
        simulated, acted = self._collect(self._step)
        where = self._collected.ask()
        gathered = self._training.call("gather", self._sources, self._owned, self._trajectories)
        episodes = [episode for part in simulated.wait() for episode in part]
        for future in (acted, gathered):
            future.wait()
        self._collected.keep(where.wait())
        return episodes

    # --- after failures --------------------------------------------------------------------------

    def _remember(self) -> None:
        if self.recovery.declared:
            self._collected.keep(self._collected.ask().wait())

    def _restore(self, made: Made, spoiled: bool = False, sending: bool = False) -> None:
        """Make of new workers what the failed ones were between two iterations.

        Where the failure came while weights were sent, they are to be sent again: some may have
        come, and no version is taken twice, so both ends begin anew.
        """
        ranks = [rank for group, rank in made if group == self._rollout.name]
        if ranks:
            self._rollout.call("build", self._spaces, ranks=ranks).wait()
        if ranks or sending:
            self._open_weights()
        if ranks and not sending:
            self._sync_weights()
        if self._collected.back(made, spoiled):
            self._report("episodes that were under way begin anew")

    def _restore_start(self, made: Made) -> None:
        """Go back to the beginning of the iteration, or drop what was lost of it."""
        self._restore(made, spoiled=True)
        if self.recovery.drops:
            self.recovery.dropped += 1
        else:
            self.recovery.redone += 1

    def timeline(self, path: Path) -> TimelineWriter:
        """Return a writer of this run's timeline, which knows who runs where."""
        return TimelineWriter(path, self._session.devices)

    def spans(self) -> list[Span]:
        """Return what workers did since the last time."""
        return self._session.runtime.spans()

    def _collect(self, step: int) -> tuple[Future, Future]:
        """Begin to collect an iteration, as soon as the one before is collected."""
        steps = self._config.collect.steps
        channels = self._observations, self._actions
        simulated = self._simulation.call("collect", steps, *channels)
        acted = self._rollout.call(
            "serve", step * steps, steps, self._keys, *channels, self._trajectories, self._owned
        )
        return simulated, acted

    # --- weights ---------------------------------------------------------------------------------

    def _open_weights(self) -> None:
        runtime = self._session.runtime
        channels = runtime.channel("weights"), runtime.channel("weights_replies")
        groups = self._training, self._rollout
        ends = [Layout(group.size, group.name) for group in groups]
        for group in groups:
            group.call("open_weights", *channels, *ends).wait()

    def _sync_weights(self) -> None:
        sent = self._training.call("send_weights")
        received = self._rollout.call("receive_weights")
        sent.wait()
        if not self._collecting:  # else it receives them when it has collected what it is at
            received.wait()

    # --- evaluation ------------------------------------------------------------------------------

    def evaluate(self) -> Evaluation:
        """Evaluate the current weights greedily on held-out initial states."""
        evaluation = self._config.evaluation
        return self.recovery.persist(
            lambda: self._evaluator.run(evaluation.split, evaluation.episodes), self._restore
        )

    def record(self, path: Path) -> str:
        """Write a video of a few evaluation episodes; return why not, or ""."""
        return self.recovery.persist(
            lambda: self._evaluator.record(self._config.evaluation.split, path), self._restore
        )

    # --- checkpoints -----------------------------------------------------------------------------

    def save(self, folder: Path) -> dict[str, Any]:
        """Write what training needs below ``folder`` and return where the run is.

        Episodes under way are saved where the simulator restores its state. Elsewhere they are
        abandoned here, so that going on and resuming see the same.
        """
        version = self._once("save", str(folder / "training"))[0]
        counters = self.recovery.persist(lambda: self._save_simulation(folder), self._restore)
        return {
            "env_steps": self._env_steps,
            "version": version,
            "episode_counters": counters,
        }

    def _save_simulation(self, folder: Path) -> dict[str, int]:
        if self._restores:
            self._simulation.call("save", str(folder / "simulation")).wait()
        elif any(self._simulation.call("restart").wait()):
            self._report("episodes under way were restarted: this simulator cannot restore them")
        counters: dict[str, int] = {}
        for part in self._simulation.call("counters").wait():
            counters |= part
        self._remember()  # other episodes may be under way than were
        return counters

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.recovery.persist(lambda: self._load(checkpoint), self._restore)
        self._step = checkpoint.step
        self._env_steps = int(checkpoint.state["env_steps"])

    def _load(self, checkpoint: Checkpoint) -> None:
        self._training.call("load", str(checkpoint.training)).wait()
        self._sync_weights()
        self._simulation.call("set_counters", checkpoint.state["episode_counters"]).wait()
        if self._restores:
            restored = self._simulation.call("load", str(checkpoint.folder / "simulation")).wait()
            if not all(restored):
                self._report("episodes under way start anew: environments are laid out differently")
        self._remember()
