"""Devices of a run: what its file asks for, what the machine has, and what comes of both.

Plain arithmetic, without torch. Accelerator components count a machine's devices; which group gets
which of them is said in :mod:`rlinf_core.placement`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from rlinf_core.errors import Problem
from rlinf_core.placement import MOST_DEVICES, Device, suggest


class Supply(NamedTuple):
    """What a machine has of one kind of device.

    Args:
        torch_name: device type in torch: "cpu", "cuda".
        number: how many there are; those of a CPU are slots, as many as a run declares.
    """

    torch_name: str
    number: int


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
    wishes: Mapping[str, tuple[str, Wish]], supplies: Mapping[str, Supply]
) -> tuple[tuple[Device, ...], list[Problem]]:
    """Return the devices of a run and what is wrong with its wishes.

    Args:
        wishes: node group's label ("" without groups) to (dotted path, wish). All groups share
            the devices of one machine: each takes the next ones of its kind.
        supplies: name of an accelerator to what the machine has; the best kind first.
    """
    devices: list[Device] = []
    problems: list[Problem] = []
    taken: dict[str, int] = {}
    for label, (path, wish) in wishes.items():
        best = (name for name, s in supplies.items() if s.number)
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
                    f"{'' if wish.number is None else f'{count} x '}{kind}, but this machine has "
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
        for number in range(used, used + count):
            name = supply.torch_name if slots else f"{supply.torch_name}:{number}"
            devices.append(Device(kind, len(devices), number, name, label))
        taken[kind] = used + count
    return tuple(devices), problems
