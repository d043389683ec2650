"""Timer: how spans come about. What they mean stands in ``rlinf_core.protocols.runtime.Span``."""

from __future__ import annotations

import time
from collections import deque

from rlinf_core.protocols.runtime import Span

MOST_SPANS = 500_000
"""A runtime whose spans nobody takes keeps the newest."""


class Timer:
    """Times a block; a class, because it stands in the path of every item."""

    __slots__ = ("_began", "_kind", "_name", "_spans", "_worker")

    def __init__(self, spans: list[Span] | deque[Span], worker: str, kind: str, name: str) -> None:
        self._spans, self._worker, self._kind, self._name = spans, worker, kind, name

    def __enter__(self) -> None:
        self._began = time.monotonic_ns()

    def __exit__(self, *_: object) -> None:
        ended = time.monotonic_ns()
        self._spans.append(Span(self._worker, self._kind, self._name, self._began, ended))
