"""Evaluating a checkpoint: the simulator, the model and the engine of a run, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

from rlinf_core.config.validate import Run
from rlinf_core.runs.checkpoint import Checkpoint
from rlinf_core.runs.evaluation import Evaluation, Evaluator
from rlinf_core.runs.interrupt import interrupt_on_signal
from rlinf_core.runs.recovery import Made, Recovery
from rlinf_core.runs.session import Session, open_runtime

SECTIONS = {"simulator", "model", "rollout", "weights"}
"""The sections of a run file that evaluation reads."""


def evaluate(run: Run, checkpoint: Checkpoint, video: Path | None) -> tuple[Evaluation, str]:
    """Visit each initial state once with the checkpoint's weights.

    Args:
        run: a run validated for :data:`SECTIONS`.
        checkpoint: whose weights to load.
        video: where to write a video grid; None writes none.

    Returns:
        The outcome, and why the video could not be made, or "".
    """
    with interrupt_on_signal() as stop, open_runtime(run) as runtime:
        stop.now = runtime.interrupt
        session = Session(run, runtime)
        rollout = session.rollout()
        evaluator = Evaluator(session, rollout)
        split, episodes = run.config.evaluation.split, run.config.evaluation.episodes

        def load(made: Made = ()) -> None:
            """Give the weights to whoever acts."""
            rollout.call("build", evaluator.spaces(episodes)).wait()
            version = int(checkpoint.state["version"])
            rollout.call("load_weights", str(checkpoint.training), version).wait()

        recovery = Recovery(run, runtime, lambda text: print(text, file=sys.stderr))
        recovery.persist(load, lambda made: None)
        evaluation = recovery.persist(lambda: evaluator.run(split, episodes), load)
        if video is None:
            return evaluation, ""
        return evaluation, recovery.persist(lambda: evaluator.record(split, video), load)
