"""What the runtime ``ray`` wants of a machine: Ray, and for several machines a cluster that runs.

Called in a process of its own, which joins the cluster to see what it has.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from rlinf_core.api import Readiness

_WHAT = "Ray cluster"
_GIVES = "runs on several machines"
_START = "ray start --head --port=6379, then on other machines ray start --address=HEAD:6379"


def probe() -> list[Readiness]:
    """Return what is there."""
    try:
        found = version("ray")
    except PackageNotFoundError:
        return [Readiness("Ray", False, "not installed", remedy="pip install rlinf-plugin-ray")]
    return [Readiness("Ray", True, f"Ray {found}"), _cluster()]


def _cluster() -> Readiness:
    """Return whether the cluster that a run would take by itself is there, and what it has."""
    from rlinf_plugin_ray.cluster import answers, last_started

    named = os.environ.get("RAY_ADDRESS", "")
    address = named or last_started() or ""
    if not address:
        found = "none runs here; a run on this machine alone starts its own"
        return Readiness(_WHAT, False, found, _GIVES, _START)
    if named not in ("", "auto") and not answers(address):
        remedy = f"unset RAY_ADDRESS, or {_START}"
        return Readiness(_WHAT, False, f"nothing answers at RAY_ADDRESS={address}", _GIVES, remedy)
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    except Exception as error:  # another version of Ray or of Python, a token that is missing
        found = f"{address} cannot be joined: {str(error).splitlines()[0]}"
        return Readiness(_WHAT, False, found, _GIVES, "install the same Ray and Python everywhere")
    ray.shutdown()
    return Readiness(_WHAT, True, f"{address}: {_told(nodes)}")


def _told(nodes: list[dict[str, float]]) -> str:
    """Return how many machines there are and what they have, as Ray counts it."""
    from rlinf_plugin_ray.reservation import real, shown

    total: dict[str, float] = {}
    for node in nodes:
        for name, number in real(node).items():
            total[name] = total.get(name, 0) + number
    machines = "1 machine" if len(nodes) == 1 else f"{len(nodes)} machines"
    return f"{machines} with {shown(total)}"
