"""Workers of the contract of runtimes, importable by name wherever a runtime runs them.

:class:`Helper` does one small thing per method; :class:`Tenant` takes turns on devices. Times are
nanoseconds of the machine's monotonic clock, so those of several processes can be compared.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlinf_core.errors import ChannelClosed, RuntimeFailure
from rlinf_core.protocols.runtime import Channel
from rlinf_core.runtime.worker import Place, Worker


class Helper(Worker):
    """Puts, gets, waits and fails as it is told.

    Args:
        place: where it finds itself.
        diary: a file to which it adds a line when it closes.
    """

    def __init__(self, place: Place, diary: str = "") -> None:
        super().__init__(place)
        self._diary, self._held, self._calls = diary, None, 0

    def where(self) -> tuple[str, int, int, tuple[int, ...]]:
        """Return group, rank, size and numbers of devices."""
        place = self.place
        return place.group, place.rank, place.size, tuple(d.index for d in place.devices)

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        """Return what came."""
        return args, kwargs

    def count(self) -> int:
        """Return how often this method was called."""
        self._calls += 1
        return self._calls

    def sleep(self, seconds: float) -> float:
        """Sleep."""
        time.sleep(seconds)
        return seconds

    def fail(self, message: str) -> None:
        """Raise a ``ValueError``."""
        raise ValueError(message)

    def fail_oddly(self, message: str) -> None:
        """Raise an error that no other process can read."""

        class Odd(Exception):
            def __init__(self, text: str, lock: object) -> None:
                super().__init__(text, lock)

        raise Odd(message, open(__file__))  # noqa: SIM115

    def say(self, text: str) -> None:
        """Print it, to standard output and to standard error."""
        print(text)
        print(text, file=sys.stderr)

    def pid(self) -> int:
        """Return the number of its process."""
        return os.getpid()

    def die(self, number: int) -> None:
        """End by a signal."""
        os.kill(os.getpid(), number)
        time.sleep(60)

    def exchange(self, count: int, out: Channel, back: Channel) -> list[Any]:
        """Put numbers, each after the answer to the one before."""
        answers = []
        for number in range(count):
            out.put(number)
            answers.append(back.get())
        return answers

    def square(self, count: int, source: Channel, back: Channel) -> None:
        """Answer numbers with their squares."""
        for _ in range(count):
            back.put(source.get() ** 2)

    def put_all(
        self,
        channel: Channel,
        items: list[Any],
        key: Any = None,
        weights: list[float] | None = None,
    ) -> list[int]:
        """Put items; return when each was in."""
        times = []
        for item, weight in zip(items, weights or [1.0] * len(items), strict=True):
            channel.put(item, key=key, weight=weight)
            times.append(time.monotonic_ns())
        return times

    def get_some(
        self, channel: Channel, count: int, key: Any = None, pause: float = 0.0
    ) -> list[tuple[int, Any]]:
        """Get items; return each with the time at which it was asked for."""
        return [(self._asked(pause), channel.get(key=key)) for _ in range(count)]

    def _asked(self, pause: float) -> int:
        time.sleep(pause)
        return time.monotonic_ns()

    def get_all(self, channel: Channel, key: Any = None) -> list[Any]:
        """Get items until the channel ends."""
        return list(_until_closed(lambda: channel.get(key=key)))

    def get_batches(self, channel: Channel, weight: float) -> list[list[Any]]:
        """Get batches until the channel ends."""
        return list(_until_closed(lambda: channel.get_batch(weight)))

    def attempt(self, channel: Channel, verb: str, *args: Any, **kwargs: Any) -> tuple[str, str]:
        """Try something with a channel; return the name and the text of the error."""
        try:
            getattr(channel, verb)(*args, **kwargs)
        except RuntimeFailure as error:
            return type(error).__name__, str(error)
        return "", ""

    def put_tree(self, channel: Channel, size: int) -> None:
        """Put what :func:`tree` gives."""
        channel.put(tree(size))

    def get_tree(self, channel: Channel, size: int) -> list[str]:
        """Get that; return what came through differently."""
        return differences(tree(size), channel.get())

    def put_blocks(self, channel: Channel, count: int, size: int) -> int:
        """Put arrays of ``size`` bytes; return by how many KiB memory grew after the first 100."""
        before = 0
        for number in range(count):
            if number == 100:
                before = _memory()
            channel.put(np.full(size, number % 251, np.uint8))
        return _memory() - before

    def get_blocks(self, channel: Channel, count: int, hold: int = -1) -> tuple[int, int]:
        """Get them; return how many were not whole, and by how much memory grew.

        Args:
            hold: number of the one that is held, and looked at again at the end.
        """
        before, wrong, held = 0, 0, np.zeros(0)
        for number in range(count):
            if number == 100:
                before = _memory()
            block = channel.get()
            wrong += not (block == number % 251).all()
            if number == hold:
                held = block
        return wrong + int(not (held == hold % 251).all()), _memory() - before

    def close(self) -> None:
        """Write that it closes."""
        if self._diary:
            with Path(self._diary).open("a", encoding="utf-8") as file:
                file.write(f"closed {self.place.group}[{self.place.rank}]\n")


class Unmade(Worker):
    """Cannot be made."""

    def __init__(self, place: Place) -> None:
        raise RuntimeError("no such device")


class Slow(Worker):
    """Takes a minute to be made."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        time.sleep(60)


