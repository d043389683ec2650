"""A run in a plain loop: the same parts, called one after the other, without workers or channels.

``python -m benchmarks.plain RUN ITERATIONS [OVERRIDE ...]`` takes turns with the flow on
``inline``, iteration by iteration, and prints the median seconds of both. Their numbers must be the
same to the bit, or it fails.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from rlinf_core.api import Batch, Counts, EnvSlots, Mode
from rlinf_core.config.validate import Run, load_run
from rlinf_core.data.draws import DrawsAhead, stream_seed
from rlinf_core.data.outcomes import Episode, summary
from rlinf_core.data.trajectory import TrajectoryBuilder
from rlinf_core.plugins.resolve import load
from rlinf_core.runs.embodied import EmbodiedRun
from rlinf_core.runs.session import open_runtime
from rlinf_core.runs.workers.build import policy_factory
from rlinf_core.runs.workers.stage import Stage

OUTCOME = ("reward", "terminated", "truncated", "success", "valid")
SHUFFLE = 2  # the stream of the run's seed that shuffles rows


class PlainRun:
    """What ``EmbodiedRun`` does for a simulator in one stage and an algorithm without groups.

    Args:
        run: the validated run.
    """

    def __init__(self, run: Run) -> None:
        self.config = config = run.config
        parts = run.components

        def make(section: str, *more: Any) -> Any:
            return load(parts[section].component)(parts[section].config, *more)

        slots = EnvSlots(tuple(range(config.collect.envs)), config.seed, config.collect.chunk)
        self.simulator = make("simulator", slots)
        self.engine, self.backend = make("rollout", "cpu"), make("training", "cpu")
        self.algorithm = make("algorithm")
        self.stage = Stage(self.simulator, config.seed, 1)
        model = parts["model"]
        make_policy = policy_factory(
            run.registry.ref(model.component), model.config, self.simulator.spaces,
            config.collect.chunk, config.seed,
        )  # fmt: skip
        self.engine.build(make_policy)
        self.backend.build(make_policy)
        self.ids, self.draws = list(slots.ids), DrawsAhead(config.seed)
        self.iteration, self.env_steps = 0, 0
        self.sync()

    def iterate(self) -> dict[str, float]:
        """Collect, learn, copy the new weights; return the metrics."""
        trajectory, episodes = self.collect()
        learned = self.learn(trajectory)
        self.sync()
        self.iteration += 1
        self.env_steps += int(trajectory["valid"].sum())
        return {"env_steps": float(self.env_steps), **summary(episodes, True), **learned}

    def sync(self) -> None:
        self.engine.load(self.backend.export(), self.backend.iteration)

    # --- collecting ------------------------------------------------------------------------------

    def collect(self) -> tuple[Batch, list[Episode]]:
        steps, builder = self.config.collect.steps, TrajectoryBuilder()
        episodes: list[Episode] = []
        message = self.stage.greeting()
        for step in range(self.iteration * steps, (self.iteration + 1) * steps):
            ids = message["env"]  # [N]
            act = self.engine.act(message["obs"], self.draws.at(self.ids, step), Mode.SAMPLE)
            builder.act(
                obs=message["obs"],
                replay=act.replay,
                logp=act.logp,
                value=act.value,
                env=ids,
                step=torch.full_like(ids, step),
                version=torch.full_like(ids, self.engine.version),
            )
            message, ended = self.stage.step(act.actions)
            episodes += ended
            builder.outcome(self.final_values(message), **{n: message[n] for n in OUTCOME})
        return builder.build(self.engine.act(message["obs"], None, Mode.VALUE).value), episodes

    def final_values(self, message: Batch) -> Tensor | None:
        if "final_obs" not in message:
            return None
        truncated = (message["truncated"] & message["valid"]).any(dim=1)  # [N]
        act = self.engine.act(message["final_obs"].rows(truncated), None, Mode.VALUE)
        values = torch.zeros(len(message), dtype=act.value.dtype)  # [N]
        values[truncated] = act.value
        return values

    # --- learning --------------------------------------------------------------------------------

    def learn(self, trajectory: Batch) -> dict[str, float]:
        rows = self.algorithm.advantages(trajectory, self.backend.reduce).flatten()
        update = self.config.update
        history: list[Mapping[str, float]] = []
        for epoch in range(update.epochs):
            generator = torch.Generator()
            generator.manual_seed(stream_seed(self.config.seed, SHUFFLE, self.iteration, epoch))
            order = torch.randperm(len(rows), generator=generator)
            minibatches = torch.split(order, update.minibatch_size)
            history += [self.step(rows.rows(chosen)) for chosen in minibatches]
        executed = trajectory["valid"].any(dim=-1)  # [T, N]
        self.backend.policy.observe(trajectory["obs"], executed, self.backend.reduce)
        self.backend.advance()
        return {
            f"train/{name}": math.fsum(each[name] for each in history) / len(history)
            for name in history[0]
        }

    def step(self, minibatch: Batch) -> Mapping[str, float]:
        valid = minibatch["valid"]  # [B, C]
        executed = valid.any(dim=1)  # [B]
        groups = torch.tensor(len(minibatch["env"][executed].unique()))
        counts = Counts(steps=valid.sum(), rows=executed.sum(), groups=groups)
        size = self.config.update.microbatch_size or self.config.update.minibatch_size
        return dict(
            self.backend.update(
                minibatch.split(size),
                lambda micro, evaluation: self.algorithm.loss(micro, evaluation, counts),
            )
        )


def timed(iterate: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = iterate()
    return time.perf_counter() - began, found


def measure(name: str, iterations: int, overrides: Sequence[str]) -> dict[str, float]:
    """Return the median seconds of an iteration, of the flow and of the plain loop.

    Raises:
        SystemExit: a metric or a weight differs.
    """
    run = load_run(name, ["cluster.runtime=inline", *overrides])
    seconds: dict[str, list[float]] = {"flow": [], "plain": []}
    with open_runtime(run) as runtime, tempfile.TemporaryDirectory() as folder:
        flow, plain = EmbodiedRun(run, runtime, print), PlainRun(run)
        try:
            for number in range(iterations):
                # Who goes first takes turns as well.
                for who in sorted(seconds, reverse=bool(number % 2)):
                    if who == "flow":
                        taken, iteration = timed(flow.iterate)
                        flow.spans()
                    else:
                        taken, metrics = timed(plain.iterate)
                    seconds[who].append(taken)
                compare(number, iteration.metrics, metrics)
            flow.save(Path(folder))
            saved = load_file(Path(folder) / "training" / "model.safetensors")
        finally:
            plain.simulator.close()
    for weight, tensor in plain.backend.policy.state_dict().items():
        if not torch.equal(tensor, saved[weight]):
            raise SystemExit(f"the weights {weight} differ")
    return {who: statistics.median(taken[1:] or taken) for who, taken in seconds.items()}


def compare(number: int, flow: Mapping[str, float], plain: Mapping[str, float]) -> None:
    """Stop where a metric of the plain loop is not what the flow gives."""
    for name, value in plain.items():
        if flow[name] != value and not (flow[name] != flow[name] and value != value):
            raise SystemExit(f"iteration {number}: {name} is {value}, and in the flow {flow[name]}")


if __name__ == "__main__":
    run_, iterations_, *rest = sys.argv[1:]
    print(json.dumps(measure(run_, int(iterations_), rest)))
