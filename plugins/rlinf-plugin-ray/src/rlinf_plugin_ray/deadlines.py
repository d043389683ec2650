"""Deadlines: who is to blame where workers are late.

Where several are late because they wait for one another, it is the one that waits for nobody, which
may have more time than those that wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlinf_plugin_ray.handles import Remote


def blame(
    late: Sequence[Remote], busy: Sequence[Remote], waits: Mapping[str, str]
) -> tuple[Remote, str]:
    """Return who is to blame, and what for.

    Args:
        late: workers that took longer than they may, at least one.
        busy: all that are at something.
        waits: name of a worker to what it waits for, as the board tells.
    """
    first = min(late, key=lambda worker: worker.due())
    moving = [w for w in late if w.name not in waits] or [w for w in busy if w.name not in waits]
    culprit = min(moving or [first], key=lambda worker: worker.since)
    text = f"it took more than {culprit.limit:g} s, its deadline"
    if culprit not in late:
        text = (
            f"{first.name}.{first.method} took more than {first.limit:g} s, its deadline, waiting "
            f"for {waits[first.name]}; this one waits for nobody"
        )
    elif culprit.name in waits:
        others = "; ".join(sorted(f"{name} waits for {what}" for name, what in waits.items()))
        text += f", and waits as everybody does: {others}"
    return culprit, f"{text}; its process was killed"
