"""Training a run: its folder, loggers and checkpoints around the flow of ``embodied.py``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlinf_core.config.validate import Run, to_plain
from rlinf_core.errors import CheckpointError, RuntimeFailure
from rlinf_core.files import choose_folder, locked, why_not, write_json
from rlinf_core.flow.timeline import NAME as TIMELINE
from rlinf_core.flow.timeline import TimelineWriter
from rlinf_core.protocols.logger import RunInfo
from rlinf_core.runs.checkpoint import Checkpoint, CheckpointStore, differences
from rlinf_core.runs.curve import draw_curve
from rlinf_core.runs.embodied import EmbodiedRun
from rlinf_core.runs.evaluation import Evaluation
from rlinf_core.runs.interrupt import StopRequest, stop_on_signal
from rlinf_core.runs.loggers import Loggers
from rlinf_core.runs.plan import check_plan
from rlinf_core.runs.session import open_runtime


@dataclass(frozen=True)
class Result:
    """What a training run came to; paths are None where there is no such file."""

    outcome: str
    seed: int
    steps: int
    env_steps: int
    seconds: float
    folder: Path
    checkpoint: Path | None = None
    metrics: Path | None = None
    curve: Path | None = None
    video: Path | None = None
    video_note: str | None = None
    evaluation: Evaluation | None = None
    last_metrics: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain data with its ``schema_version``."""
        plain = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}
        plain["evaluation"] = None if self.evaluation is None else self.evaluation.as_json()
        return {"schema_version": 1, **plain}


@contextmanager
def _announced(run: Run, loggers: Loggers) -> Iterator[list[Result]]:
    """Tell plugins that the run begins, and them and loggers how it ended.

    Yields a list for the run's result, if it comes to one.
    """
    for failure in run.plugins.notify("rlinf_run_started", run=run):
        loggers.message(failure)
    outcome, results = "failed", list[Result]()
    try:
        yield results
        outcome = results[0].outcome
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        for failure in run.plugins.notify("rlinf_run_finished", run=run, outcome=outcome):
            loggers.message(failure)
        loggers.close(outcome)


def train(run: Run, output: Path | None, resume: bool) -> Result:
    """Train until the run's ``steps`` are done or somebody asks it to stop.

    Args:
        run: the validated run.
        output: the run's folder; None chooses one below ``runs/``.
        resume: go on from the last whole checkpoint in that folder.

    Raises:
        RequestError: the run does not fit this machine, the folder cannot be used, or the simulator
            cannot do what the run asks.
        WorkerFailed: a worker raised or died; checkpoints written before stay.
    """
    check_plan(run)
    folder = choose_folder(run.config.name, output, resume)
    loggers = Loggers(run)
    store = CheckpointStore(folder, run.config.checkpoint.keep, run.config.checkpoint.best)
    with (
        locked(folder),
        stop_on_signal(loggers.message) as stop,
        _announced(run, loggers) as results,
        open_runtime(run) as runtime,
    ):
        stop.now = runtime.interrupt
        try:
            embodied = EmbodiedRun(run, runtime, loggers.message)
            checkpoint = _resume(store, embodied, loggers.message) if resume else None
            result = _Training(folder, run, store, loggers, embodied, stop).go(checkpoint)
            results.append(result)
        except RuntimeFailure:
            if store.newest is not None:
                text = f"the last checkpoint is of step {store.newest}; --resume goes on from it"
                loggers.message(text)
            raise
        finally:
            stop.ends()
    return result


def _resume(
    store: CheckpointStore, embodied: EmbodiedRun, report: Callable[[str], None]
) -> Checkpoint | None:
    store.sweep()
    checkpoint = store.last(report)
    if checkpoint is None and not store.empty:
        raise CheckpointError(
            f"{store.folder} holds checkpoints but none that is whole, and nothing is overwritten; "
            "start anew with another --output, or mend or remove them"
        )
    if checkpoint is None:
        report(f"no checkpoint in {store.folder}: starting at step 0")
        return None
    store.set_aside(checkpoint.step, report)
    report(f"resuming after step {checkpoint.step} from {checkpoint.folder}")
    embodied.load(checkpoint)
    return checkpoint


