"""What is known of ManiSkill's tasks without importing it: a measured table, ``tasks.json``.

``measure.py`` writes the table and a test compares it with the installed ManiSkill. What it does
not hold (tasks of other modules, other robots, tasks whose files were downloaded) is measured when
it is needed, in a process of its own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_core.api import SimulatorError


@dataclass(frozen=True)
class Mode:
    """A control mode of a robot.

    Args:
        low: bounds of an action, one number for all its components or one for each.
        high: the same, from above.
        width: number of components.
        state: how many numbers the controller adds to the observed state.
    """

    low: Any
    high: Any
    width: int
    state: int


@dataclass(frozen=True)
class Task:
    """What a task shows and takes with its robots.

    Args:
        robots: one or several that act together.
        control_mode: the one that ManiSkill chooses where none is given.
        max_episode_steps: ManiSkill's own time limit; tasks of other modules may have none.
        state: width of the state with everything that a simulator knows, in ``control_mode``.
        sensed: width of what is shown beside images: joints and the hand, no objects.
        cameras: their names.
        rewards: the reward modes that it has.
        success: whether it says when it is solved.
        modes: the control modes of each robot.
    """

    robots: tuple[str, ...]
    control_mode: str
    max_episode_steps: int | None
    state: int
    sensed: int
    cameras: tuple[str, ...]
    rewards: tuple[str, ...]
    success: bool
    modes: dict[str, tuple[Mode, ...]]

    @classmethod
    def of(cls, entry: dict[str, Any], robots: dict[str, Any]) -> Task:
        """Return the task that an entry of the table and the table's robots describe."""
        names = entry["robots"]
        each = [robots[name]["modes"] for name in names]
        shared = [mode for mode in each[0] if all(mode in modes for modes in each)]
        return cls(
            **{key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()},
            modes={mode: tuple(Mode(**modes[mode]) for modes in each) for mode in shared},
        )


@functools.cache
def _table() -> dict[str, Any]:
    text = Path(__file__).with_name("tasks.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def names() -> list[str]:
    """Return the names of all tasks that ManiSkill registers."""
    return list(_table()["tasks"])


def missing(name: str) -> str:
    """Return how to get what a task needs beside ManiSkill itself, or ""."""
    return str(_table()["tasks"].get(name, {}).get("needs", ""))


def known(name: str, robot: str | None = None) -> Task | None:
    """Return a task as the table has it, or None."""
    entry = _table()["tasks"].get(name)
    if entry is None or "needs" in entry or robot not in (None, *entry["robots"]):
        return None
    return Task.of(entry, _table()["robots"])


def measured(name: str, robot: str | None = None) -> Task:
    """Return a task from the table, or else make it once, in a process of its own.

    Raises:
        SimulatorError: it cannot be made; with ManiSkill's own error.
    """
    return known(name, robot) or _measured_elsewhere(name, robot)


@functools.cache
def _measured_elsewhere(name: str, robot: str | None) -> Task:
    options = {} if robot is None else {"robot_uids": robot}
    done = subprocess.run(
        [sys.executable, "-m", "rlinf_plugin_maniskill.measure", name, json.dumps(options)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip()
        with contextlib.suppress(json.JSONDecodeError):
            raise SimulatorError(json.loads(said.rpartition("\n")[2]))  # its own words
        raise SimulatorError(f"the task {name} cannot be made:\n{said}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Task.of(found["task"], found["robots"])
