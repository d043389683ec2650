"""Evaluating a checkpoint: the simulator, the model and the engine of a run, and nothing else."""

from __future__ import annotations

from pathlib import Path

from rlinf_core.config.validate import Run
from rlinf_core.protocols.runtime import Runtime
from rlinf_core.runs.checkpoint import Checkpoint
from rlinf_core.runs.evaluation import Evaluation, Evaluator
from rlinf_core.runs.interrupt import interrupt_on_signal
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
    with open_runtime(run) as runtime, interrupt_on_signal(runtime.interrupt):
        evaluator = _load(run, runtime, checkpoint)
        split = run.config.evaluation.split
        evaluation = evaluator.run(split, run.config.evaluation.episodes)
        return evaluation, "" if video is None else evaluator.record(split, video)


def _load(run: Run, runtime: Runtime, checkpoint: Checkpoint) -> Evaluator:
    session = Session(run, runtime)
    rollout = session.rollout()
    evaluator = Evaluator(session, rollout)
    rollout.call("build", evaluator.spaces(run.config.evaluation.episodes)).wait()
    version = int(checkpoint.state["version"])
    rollout.call("load_weights", str(checkpoint.training), version).wait()
    return evaluator
