"""One environment in a child process: its contract, and the loop that drives several of them.

A plugin writes a class like :class:`Environment` and names it to ``ProcessSimulator``. This module
runs in children and imports no torch. Add a verb of the loop to ``_VERBS``.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rlinf_core.protocols.simulator import StateId
from rlinf_core.runtime.connection import Connection
from rlinf_core.simulation.memory import Field, SharedArrays

Observation = Mapping[str, Any]
"""Arrays by key as in the simulator's ``Spaces`` (``images`` nested), and ``task``, a string."""


class Environment(Protocol):
    """A single environment. NumPy in, NumPy out; it never resets itself.

    An environment may also have ``state_dict()``, returning arrays and plain data in dicts and
    lists, and ``load_state_dict(state)``, which goes on from that bit for bit (RESTORE), and
    ``render_note``, a text that says why ``render`` returns None.
    """

    def reset(self, state: StateId) -> Observation:
        """Start an episode that depends on ``state`` alone, not on what was played before."""
        ...

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, bool]:
        """Do one step of ``action``, float32 [A].

        Returns:
            observation, reward, terminated (the task's own end), truncated (a time limit) and
            whether the task counts as solved at this step.
        """
        ...

    def render(self) -> np.ndarray | None:
        """Return uint8 [H, W, 3], or None where this machine has no renderer."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


@dataclass(frozen=True)
class Assignment:
    """What one child is told at its start.

    Args:
        target: ``"pkg.module:Class"``, called as ``Class(**arguments)`` once per environment.
        arguments: keyword arguments, picklable.
        rows: the rows of the shared arrays that are this child's.
        ids: run-wide ids of its environments, for error messages.
        fields: the layout of the shared memory.
    """

    target: str
    arguments: Mapping[str, Any]
    rows: range
    ids: tuple[int, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Fault:
    """A child's answer when one of its environments raised."""

    ids: tuple[int, ...]
    method: str
    traceback: str


def serve(connection: Connection, assignment: Assignment, fds: Sequence[int]) -> None:
    """Be the child: make the environments, then answer requests until the driver closes."""
    child = _Child(assignment, SharedArrays(assignment.fields, fds[0]))
    try:
        connection.send(child.answer("make", None))
        while True:
            connection.send(child.answer(*connection.receive()))
    except (EOFError, OSError):
        pass  # the driver closed
    finally:
        child.close()


class _Child:
    def __init__(self, assignment: Assignment, arrays: SharedArrays) -> None:
        self._assignment, self._arrays = assignment, arrays
        self._envs: dict[int, Environment] = {}
        self._begun: set[int] = set()  # rows that were ever reset
        self._now: tuple[int, ...] = ()  # ids of the environments that are being worked on

    def answer(self, verb: str, argument: Any) -> Any:
        """Return what ``verb`` gives, or a :class:`Fault`."""
        self._now = self._assignment.ids
        try:
            return _VERBS[verb](self, argument)
        except Exception:
            return Fault(self._now, verb, traceback.format_exc())

    def _each(self) -> Iterator[tuple[int, Environment]]:
        for row in self._assignment.rows:
            self._focus(row)
            yield row, self._envs[row]

    def _focus(self, row: int) -> None:
        self._now = (self._assignment.ids[row - self._assignment.rows.start],)

    def make(self, _: None) -> None:
        module, _colon, name = self._assignment.target.partition(":")
        factory = getattr(importlib.import_module(module), name)
        for row in self._assignment.rows:
            self._focus(row)
            self._envs[row] = factory(**self._assignment.arguments)

    def reset(self, states: Mapping[int, StateId]) -> dict[int, str]:
        """Reset some rows; return their instructions where they have any."""
        tasks = {}
        for row, state in states.items():
            self._focus(row)
            observation = self._envs[row].reset(state)
            self._show(row, observation)
            self._begun.add(row)
            self._arrays["ended"][row] = False
            if "task" in observation:
                tasks[row] = str(observation["task"])
        return tasks

    def step(self, _: None) -> None:
        """Execute the chunk in ``actions``; stop each row at its end and skip the ended ones."""
        arrays = self._arrays
        mine = slice(self._assignment.rows.start, self._assignment.rows.stop)
        for name in ("reward", "terminated", "truncated", "success", "valid"):
            arrays[name][mine] = 0
        for row, env in self._each():
            if arrays["ended"][row]:
                continue
            for c, action in enumerate(arrays["actions"][row].copy()):
                observation, reward, terminated, truncated, success = env.step(action)
                arrays["reward"][row, c] = reward
                arrays["terminated"][row, c] = terminated
                arrays["truncated"][row, c] = truncated
                arrays["success"][row, c] = success
                arrays["valid"][row, c] = True
                if terminated or truncated:
                    arrays["ended"][row] = True
                    break
            self._show(row, observation)

    def render(self, _: None) -> str:
        """Draw every row; return why there is no frame, or ""."""
        for row, env in self._each():
            frame = env.render()
            if frame is None:
                return str(getattr(env, "render_note", "")) or "these environments draw no frames"
            _write(self._arrays["frames"][row], frame, "frame")
        return ""

    def save(self, _: None) -> dict[int, Any]:
        """Return each row's running episode; None where none was ever begun."""
        envs: Iterator[tuple[int, Any]] = self._each()
        return {row: env.state_dict() if row in self._begun else None for row, env in envs}

    def load(self, states: Mapping[int, Any]) -> None:
        """Go on from :meth:`save`."""
        envs: Iterator[tuple[int, Any]] = self._each()
        self._begun = {row for row, saved in states.items() if saved is not None}
        for row, env in envs:
            if row in self._begun:
                env.load_state_dict(states[row])

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def _show(self, row: int, observation: Observation, prefix: str = "obs") -> None:
        for key, value in observation.items():
            name = f"{prefix}.{key}"
            if isinstance(value, Mapping):
                self._show(row, value, name)
            elif name != "obs.task":
                _write(self._arrays[name][row], value, name)


def _write(target: np.ndarray, value: Any, name: str) -> None:
    if np.shape(value) != target.shape:  # an assignment would broadcast without a word
        raise ValueError(f"{name} has shape {np.shape(value)}; the space says {target.shape}")
    target[...] = value


_VERBS: dict[str, Callable[[_Child, Any], Any]] = {
    "make": _Child.make,
    "reset": _Child.reset,
    "step": _Child.step,
    "render": _Child.render,
    "save": _Child.save,
    "load": _Child.load,
}
