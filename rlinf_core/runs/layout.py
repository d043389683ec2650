"""How a run's environments are dealt to workers and pipeline stages. Plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf_core.protocols.runtime import ChannelSpec

StageKey = tuple[int, int]
"""(rank of the simulation worker, stage): names one stream of steps through the channels."""

Streams = dict[StageKey, tuple[int, ...]]
"""The environments of every stage, in the order of environments."""


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


def streams(envs: int, size: int, stages: int) -> Streams:
    """Return the environment ids of every stage of all simulation workers, in their order."""
    return {
        (rank, stage): ids
        for rank in range(size)
        for stage, ids in enumerate(stage_ids(envs, size, rank, stages))
    }


def owned_envs(envs: int, group_size: int, size: int) -> list[range]:
    """Return the environments that each of ``size`` training workers learns from.

    Consecutive and nearly equal shares of whole groups.
    """
    shares = [share(envs // group_size, size, rank) for rank in range(size)]
    return [range(s.start * group_size, s.stop * group_size) for s in shares]


def overlap(ids: Sequence[int], owned: range) -> slice:
    """Return which positions of consecutive ``ids`` are environments of ``owned``."""
    first = max(owned.start - ids[0], 0)
    return slice(first, max(first, min(owned.stop - ids[0], len(ids))))
