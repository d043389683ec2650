"""The process that ``apart.py`` starts: it calls one function and writes the answer to a file."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import traceback
from pathlib import Path


def main() -> None:
    """Call the function that the command line names and end this process."""
    _, _, file, seconds, name, argument = sys.argv
    sys.argv[1:] = []  # a plugin that reads the command line must not take these for its own
    # Where it hangs is told by the last lines of what it printed.
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    module, _, function = name.partition(":")
    answer: dict[str, object]
    try:
        value = getattr(importlib.import_module(module), function)(json.loads(argument))
        answer = {"value": value}
        text = json.dumps(answer)
    except BaseException as error:  # even SystemExit: what was asked for did not come about
        fault = f"{type(error).__name__}: {error}"
        text = json.dumps({"fault": fault, "traceback": traceback.format_exc()})
    path = Path(file)
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
    sys.stdout.flush()
    os._exit(0)  # threads and exit handlers of a plugin are not waited for
