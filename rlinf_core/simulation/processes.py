"""ProcessSimulator: N environments spread over P processes, one call for all.

Observations, actions and outcomes lie in shared memory; a call sends each process a message of a
few bytes, to all before it waits for any. What an environment is, and the loop in the child, stand
in ``environment.py``.
"""

from __future__ import annotations

import contextlib
import selectors
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.errors import RuntimeFailure, SimulatorError, did_you_mean
from rlinf_core.protocols.simulator import Autoreset, EnvSlots, Spaces, StateId, Step
from rlinf_core.runtime.baton import raise_if_cancelled
from rlinf_core.runtime.limits import processors
from rlinf_core.runtime.zygote import Child
from rlinf_core.simulation.environment import Assignment, Fault
from rlinf_core.simulation.layout import OUTCOMES, fields, shares, to_arrays, to_tensors
from rlinf_core.simulation.memory import SharedArrays
from rlinf_core.simulation.states import StateRange
from rlinf_core.simulation.zygotes import borrow, give_back

_SERVE = "rlinf_core.simulation.environment:serve"
_GRACE = 2.0  # seconds that children get to end by themselves
_SLICE = 0.5  # seconds between two looks at whether the run is to stop right now


class ProcessSimulator:
    """A ``Simulator`` made of single environments in child processes. Autoreset is DISABLED.

    Returns from the constructor at once; the first call waits for the environments. Results do not
    depend on the number of processes.

    Args:
        slots: which environments of the run it holds.
        spaces: what one environment shows and takes.
        target: ``"pkg.module:Class"`` of an ``Environment`` (see ``environment.py``).
        arguments: keyword arguments of that class.
        states: number of initial states by split, such as ``{"train": 10**6, "test": 100}``.
        processes: how many; by default as many as processors, at most one per environment.
        imports: modules that are imported once for all processes.
        variables: environment variables of the processes.
        frame: height and width of what ``render`` returns; None: it returns None.
        timeout: seconds after which a process that gives no answer counts as failed.
    """

    autoreset = Autoreset.DISABLED

    def __init__(
        self,
        slots: EnvSlots,
        spaces: Spaces,
        target: str,
        arguments: Mapping[str, Any],
        *,
        states: Mapping[str, int],
        processes: int | None = None,
        imports: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        frame: tuple[int, int] | None = None,
        timeout: float = 300.0,
    ) -> None:
        self.slots, self.spaces = slots, spaces
        self._splits = {split: StateRange(split, count) for split, count in states.items()}
        self._frame, self._timeout = frame, timeout
        count = len(slots.ids)
        layout = fields(slots, spaces, frame)
        self._observed = [field.name for field in layout if field.name.startswith("obs.")]
        self._arrays = SharedArrays(layout)
        try:
            self._arrays.reserve(field.name for field in layout if field.name != "frames")
        except SimulatorError:
            self._arrays.close()
            raise
        self._arrays["ended"][:] = True  # nothing runs before its first reset
        has_task = "task" in spaces.observation.spaces
        self._tasks = [""] * count if has_task else None
        self._rows = shares(count, min(processes or processors(), count))
        self._ready, self._closed, self._broken = False, False, ""
        self._zygote = borrow(imports, variables or {})
        self._children: list[Child] = []
        try:
            for rows in self._rows:
                ids = slots.ids[rows.start : rows.stop]
                assignment = Assignment(target, arguments, rows, ids, layout)
                self._children.append(self._zygote.fork(_SERVE, assignment, [self._arrays.fd]))
        except RuntimeFailure as error:
            self.close()
            raise SimulatorError(f"{target}: {error}") from None

    # --- the protocol ----------------------------------------------------------------------------

    def initial_states(self, split: str) -> Sequence[StateId]:
        """Return the virtual sequence of a split's states."""
        if split not in self._splits:
            raise SimulatorError(
                f"no split {split!r} of initial states; there are {sorted(self._splits)}."
                + did_you_mean(split, self._splits)
            )
        return self._splits[split]

    def reset(self, mask: Tensor, states: Sequence[StateId]) -> Batch:
        """Start new episodes where ``mask`` [N] is true; the others do not move."""
        count = len(self.slots.ids)
        if mask.dtype != torch.bool or mask.shape != (count,):
            raise SimulatorError(
                f"reset with a mask {mask.dtype} {list(mask.shape)}; wanted torch.bool [{count}]"
            )
        chosen = mask.nonzero().flatten().tolist()
        if len(chosen) != len(states):
            raise SimulatorError(
                f"reset of {len(chosen)} environments with {len(states)} states; wanted one each"
            )
        by_row = dict(zip(chosen, states, strict=True))
        requests = {
            k: {row: by_row[row] for row in rows if row in by_row}
            for k, rows in enumerate(self._rows)
        }
        answers = self._call("reset", {k: some for k, some in requests.items() if some})
        if self._tasks is not None:
            for tasks in answers.values():
                for row, text in tasks.items():
                    self._tasks[row] = text
        return self._observe()

    def step(self, actions: Tensor) -> Step:
        """Execute a chunk, float32 [N, C, A]."""
        self._check("step")
        wanted = self._arrays["actions"]
        if tuple(actions.shape) != wanted.shape:
            raise SimulatorError(
                f"step with actions of shape {list(actions.shape)}; wanted {list(wanted.shape)}: "
                "environments, actions in a chunk, action width"
            )
        values = actions.detach().to("cpu", torch.float32).numpy()
        bad = ~np.isfinite(values).all(axis=(1, 2)) & ~self._arrays["ended"]
        if bad.any():
            ids = [self.slots.ids[row] for row in bad.nonzero()[0]]
            raise SimulatorError(f"step with actions that are not finite, for environments {ids}")
        wanted[...] = values
        self._call_all("step")
        outcome = {name: self._copy(name) for name in OUTCOMES}
        return Step(obs=self._observe(), final_obs=None, **outcome)

    def render(self) -> np.ndarray | None:
        """Return uint8 [N, H, W, 3]; None (and one warning, why) where none can be drawn."""
        if self._frame is None:
            return None
        self._arrays.reserve(["frames"])
        notes = [note for note in self._call_all("render").values() if note]
        if not notes:
            return self._arrays["frames"].copy()
        warnings.warn(notes[0], RuntimeWarning, stacklevel=2)
        self._frame = None  # it will not get better; one note is enough
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """Return everything that running episodes need to go on (where the environments can)."""
        answers = self._call_all("save")
        return {
            "environments": [to_tensors(s) for k in sorted(answers) for s in answers[k].values()],
            "ended": self._copy("ended"),
            "observation": {name: self._copy(name) for name in self._observed},
            "task": None if self._tasks is None else list(self._tasks),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, of a simulator with the same number of environments."""
        saved = [to_arrays(each) for each in state["environments"]]
        if len(saved) != len(self.slots.ids):
            raise SimulatorError(
                f"restore of {len(saved)} environments into {len(self.slots.ids)}; "
                "wanted the same number"
            )
        self._call(
            "load", {k: {row: saved[row] for row in rows} for k, rows in enumerate(self._rows)}
        )
        self._arrays["ended"][:] = state["ended"].numpy()
        for name in self._observed:
            self._arrays[name][...] = state["observation"][name].numpy()
        self._tasks = None if state["task"] is None else list(state["task"])

    def offload(self) -> None:
        """Do nothing: these environments live on the CPU."""

    def onload(self) -> None:
        """Do nothing, as :meth:`offload`."""

    def close(self) -> None:
        """End the processes and free the memory; may be called twice."""
        if self._closed:
            return
        self._closed, self._broken = True, "it was closed"
        for child in self._children:
            child.close()
        deadline = time.monotonic() + _GRACE
        for child in self._children:
            child.end(max(deadline - time.monotonic(), 0.0))
        give_back(self._zygote)
        self._arrays.close()

    # --- within ----------------------------------------------------------------------------------

    def _check(self, verb: str) -> None:
        if self._broken:
            raise SimulatorError(f"{verb} on a simulator that cannot go on: {self._broken}")

    def _call_all(self, verb: str) -> dict[int, Any]:
        return self._call(verb, dict.fromkeys(range(len(self._children))))

    def _call(self, verb: str, arguments: Mapping[int, Any]) -> dict[int, Any]:
        """Send ``verb`` to the processes in ``arguments``, then return their answers."""
        self._check(verb)
        self._broken = f"an earlier {verb} failed or was interrupted"  # until this one is through
        everyone = range(len(self._children))
        if not self._ready:
            for _ in self._as_they_speak("start", everyone, lambda child: child.pid):
                pass
            dict(self._as_they_speak("make", everyone, Child.receive))
            self._ready = True
        for k, argument in arguments.items():
            with self._blaming(k, verb):
                self._children[k].send((verb, argument))
        answers = dict(self._as_they_speak(verb, arguments, Child.receive))
        self._broken = ""
        return answers

    def _as_they_speak(
        self, verb: str, processes: Iterable[int], hear: Callable[[Child], Any]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (process, what ``hear`` makes of its message) in the order in which they come."""
        deadline = time.monotonic() + self._timeout
        # Not epoll: one system call for a few files, instead of three and one more for each.
        with selectors.PollSelector() as waiting:
            for k in processes:
                waiting.register(self._children[k], selectors.EVENT_READ, k)
            while waiting.get_map():
                raise_if_cancelled()
                left = deadline - time.monotonic()
                ready = waiting.select(min(max(left, 0.001), _SLICE))
                for key, _ in ready:
                    waiting.unregister(key.fileobj)
                    with self._blaming(key.data, verb):
                        answer = hear(self._children[key.data])
                    if isinstance(answer, Fault):
                        raise SimulatorError(
                            f"environments {list(answer.ids)} failed in {answer.method}:\n"
                            + answer.traceback.rstrip()
                        )
                    yield key.data, answer
                if not ready and left <= _SLICE:
                    late = next(iter(waiting.get_map().values())).data
                    if verb == "start":  # does its zygote fork at all? else the next one is new
                        self._zygote.exit_status(0)
                    with self._blaming(late, verb):
                        raise RuntimeFailure(f"no answer in {self._timeout} s")

    @contextlib.contextmanager
    def _blaming(self, k: int, verb: str) -> Iterator[None]:
        """Say which environments a failed process held."""
        try:
            yield
        except RuntimeFailure as error:
            rows = self._rows[k]
            ids = list(self.slots.ids[rows.start : rows.stop])
            raise SimulatorError(f"environments {ids} failed in {verb}: {error}") from None

    def _copy(self, name: str) -> Tensor:
        return torch.from_numpy(self._arrays[name].copy())

    def _observe(self) -> Batch:
        entries: dict[str, Any] = {}
        for name in self._observed:
            *parents, key = name.split(".")[1:]
            place = entries
            for parent in parents:
                place = place.setdefault(parent, {})
            place[key] = self._copy(name)
        if self._tasks is not None:
            entries["task"] = list(self._tasks)
        return Batch(entries, len(self.slots.ids))
