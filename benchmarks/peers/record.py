"""What every learner records, by one definition: success once over the last 50 episodes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

WINDOW = 50
GOAL = 0.9


class Record:
    """Follows training from its first environment step on, rollout by rollout."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.rows: list[list[float]] = []  # steps, seconds, episodes that ended, successes of them
        self._current: list[bool] = []

    def episode(self, success_once: bool) -> None:
        """Take an episode that ended in this rollout."""
        self._current.append(success_once)

    def rollout(self, steps: int) -> None:
        """Take the end of an iteration, learning included; ``steps`` in all so far."""
        count, solved = len(self._current), sum(self._current)
        self.rows.append([steps, time.perf_counter() - self.began, count, solved])
        self._current = []
        print(f"iteration {len(self.rows)}", file=sys.stderr, flush=True)

    def tell(self) -> None:
        """Print the summary, as the last line of a contestant's output."""
        print(json.dumps(summary(self.rows)))


def summary(rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return throughput, and when the goal was met.

    Of the oldest rollout that is only partly among the last 50 episodes, its share counts: within
    a rollout, episodes end at the same time.

    Args:
        rows: steps, seconds (both since the start), episodes that ended and successes of them.
    """
    goal_steps = goal_seconds = None
    for end in range(1, len(rows) + 1):
        left, solved = float(WINDOW), 0.0
        for _, _, count, good in reversed(rows[:end]):
            taken = min(left, count)
            solved += good * taken / count if count else 0.0
            left -= taken
            if left <= 0:
                break
        if left <= 0 and solved >= GOAL * WINDOW:
            goal_steps, goal_seconds = rows[end - 1][0], rows[end - 1][1]
            break
    return {
        "steps": rows[-1][0],
        "seconds": rows[-1][1],
        "steps_per_s": rows[-1][0] / rows[-1][1],
        "goal_steps": goal_steps,
        "goal_seconds": goal_seconds,
    }
