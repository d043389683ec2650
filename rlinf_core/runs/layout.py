"""How a run's environments are dealt to workers and pipeline stages. Plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf_core.protocols.runtime import ChannelSpec

StageKey = tuple[int, int]
"""(rank of the simulation worker, stage): names one stream of steps through the channels."""


def share(total: int, parts: int, index: int) -> range:
    """Return the ``index``-th of ``parts`` consecutive, nearly equal shares of ``range(total)``."""
    return range(total * index // parts, total * (index + 1) // parts)


def stage_ids(envs: int, size: int, rank: int, stages: int) -> list[tuple[int, ...]]:
    """Return the environment ids of each stage of one simulation worker."""
    mine = share(envs, size, rank)
    return [tuple(mine[i] for i in share(len(mine), stages, stage)) for stage in range(stages)]


def stage_keys(size: int, stages: int) -> list[StageKey]:
    """Return the keys of all stages of all simulation workers, stage by stage.

    In this order a rollout worker serves the first stage of everybody, then the second, so that
    the first can simulate meanwhile.
    """
    return [(rank, stage) for stage in range(stages) for rank in range(size)]


def stream_channel(streams: int) -> ChannelSpec:
    """Return a channel with room for one item of every stream.

    With less, streams whose turn is later could fill it, and the one that is waited for not get in.
    """
    return ChannelSpec(capacity=max(ChannelSpec.capacity, streams))


def served_by(keys: Sequence[StageKey], size: int, rank: int) -> list[StageKey]:
    """Return the keys that one of ``size`` rollout workers serves."""
    return [key for index, key in enumerate(keys) if index % size == rank]
