"""Leases: groups that cannot all stay on a device take turns. The state; no waiting, no processes.

One primitive is lock and context switch at once. A worker computes within a lease and waits for
others only outside of one, so nobody who waits for an item holds a device: no circle can close.
Whoever had the last lease stays *resident* until somebody else wants one of its devices; it is then
asked to leave (to offload), and only after it has left is the next one let in. All devices of a
worker are granted at once or not at all, to parents in the flow before their children.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Leases:
    """Who is resident on which devices, and who waits for them."""

    def __init__(self) -> None:
        self._resident: dict[int, Hashable] = {}
        self._waiting: list[tuple[int, int, Hashable, frozenset[int]]] = []
        self._asked_to_leave: set[Hashable] = set()
        self._count = 0

    def ask(self, who: Hashable, devices: Iterable[int], order: int) -> None:
        """Wish to be resident on devices.

        Args:
            who: the worker.
            devices: their numbers.
            order: its place in the flow; parents have smaller numbers than their children.
        """
        self._count += 1
        self._waiting.append((order, self._count, who, frozenset(devices)))
        self._waiting.sort(key=lambda wish: wish[:2])

    def left(self, who: Hashable) -> None:
        """Take note that a worker has left its devices, or is gone for good."""
        self._resident = {d: w for d, w in self._resident.items() if w != who}
        self._asked_to_leave.discard(who)

    def withdraw(self, who: Hashable) -> None:
        """Take note that a worker does not wait any more."""
        self._waiting = [wish for wish in self._waiting if wish[2] != who]

    def forget(self, who: Hashable) -> None:
        """Take note that a worker is gone: it is neither resident nor waits."""
        self.left(who)
        self.withdraw(who)

    def advance(self) -> tuple[list[Hashable], list[Hashable]]:
        """Return who is let in now, and who is to leave for those that wait."""
        granted: list[Hashable] = []
        leaving: list[Hashable] = []
        promised: set[int] = set()  # devices that somebody further ahead waits for
        for wish in list(self._waiting):
            _, _, who, devices = wish
            others = {self._resident[d] for d in devices if d in self._resident} - {who}
            if not others and not devices & promised:
                self._waiting.remove(wish)
                self._resident |= dict.fromkeys(devices, who)
                granted.append(who)
                continue
            promised |= devices
            for other in others - self._asked_to_leave:
                self._asked_to_leave.add(other)
                leaving.append(other)
        return granted, leaving
