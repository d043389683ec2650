"""Small environments and targets that the tests name to child processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np

from rlinf_core.protocols.simulator import StateId
from rlinf_core.runtime.zygote import Connection
from rlinf_core.simulation.states import state_seed


class Counting:
    """Shows (start, steps, last action); an episode is ``length`` steps long.

    ``trouble`` maps a state's index to what happens at its second step: "raise", "die", "hang",
    "shape" or "chatter".
    """

    def __init__(
        self, length: int = 5, trouble: dict[int, str] | None = None, **extra: Any
    ) -> None:
        self.length, self.trouble, self.extra = length, trouble or {}, extra
        if extra.get("refuse"):
            raise ValueError("no such scene")

    def reset(self, state: StateId) -> dict[str, Any]:
        self.state, self.steps, self.action = state, 0, np.zeros(2, np.float32)
        self.start = np.random.default_rng(state_seed(state)).uniform()
        return self.look()

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, bool]:
        self.steps += 1
        self.action = action
        trouble = self.trouble.get(self.state.index) if self.steps == 2 else None
        if trouble == "raise":
            raise ValueError("the gripper fell off")
        if trouble == "die":
            print("last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "hang":
            time.sleep(1000)
        if trouble == "shape":
            return {"state": np.zeros(1)}, 0.0, False, False, False
        over = self.steps >= self.length
        terminated = over and self.state.index % 2 == 0
        success = self.steps == self.extra.get("solved_at", 2)
        return self.look(), float(action.sum()), terminated, over and not terminated, success

    def look(self) -> dict[str, Any]:
        state = np.array([self.start, self.steps, *self.action], np.float64)
        seen: dict[str, Any] = {"state": state}
        if self.extra.get("images"):
            seen["images"] = {"wrist": np.full((4, 6, 3), self.steps, np.uint8)}
            seen["task"] = f"count from {self.state.index}"
        return seen

    def render(self) -> np.ndarray | None:
        if self.extra.get("images"):
            return np.full((4, 6, 3), 10 * self.steps, np.uint8)
        return None

    @property
    def render_note(self) -> str:
        return "counting has no looks"

    def state_dict(self) -> dict[str, Any]:
        saved = {name: getattr(self, name) for name in ("steps", "action", "start")}
        return {**saved, "state": [self.state.split, self.state.index]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.state = StateId(*saved["state"])

    def close(self) -> None:
        pass


class Three(gym.Env[np.ndarray, np.ndarray]):
    """Episodes of three steps; shows (start, steps). The second step succeeds, the last may not."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, ends: str = "terminated", render_mode: str | None = None) -> None:
        self.ends, self.render_mode = ends, render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.start, self.steps = self.np_random.uniform(), 0
        return self.look(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        assert self.steps <= 3, "stepped past the end"
        over = self.steps == 3
        info = {"success": self.steps >= 2}
        ends = (over, False) if self.ends == "terminated" else (False, over)
        return self.look(), float(10 * self.steps + action[0]), *ends, info

    def look(self) -> np.ndarray:
        return np.array([self.start, self.steps], np.float32)

    def render(self) -> np.ndarray:
        return np.full((4, 4, 3), self.steps, np.uint8)


class Forgetful(gym.vector.SyncVectorEnv):
    """Ignores the mask of a reset, as vector environments of before Gymnasium 1.1 do."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed)


# --- targets of a zygote's children -------------------------------------------------------------


def echo(connection: Connection, arguments: Any, fds: list[int]) -> None:
    """Answer what comes, with facts about this process, until the driver closes."""
    facts = {
        "arguments": arguments,
        "parent": os.getppid(),
        "modules": set(sys.modules),
        "sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "sigterm": signal.getsignal(signal.SIGTERM) is signal.SIG_IGN,
        "threads": os.environ["OMP_NUM_THREADS"],
    }
    if fds:
        facts["file"] = os.pread(fds[0], 100, 0)
    connection.send(facts)
    while True:
        message = connection.receive()
        connection.send(os.environ.get(message[1:]) if message[0] == "$" else message)


def fail(connection: Connection, arguments: Any, fds: list[int]) -> None:
    """Raise."""
    raise ZeroDivisionError("on purpose")


def sleep(connection: Connection, arguments: Any, fds: list[int]) -> None:
    """Be deaf to the end of the connection."""
    connection.send("asleep")
    time.sleep(1000)


def leave(connection: Connection, arguments: Any, fds: list[int]) -> None:
    """Die without a word on the connection, but one on standard error."""
    os.write(2, b"out of memory, say\n")
    os._exit(7)
