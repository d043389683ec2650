"""Ray's errors about actors in this project's words; none of Ray's own reaches a user.

Ray describes an end in a paragraph of text alone. Another end that deserves a sentence of its own
is one more line of ``_ENDS``; the first whose pattern is found counts.
"""

from __future__ import annotations

import re

from rlinf_core.api import WorkerDied

_ENDS: tuple[tuple[str, str], ...] = (
    (r"node (?:has died|was terminated)|NodeDied", "its machine was lost"),
    (
        r"low on memory|OUT_OF_MEMORY|OutOfMemory",
        "Ray killed its process because the memory of its machine ran out",
    ),
    (r"exit code (-?\d+)", "its process ended with status {0}"),
    (r"runtime_env|RuntimeEnv", "its environment could not be set up: {text}"),
    (r"owner has died", "the driver was lost"),
    (
        r"connection error|SIGKILL|SIGSEGV|unexpected",
        "its process ended without a word, as after SIGKILL, by somebody or for want of memory",
    ),
)
# What a process that a signal ends writes last; after SIGKILL nobody writes.
_SIGNAL = re.compile(r"\*\*\* (SIG[A-Z0-9]+) received|Fatal Python error: (.+)")
_DETAIL = re.compile(
    r"(?:Worker exit detail|The actor is (?:dead|unavailable) because):? *(.*)", re.S
)


def death(error: BaseException) -> WorkerDied:
    """Return what Ray says about an actor that is gone, or cannot be reached, as one sentence."""
    text = str(error)
    for pattern, sentence in _ENDS:
        if match := re.search(pattern, text):
            return WorkerDied(sentence.format(*match.groups(), text=_brief(text)))
    return WorkerDied(f"its actor is gone: {_brief(text)}")


def with_signal(found: WorkerDied, log: str) -> WorkerDied:
    """Return how a process ended, with the signal that its own last lines name, if they do."""
    if match := _SIGNAL.search(log):
        return WorkerDied(f"its process was ended by {match[1] or match[2]}")
    return found


def _brief(text: str) -> str:
    match = _DETAIL.search(text)
    return " ".join((match[1] if match else text).split())[:500]
