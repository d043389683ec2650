"""TrainingWorker: turns trajectories into new weights. One iteration reads top to bottom here."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import stream_seed
from rlinf_core.errors import RLInputError
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.algorithm import Algorithm, Counts
from rlinf_core.protocols.policy import Eval
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.simulator import Spaces
from rlinf_core.protocols.training_backend import TrainingBackend
from rlinf_core.protocols.weight_transport import Layout, Receipt, WeightTransport
from rlinf_core.runs.layout import Streams, overlap
from rlinf_core.runs.workers.build import policy_factory
from rlinf_core.runtime.collective import Collective
from rlinf_core.runtime.worker import Place, Worker
from rlinf_core.specs import ComponentRef

_SHUFFLE, _TORCH = 2, 3  # streams of the run's seed


@dataclass
class _Learning:
    """What one iteration of learning has come to so far; a context that adds up its seconds."""

    iteration: int
    epoch: int = 0
    seconds: float = 0.0
    stopped: bool = False
    history: list[dict[str, float]] = field(default_factory=list)

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


def _envs(trajectory: Batch) -> range:
    """Return the environments of a trajectory, which are consecutive."""
    first = int(trajectory["env"][0, 0])
    return range(first, first + trajectory["env"].shape[1])


def _nothing(rows: Batch) -> Batch:
    """Return one row that counts for nothing, for a worker without rows in a minibatch."""
    one = rows.rows(slice(0, 1))
    flags = {name: torch.zeros_like(one[name]) for name in ("valid", "mask") if name in one}
    return one.with_entries(**flags)


class TrainingWorker(Worker):
    """Owns the trained policy and its optimizer through a training backend.

    Args:
        backend: the training backend, with ``backend_config`` its validated configuration.
        model: the policy, with ``model_config``.
        algorithm: the objective, with ``algorithm_config``.
        weights: the weight transport, with ``weights_config``.
        epochs: passes over each iteration's rows.
        minibatch_size: rows per optimizer step.
        microbatch_size: rows per forward and backward pass.
        streaming: use a stage's trajectory once as soon as it is there.
        chunk: actions per step.
        seed: the run's seed.
    """

    def __init__(
        self,
        place: Place,
        backend: ComponentRef,
        backend_config: Any,
        model: ComponentRef,
        model_config: Any,
        algorithm: ComponentRef,
        algorithm_config: Any,
        weights: ComponentRef,
        weights_config: Any,
        epochs: int,
        minibatch_size: int,
        microbatch_size: int,
        streaming: bool,
        chunk: int,
        seed: int,
    ) -> None:
        super().__init__(place)
        self._backend: TrainingBackend = resolve_ref(backend)(backend_config, place.torch_name)
        self._algorithm: Algorithm = resolve_ref(algorithm)(algorithm_config)
        self._transport: WeightTransport = resolve_ref(weights)(weights_config)
        self._model, self._model_config = model, model_config
        self._epochs, self._streaming = epochs, streaming
        self._minibatch_size, self._microbatch_size = minibatch_size, microbatch_size
        self._chunk, self._seed = chunk, seed
        self._gathered: list[Batch] = []

    def build(self, spaces: Spaces) -> None:
        """Make the policy and its optimizer."""
        # The core draws nothing from torch's own generator, but a model may (dropout, say).
        torch.manual_seed(stream_seed(self._seed, _TORCH, self.place.rank))
        with self.lease():
            self._backend.build(
                policy_factory(self._model, self._model_config, spaces, self._chunk, self._seed)
            )

    def join(self, gradients: Channel) -> None:
        """Become one of several training workers, who add up ``gradients`` through a channel."""
        rank, size = self.place.rank, self.place.size
        self._backend.join(rank, size, Collective(gradients, rank, size).sum)

    # --- one iteration ---------------------------------------------------------------------------

    def gather(self, sources: Streams, owned: list[range], trajectories: Channel) -> None:
        """Wait for an iteration's trajectories and keep them for :meth:`update`.

        Until all have come nothing is learned, so whoever collects may fail and do it again.
        """
        version = self._backend.export().header.version
        self._gathered = list(self._arriving(sources, owned, trajectories, version))

    def update(
        self,
        iteration: int,
        sources: Streams,
        owned: list[range],
        trajectories: Channel | None = None,
    ) -> dict[str, float]:
        """Learn from an iteration's trajectories; return means over optimizer steps.

        Args:
            iteration: its number, which keys the order of rows.
            sources: environment ids of every stage that sends trajectories.
            owned: which environments each training worker learns from.
            trajectories: where they come from, one piece per stage; None: they were gathered.
        """
        version = self._backend.export().header.version
        self.notes["version"] = version
        pieces: Iterator[Batch] = iter(self._gathered)
        self._gathered = []
        if trajectories is not None:
            pieces = self._arriving(sources, owned, trajectories, version)
        whole = range(owned[-1].stop)
        if not self._streaming:
            pieces = iter([Batch.cat(list(pieces), dim=1)])

        learning = _Learning(iteration)
        collected, prepared = [], []
        for piece in pieces:  # the wait for one is here, and not where the device is held
            with self.lease(), learning:
                collected.append(piece.to(self.place.torch_name))  # [T, N, ...]
                prepared.append(self._prepare(collected[-1]))
                self._epoch(prepared[-1], _envs(piece) if self._streaming else whole, learning)
        with self.lease(), learning:
            trajectory, rows = Batch.cat(collected, dim=1), Batch.cat(prepared, dim=1)
            for _ in range(1, self._epochs):
                self._epoch(rows, whole, learning)
            # Statistics that the policy keeps move only now, when nothing is scored by the old.
            executed = trajectory["valid"].any(dim=-1)  # [T, N]
            self._backend.policy.observe(trajectory["obs"], executed, self._backend.reduce)
            self._backend.advance()
        history, names = learning.history, learning.history[0].keys()
        means = {f"train/{n}": math.fsum(m[n] for m in history) / len(history) for n in names}
        return means | {
            "train/optimizer_steps": float(len(history)),
            "train/staleness": float((version - trajectory["version"]).double().mean()),
            "executed_steps": float(self._backend.reduce(trajectory["valid"].sum())),
            "time/update_s": learning.seconds,
        }

    def _arriving(
        self, sources: Streams, owned: list[range], trajectories: Channel, version: int
    ) -> Iterator[Batch]:
        """Yield the pieces that this worker learns from, as they come.

        In the order of environments, so that no number depends on who simulated or acted.
        """
        mine = owned[self.place.rank]
        for key in [key for key, ids in sources.items() if ids[overlap(ids, mine)]]:
            yield trajectories.get(key=(self.place.rank, *key), version=version)

    def _prepare(self, trajectory: Batch) -> Batch:
        """Return a trajectory [T, N, ...] with everything that the loss reads."""
        prepared = self._algorithm.advantages(trajectory, self._backend.reduce)
        if not self._algorithm.needs.proximal_logp:
            return prepared
        scored = self._backend.score(prepared.flatten().split(self._microbatch_size))
        logp = torch.cat([evaluation.logp for evaluation in scored])  # [T*N, ...]
        logp = logp.reshape(*prepared["env"].shape, *logp.shape[1:])  # [T, N, ...]
        return prepared.with_entries(proximal_logp=logp)

    def _epoch(self, rows: Batch, envs: range, learning: _Learning) -> None:
        """Use each row [T, N, ...] once, in an order that is shuffled over ``envs``."""
        order = (learning.iteration, learning.epoch)
        learning.epoch += 1
        if learning.stopped:
            return
        for minibatch in self._minibatches(rows, envs, order):
            counts = self._counts(minibatch)

            def loss(micro: Batch, evaluation: Eval, counts: Counts = counts) -> Any:
                found, metrics = self._algorithm.loss(micro, evaluation, counts)
                if not isinstance(found, Tensor) or found.ndim != 0:
                    shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
                    raise RLInputError(f"the algorithm's loss is {shape}; wanted a scalar tensor")
                return found, metrics

            metrics = self._backend.update(minibatch.split(self._microbatch_size), loss)
            learning.history.append(dict(metrics))
            if self._algorithm.stop(metrics):
                learning.stopped = True
                return

    def _minibatches(self, rows: Batch, envs: range, order: tuple[int, ...]) -> Iterator[Batch]:
        """Yield this worker's part of each shuffled minibatch.

        What is shuffled are rows, or whole groups of G consecutive environments with all their T
        steps where the algorithm compares groups. The order depends on the seed alone: it is that
        of all ``envs``, of which every worker picks its own. So numbers do not depend on how many
        workers there are, and a minibatch may have more rows for one than for another.
        """
        flat, size = rows.flatten(), self._algorithm.needs.group_size
        steps, width = rows["env"].shape
        units = torch.arange(steps * len(envs)).reshape(steps, -1, size)  # [T, N / G, G]
        units = units.transpose(0, 1).flatten(1) if size > 1 else units.reshape(-1, 1)
        generator = torch.Generator()
        generator.manual_seed(stream_seed(self._seed, _SHUFFLE, *order))
        shuffled = units[torch.randperm(len(units), generator=generator)].flatten()  # [T*N]
        step, column = shuffled // len(envs), shuffled % len(envs) + envs.start - _envs(rows).start
        own, places = (column >= 0) & (column < width), step * width + column  # [T*N] each
        mine = len(envs) == width  # all of them, as with one worker
        for start in range(0, len(shuffled), self._minibatch_size):
            part = slice(start, start + self._minibatch_size)
            chosen = places[part] if mine else places[part][own[part]]
            yield flat.rows(chosen) if len(chosen) else _nothing(flat)

    def _counts(self, minibatch: Batch) -> Counts:
        valid = minibatch["valid"]  # [B, C]
        executed = valid.any(dim=1)  # [B]
        group = minibatch["env"][executed] // self._algorithm.needs.group_size  # [rows]
        groups = torch.tensor(len(group.unique()), device=valid.device)  # []
        total: Tensor = self._backend.reduce(torch.stack([valid.sum(), executed.sum(), groups]))
        return Counts(steps=total[0], rows=total[1], groups=total[2])

    # --- weights and checkpoints -----------------------------------------------------------------

    def open_weights(self, channel: Channel, source: Layout, target: Layout) -> None:
        """Get ready to send weights through ``channel``."""
        self._transport.open(channel, source, target)

    def send_weights(self) -> Receipt:
        """Send the current weights to the rollout workers; every rank has the same."""
        stream = self._backend.export()
        if self.place.rank:
            return Receipt(0, "", stream.header.version)
        return self._transport.send(stream, stream.header.version)

    def save(self, folder: str) -> int:
        """Write weights, optimizer and schedule below ``folder``; return the weights' version."""
        if self.place.rank == 0:
            self._backend.save(Path(folder))
        return self._backend.export().header.version

    def load(self, folder: str) -> None:
        """Continue from :meth:`save`."""
        self._backend.load(Path(folder))

    # --- the device ------------------------------------------------------------------------------

    def offload(self) -> None:
        """Free the device for whoever takes turns with this worker."""
        self._backend.offload()

    def onload(self) -> None:
        """Come back to it."""
        self._backend.onload()
