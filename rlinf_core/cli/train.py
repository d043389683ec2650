"""``rlinf train``: train a run and say what was learned and where it lies."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

from rlinf_core.config.validate import load_run
from rlinf_core.files import finite
from rlinf_core.runs.plan import check_plan
from rlinf_core.runs.train import Result, train


def main(run: str, output: Path | None, resume: bool, json: bool, overrides: list[str]) -> int:
    """Train; return the exit code: 0 done, 130 interrupted after a safe checkpoint."""
    loaded = load_run(run, overrides)
    check_plan(loaded)  # here as well, so that nothing is said to start
    print(f"starting {loaded.config.name}", file=sys.stderr)
    with redirect_stdout(sys.stderr):  # results alone go to standard output, whatever plugins print
        result = train(loaded, output, resume)
    if json:
        print(json_module.dumps(finite(result.as_json()), indent=2))
    else:
        print("\n".join(_closing_lines(run, overrides, result)))
    return 0 if result.outcome == "done" else 130


def _closing_lines(run: str, overrides: list[str], result: Result) -> list[str]:
    lines = [
        f"{result.outcome} after {result.steps} iteration{'' if result.steps == 1 else 's'}, "
        f"{result.env_steps} environment steps, {result.seconds:.0f} s"
    ]
    if result.failures.get("restarts"):
        lines.append(_failures(result))
    if result.evaluation is not None:
        lines.append(result.evaluation.sentence())
    for name in ("checkpoint", "metrics", "curve", "video"):
        path = getattr(result, name)
        if path is not None:
            lines.append(f"{name + ':':<12}{path}")
    if result.video_note:
        lines.append(f"no video: {result.video_note}")
    same = shlex.join([run, *overrides])
    here = shlex.join(["--output", str(result.folder)])
    if result.outcome == "interrupted":
        lines.append(f"go on with:  rlinf train {same} {here} --resume")
    elif result.checkpoint is not None:
        lines += [
            "try next:",
            f"  rlinf eval {same} --checkpoint {shlex.quote(str(result.folder))}",
            f"  rlinf train {_with(run, overrides, 'steps', 2 * result.steps)} {here} --resume",
            f"  rlinf train {_with(run, overrides, 'seed', result.seed + 1)}",
        ]
    return lines


def _failures(result: Result) -> str:
    """Return what became of failures that the run survived."""
    made, redone, dropped = (
        result.failures[name] for name in ("restarts", "redone_steps", "dropped_steps")
    )
    told = [
        f"{made} worker{'s' * (made > 1)} failed and {'was' if made == 1 else 'were'} made anew"
    ]
    told += [f"{redone} iteration{'s' * (redone > 1)} collected again"] if redone else []
    told += [f"lost trajectories dropped {dropped} time{'s' * (dropped > 1)}"] if dropped else []
    return "; ".join(told)


def _with(run: str, overrides: list[str], key: str, value: int) -> str:
    """Return the request with one option set anew."""
    others = [option for option in overrides if option.partition("=")[0] != key]
    return shlex.join([run, *others, f"{key}={value}"])
