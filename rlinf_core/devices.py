"""Devices of a run: what its file asks for, what the machine has, and what comes of both.

Plain arithmetic, without torch. Accelerator components count a machine's devices; which group gets
which of them is said in :mod:`rlinf_core.placement`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlinf_core.errors import Problem, RequestError
from rlinf_core.placement import MOST_DEVICES, Device, suggest


class Supply(NamedTuple):
    """What a machine has of one kind of device.

    Args:
        torch_name: device type in torch: "cpu", "cuda".
        number: how many there are; those of a CPU are slots, as many as a run declares.
        unusable: why they cannot be used although they are there; empty where they can.
    """

    torch_name: str
    number: int
    unusable: str = ""


class Wish(NamedTuple):
    """What a run asks for, from a text such as ``4 x cpu``.

    Args:
        kind: name of an accelerator; empty for the best there is.
        number: how many; None for all that there are.
    """

    kind: str
    number: int | None


AUTO = "auto"
"""As devices: all of the best accelerator there is."""


def parse_devices(path: str, text: str) -> Wish | Problem:
    """Return what ``auto``, ``cuda`` or ``2 x cuda`` asks for, or what is wrong with the text."""
    count, name = None, text.strip()
    if match := re.fullmatch(r"\s*([0-9]{1,9})\s*x\s*(\S.*?)\s*", text):
        count, name = int(match[1]), match[2]
    if re.search(r"\s|,", name) or (count is not None and not 1 <= count <= MOST_DEVICES):
        kinds = "'auto', the name of an accelerator, or a number of them, such as '4 x cpu'"
        return Problem(path, f"found {text!r}", f"wanted {kinds}")
    return Wish("" if name == AUTO else name, count)


def visible(text: str | None, names: Sequence[str], count: int | None = None) -> list[int]:
    """Return the numbers of the devices that a visibility variable shows, in its order.

    Drivers agree on what it means: its parts are numbers, or names as far as they are unique; what
    comes after a part that names no device is not shown; with one device named twice, none is.

    Args:
        text: the variable's value; None, where it is not set, shows all.
        names: of the devices there are, by number, such as "GPU-8932f937"; "" where there is none.
        count: how many of them, the first, can be shown by number; None means all.
    """
    count = len(names) if count is None else count
    if text is None:
        return list(range(count))
    found: list[int] = []
    for part in (piece.strip() for piece in text.split(",")):
        number = int(part) if re.fullmatch(r"[0-9]{1,9}", part) else -1
        if not 0 <= number < count:
            called = [n for n, name in enumerate(names) if part and name.startswith(part)]
            if len(called) != 1:
                break
            (number,) = called
        if number in found:
            return []
        found.append(number)
    return found


# --- devices that are not here --------------------------------------------------------------------


@dataclass(frozen=True)
class Assumed:
    """Devices that a plan takes for granted, whatever this machine has.

    Attributes:
        there: node group's label ("" for every group) and kind to (number, bytes of memory of each;
            None where it is not said).
    """

    there: Mapping[tuple[str, str], tuple[int, int | None]]

    @property
    def apart(self) -> bool:
        """Whether each node group is a machine of its own."""
        return any(label for label, _ in self.there)

    def as_json(self) -> list[dict[str, Any]]:
        """Return plain data."""
        return [
            {"node": label, "kind": kind, "number": number, "memory": memory}
            for (label, kind), (number, memory) in self.there.items()
        ]

    def number(self, kind: str, label: str = "") -> int:
        """Return how many devices of a kind the machine of a node group has."""
        return self.there.get((label if self.apart else "", kind), (0, None))[0]

    def memory(self, kind: str, label: str = "") -> int | None:
        """Return the memory of each of them in bytes."""
        return self.there.get((label if self.apart else "", kind), (0, None))[1]


_ASSUMED = re.compile(
    r"(?:(?P<label>[^/,:\s]+)/)?(?P<count>[0-9]{1,6})\s*x\s*(?P<kind>[^\s,]+)"
    r"(?:\s+of\s+(?P<size>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[kMGT]?i?B))?"
)
_UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"": 1, "k": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_assumed(text: str) -> Assumed:
    """Return the devices that a text such as ``8 x cuda of 80 GB, 2 x ascend`` assumes.

    ``left/8 x cuda, right/4 x rocm`` gives each node group a machine of its own.

    Raises:
        RequestError: it is no such text.
    """
    there: dict[tuple[str, str], tuple[int, int | None]] = {}
    for part in text.split(","):
        match = _ASSUMED.fullmatch(part.strip())
        if match is None or not 1 <= int(match["count"]) <= MOST_DEVICES:
            raise RequestError(
                f"--assume-devices: found {part.strip()!r}, wanted a number and a kind, such as "
                "'8 x cuda', with the memory of each where it is known, '8 x cuda of 80 GB', and "
                "behind the label of a node group that is a machine of its own, 'left/8 x cuda'"
            )
        key = (match["label"] or "", match["kind"])
        if key in there:
            raise RequestError(f"--assume-devices: {part.strip()!r} assumes {key[1]} twice")
        size, unit = match["size"], match["unit"] or ""
        units = _BINARY if "i" in unit else _UNITS
        memory = None if size is None else int(float(size) * units[unit.rstrip("B").rstrip("i")])
        there[key] = (int(match["count"]), memory)
    if len({bool(label) for label, _ in there}) > 1:
        raise RequestError(
            f"--assume-devices: found {text!r}, wanted a label before each kind, or before none"
        )
    return Assumed(there)


# --- from wishes to devices -----------------------------------------------------------------------


def declared(
    wishes: Mapping[str, tuple[str, Wish]], supplies: Mapping[str, Supply]
) -> dict[str, Supply]:
    """Return supplies that hold whatever wishes name with a number: other machines have it."""
    asked: dict[str, int] = {}
    for _, wish in wishes.values():
        asked[wish.kind] = asked.get(wish.kind, 0) + (wish.number or 0)
    return {
        kind: supply._replace(number=max(supply.number, asked.get(kind, 0)))
        for kind, supply in supplies.items()
    }


def make_devices(
    wishes: Mapping[str, tuple[str, Wish]],
    supplies: Mapping[str, Supply],
    machine: str = "this machine",
) -> tuple[tuple[Device, ...], list[Problem]]:
    """Return the devices of a run and what is wrong with its wishes.

    Args:
        wishes: node group's label ("" without groups) to (dotted path, wish). All groups share
            the devices of one machine: each takes the next ones of its kind.
        supplies: name of an accelerator to what the machine has; the best kind first.
        machine: what to call it.
    """
    devices: list[Device] = []
    problems: list[Problem] = []
    taken: dict[str, int] = {}
    for label, (path, wish) in wishes.items():
        best = (name for name, s in supplies.items() if s.number and not s.unusable)
        kind = wish.kind or next(best)
        supply, used = supplies[kind], taken.get(kind, 0)
        slots = supply.torch_name == "cpu"  # declared rather than counted
        free = supply.number if slots else max(0, supply.number - used)
        count = free if wish.number is None else wish.number
        if count < 1 or (count > free and not slots):
            others = f" and {used} go to other node groups" if used else ""
            problems.append(
                Problem(
                    path,
                    f"{'' if wish.number is None else f'{count} x '}{kind}, but {machine} has "
                    f"{supply.number or 'none'}{others}",
                    "wanted " + (f"at most {free} x {kind}, or " if free else "") + "cpu slots, "
                    f"such as '{max(count, 1)} x cpu'",
                    tuple(
                        suggest(path, f"{n} x {k}")
                        for n, k in ((free, kind), (max(count, 1), "cpu"))
                        if n
                    ),
                )
            )
            continue
        if supply.unusable:
            line = suggest(path, f"{count} x cpu")
            wanted = f"wanted another installation of torch, or cpu slots: {line}"
            problems.append(Problem(path, f"{kind}, but {supply.unusable}", wanted, (line,)))
            continue
        for number in range(used, used + count):
            name = supply.torch_name if slots else f"{supply.torch_name}:{number}"
            devices.append(Device(kind, len(devices), number, name, label))
        taken[kind] = used + count
    return tuple(devices), problems