class Tenant(Worker):
    """Takes turns on its devices, and keeps the times at which it did."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._events: list[tuple[str, int, int]] = []

    def offload(self) -> None:
        """Take a moment."""
        with self._timed("offload"):
            time.sleep(0.002)

    def onload(self) -> None:
        """Take a moment."""
        with self._timed("onload"):
            time.sleep(0.002)

    def work(self, turns: int, source: Channel | None = None, out: Channel | None = None) -> None:
        """Compute in a lease, again and again: on what comes, for whoever waits for it."""
        for turn in range(turns):
            item = turn if source is None else source.get()
            with self.lease(), self._timed("lease"):
                time.sleep(0.002)
            if out is not None:
                out.put(item)

    def hold(self, began: Channel, go: Channel) -> None:
        """Hold the devices until it is told to go on."""
        with self.lease(), self._timed("lease"):
            began.put("began")
            go.get()
            time.sleep(0.01)

    def events(self) -> list[tuple[str, int, int]]:
        """Return what was done, with the times of its beginning and its end."""
        return self._events

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic_ns()
        yield
        self._events.append((what, began, time.monotonic_ns()))


def tree(size: int) -> dict[str, Any]:
    """Return nested data of every kind that is sent, its large parts of about ``size`` numbers."""
    numbers = torch.arange(size)
    return {
        "plain": [None, True, 3, 2.5, "text", b"bytes", (1, (2,)), {"key": {4: 5}}],
        "float": numbers.float() / 7,
        "bfloat16": numbers.to(torch.bfloat16),
        "bool": numbers % 3 == 0,
        "complex": torch.view_as_complex(torch.ones(4, 2)).conj(),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(3, 0, dtype=torch.float16),
        "transposed": numbers.reshape(-1, 4).T,
        "every second": numbers[::2],
        "shaped": numbers.to(torch.uint8).reshape(2, -1, 2),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "array": np.arange(size, dtype=np.int16).reshape(4, -1),
        "columns": np.asfortranarray(np.arange(size, dtype=np.float32).reshape(4, -1)),
        "backwards": np.arange(size)[::-1],
        "no rows": np.zeros((0, 5), np.float64),
        "number": np.float32(1.5),
        "texts": np.array(["open", "the drawer"]),
    }


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return the paths at which two trees differ in type, shape or value."""
    if type(one) is not type(other):
        return [f"{path}: {type(one).__name__} and {type(other).__name__}"]
    if isinstance(one, dict):
        keys = [] if one.keys() == other.keys() else [f"{path}: other keys"]
        return keys + [d for k in one for d in differences(one[k], other.get(k), f"{path}/{k}")]
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        same = one.dtype == other.dtype and np.array_equal(one, other)
    else:
        same = bool(one == other)
    return [] if same else [f"{path}: {one!r} and {other!r}"]


def _until_closed(get: Callable[[], Any]) -> Iterator[Any]:
    while True:
        try:
            item = get()
        except ChannelClosed:
            return
        yield item


def _memory() -> int:
    """Return the most memory that this process ever had, in KiB, shared memory included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
