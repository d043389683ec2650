"""Tracebacks as a plugin's author wants them: from the first line that is not the core's own."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

_OURS = (str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen importlib")
"""Where the machinery lies that loads plugins."""


def own_traceback(error: BaseException) -> str:
    """Return an exception's traceback without the frames of the machinery above the plugin's.

    Where nothing but machinery is left (a syntax error, a missing file) only the end remains, which
    says what is wrong.
    """
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code.co_filename.startswith(_OURS):
        entry = entry.tb_next
    told = traceback.TracebackException(type(error), error, entry)
    return "".join(told.format())
