"""``rlinf eval``: evaluate a checkpoint on held-out initial states, each visited exactly once."""

from __future__ import annotations

import json as json_module
import sys
from contextlib import redirect_stdout
from pathlib import Path

from rlinf_core.config.validate import load_run, to_plain
from rlinf_core.errors import RequestError
from rlinf_core.files import write_json
from rlinf_core.runs.checkpoint import differences, find_checkpoint
from rlinf_core.runs.evaluate import SECTIONS, evaluate


def main(
    run: str,
    checkpoint: Path,
    episodes: int | None,
    output: Path | None,
    json: bool,
    overrides: list[str],
) -> int:
    """Evaluate; return the exit code 0. With ``output``, result and video are written there."""
    asked = [f"evaluation.episodes={episodes}"] if episodes is not None else []
    loaded = load_run(run, [*overrides, *asked], sections=SECTIONS)
    found = find_checkpoint(checkpoint, _tell)
    for section, keys in (("model", None), ("collect", {"chunk"})):  # what the weights fit
        before, now = found.run.get(section) or {}, to_plain(loaded)[section]
        chosen = keys or before.keys() | now.keys()
        old, new = ({key: part.get(key) for key in chosen} for part in (before, now))
        for note in differences(old, new, "in the checkpoint", f"{section}."):
            _tell(note)
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"cannot write {output}: {error}; choose another --output") from None
    wanted = output is not None and loaded.config.evaluation.video
    video = output / f"evaluation-step-{found.step}.mp4" if output and wanted else None
    with redirect_stdout(sys.stderr):  # results alone go to standard output, whatever plugins print
        evaluation, note = evaluate(loaded, found, video)
    report = {
        **evaluation.as_json(),
        "checkpoint": str(found.folder),
        "video": None if video is None or note else str(video),
    }
    if output is not None:
        write_json(output / f"evaluation-step-{found.step}.json", report)
    if json:
        print(json_module.dumps(report, indent=2))
    else:
        print(f"{found.folder}: {evaluation.sentence()}")
        if video is not None:
            print(f"no video: {note}" if note else f"video: {video}")
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