class _Training:
    """One try at a run: iterations, checkpoints between them, and what is made at the end."""

    def __init__(
        self,
        folder: Path,
        run: Run,
        store: CheckpointStore,
        loggers: Loggers,
        embodied: EmbodiedRun,
        stop: StopRequest,
    ) -> None:
        self._folder, self._config, self._plain = folder, run.config, to_plain(run)
        self._store, self._loggers, self._embodied, self._stop = store, loggers, embodied, stop
        self._timeline: TimelineWriter | None = embodied.timeline(folder / TIMELINE)
        self._began = time.monotonic()
        self._step, self._env_steps = 0, 0
        self._metrics: Mapping[str, float] = {}
        self._saved: Path | None = None

    def go(self, checkpoint: Checkpoint | None) -> Result:
        every = self._config.checkpoint.every
        if self._stop.wanted():
            raise KeyboardInterrupt  # nothing was written yet
        self._begin(checkpoint)
        while self._goes_on():
            iteration = self._embodied.iterate(self._ahead())
            self._draw_on_timeline()
            self._step, self._env_steps = iteration.step, iteration.env_steps
            self._metrics = self._with_evaluation(iteration.metrics)
            self._loggers.log(self._step, self._metrics)
            self._saved = None
            if every and self._step % every == 0:
                self._save()
        if self._saved is None and self._step:
            self._save()
        if self._stop.wanted() and self._step < self._config.steps:
            return self._result("interrupted")
        return self._finish()

    def _goes_on(self) -> bool:
        """Return whether to iterate once more; what has begun to collect is always learned from."""
        if self._embodied.collecting:
            return True
        return self._step < self._config.steps and not self._stop.wanted()

    def _draw_on_timeline(self) -> None:
        spans = self._embodied.spans()
        if self._timeline is None:
            return
        try:
            self._timeline.write(spans)
        except OSError as error:  # nobody trains for the sake of it
            self._loggers.message(f"the timeline ends here: {error}")
            self._timeline = None

    def _ahead(self) -> int:
        """Return how many iterations follow this one before the next checkpoint."""
        if self._stop.wanted():
            return 0
        every = self._config.checkpoint.every or self._config.steps
        checkpoint = (self._step // every + 1) * every
        return min(checkpoint, self._config.steps) - self._step - 1

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        """Write the first files: from here on the run is known to work."""
        if checkpoint is not None:
            self._step, self._saved = checkpoint.step, checkpoint.folder
            self._env_steps = int(checkpoint.state["env_steps"])
            self._metrics = checkpoint.state["metrics"]
            for note in differences(checkpoint.run, self._plain, "in the checkpoint"):
                self._loggers.message(note)
        path = self._folder / "run.json"
        if checkpoint is None and path.exists():  # an earlier try that came to no checkpoint
            with suppress(OSError, ValueError, AttributeError):
                before = json.loads(path.read_text(encoding="utf-8"))
                for note in differences(before, self._plain, "in the earlier try"):
                    self._loggers.message(note)
        write_json(path, self._plain)
        info = RunInfo(
            name=self._config.name,
            folder=self._folder,
            config=self._plain,
            first_step=self._step,
            total_steps=self._config.steps,
        )
        self._loggers.open(info)

    def _with_evaluation(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        every = self._config.evaluation.every
        if not every or self._step % every:
            return metrics
        evaluation = self._embodied.evaluate()
        self._loggers.message(f"step {self._step}: {evaluation.sentence()}")
        return {**metrics, **evaluation.metrics()}

    def _save(self) -> None:
        lasting = {k: v for k, v in self._metrics.items() if not k.startswith("time/")}

        def save(folder: Path) -> dict[str, Any]:
            return {**self._embodied.save(folder), "metrics": lasting}

        self._saved = self._store.write(self._step, save, self._plain)

    def _finish(self) -> Result:
        """Evaluate what was learned, draw its curve and record it."""
        seconds = time.monotonic() - self._began
        self._stop.promise = "training is over and saved; stopping after the evaluation"
        evaluation = self._embodied.evaluate()
        self._draw_on_timeline()
        write_json(self._folder / "evaluation.json", evaluation.as_json())
        video, note = None, ""
        if self._stop.wanted():
            note = "interrupted"
        elif self._config.evaluation.video:
            path = self._folder / "videos" / f"step-{self._step}.mp4"
            try:
                note = self._embodied.record(path)
            except OSError as error:  # what was learned is saved
                note = f"could not write {path}: {why_not(self._folder, error)}"
            if not note:
                video = path
                self._loggers.artifact(self._step, "video", path)
        return self._result("done", seconds, evaluation, video, note)

    def _result(
        self,
        outcome: str,
        seconds: float | None = None,
        evaluation: Evaluation | None = None,
        video: Path | None = None,
        video_note: str = "",
    ) -> Result:
        log = self._folder / "metrics.jsonl"
        metrics = log if log.exists() else None
        return Result(
            outcome=outcome,
            seed=self._config.seed,
            steps=self._step,
            env_steps=self._env_steps,
            seconds=time.monotonic() - self._began if seconds is None else seconds,
            folder=self._folder,
            checkpoint=self._saved,
            metrics=metrics,
            curve=self._curve(metrics),
            video=video,
            video_note=video_note or None,
            evaluation=evaluation,
            last_metrics=self._metrics,
            failures=self._embodied.recovery.counts(),
        )

    def _curve(self, metrics: Path | None) -> Path | None:
        path = self._folder / "curve.png"
        try:
            return draw_curve(path, metrics, self._config.name)
        except OSError as error:
            self._loggers.message(f"could not draw {path}: {why_not(self._folder, error)}")
            return None
