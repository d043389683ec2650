"""TrainingWorker: turns trajectories into new weights. One iteration reads top to bottom here."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
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
from rlinf_core.runs.workers.build import policy_factory
from rlinf_core.runtime.worker import Place, Worker
from rlinf_core.specs import ComponentRef

_SHUFFLE, _TORCH = 2, 3  # streams of the run's seed


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
        chunk: int,
        seed: int,
    ) -> None:
        super().__init__(place)
        self._backend: TrainingBackend = resolve_ref(backend)(backend_config, place.torch_name)
        self._algorithm: Algorithm = resolve_ref(algorithm)(algorithm_config)
        self._transport: WeightTransport = resolve_ref(weights)(weights_config)
        self._model, self._model_config = model, model_config
        self._epochs = epochs
        self._minibatch_size, self._microbatch_size = minibatch_size, microbatch_size
        self._chunk, self._seed = chunk, seed

    def build(self, spaces: Spaces) -> None:
        """Make the policy and its optimizer."""
        # The core draws nothing from torch's own generator, but a model may (dropout, say).
        torch.manual_seed(stream_seed(self._seed, _TORCH, self.place.rank))
        with self.lease():
            self._backend.build(
                policy_factory(self._model, self._model_config, spaces, self._chunk, self._seed)
            )

    # --- one iteration ---------------------------------------------------------------------------

    def update(self, iteration: int, rows: int, trajectories: Channel) -> dict[str, float]:
        """Learn from the next ``rows`` rows of trajectories; return means over optimizer steps."""
        version = self._backend.export().header.version
        self.notes["version"] = version
        pieces: list[Batch] = trajectories.get_batch(weight=rows, version=version)
        # In the order of environments, so that no number depends on who simulated or acted.
        pieces.sort(key=lambda piece: int(piece["env"][0, 0]))
        with self.lease():
            return self._learn(iteration, Batch.cat(pieces, dim=1), version)

    def _learn(self, iteration: int, trajectory: Batch, version: int) -> dict[str, float]:
        began = time.perf_counter()
        trajectory = trajectory.to(self.place.torch_name)  # [T, N, ...]
        prepared = self._algorithm.advantages(trajectory, self._backend.reduce)
        flat = prepared.flatten()  # [T*N, ...]
        if self._algorithm.needs.proximal_logp:
            flat = flat.with_entries(proximal_logp=self._score(flat))

        history: list[dict[str, float]] = []
        for minibatch in self._minibatches(flat, len(prepared), iteration):
            counts = self._counts(minibatch)

            def loss(micro: Batch, evaluation: Eval, counts: Counts = counts) -> Any:
                found, metrics = self._algorithm.loss(micro, evaluation, counts)
                if not isinstance(found, Tensor) or found.ndim != 0:
                    shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
                    raise RLInputError(f"the algorithm's loss is {shape}; wanted a scalar tensor")
                return found, metrics

            metrics = self._backend.update(minibatch.split(self._microbatch_size), loss)
            history.append(dict(metrics))
            if self._algorithm.stop(metrics):
                break

        # Statistics that the policy keeps move only now, when nothing is scored by the old ones.
        executed = trajectory["valid"].any(dim=-1)  # [T, N]
        self._backend.policy.observe(trajectory["obs"], executed, self._backend.reduce)
        self._backend.advance()
        names = history[0].keys()
        means = {f"train/{n}": math.fsum(m[n] for m in history) / len(history) for n in names}
        return means | {
            "train/optimizer_steps": float(len(history)),
            "train/staleness": float((version - trajectory["version"]).float().mean()),
            "executed_steps": float(self._backend.reduce(trajectory["valid"].sum())),
            "time/update_s": time.perf_counter() - began,
        }

    def _minibatches(self, rows: Batch, steps: int, iteration: int) -> Iterator[Batch]:
        """Yield shuffled minibatches, epoch by epoch; the order depends on the seed alone.

        What is shuffled are rows, or whole groups of G consecutive environments with all their
        T = ``steps`` steps where the algorithm compares groups.
        """
        size = self._algorithm.needs.group_size
        units = torch.arange(len(rows)).reshape(steps, -1, size)  # [T, N / G, G]
        units = units.transpose(0, 1).flatten(1) if size > 1 else units.reshape(-1, 1)
        generator = torch.Generator()
        for epoch in range(self._epochs):
            generator.manual_seed(stream_seed(self._seed, _SHUFFLE, iteration, epoch))
            order = units[torch.randperm(len(units), generator=generator)].flatten()  # [B]
            for start in range(0, len(rows), self._minibatch_size):
                yield rows.rows(order[start : start + self._minibatch_size])

    def _score(self, rows: Batch) -> Tensor:
        """Return log-probs of what was done [B, ...] under the weights of now."""
        scored = self._backend.score(rows.split(self._microbatch_size))
        return torch.cat([evaluation.logp for evaluation in scored])

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
        """Send the current weights to the rollout workers."""
        stream = self._backend.export()
        return self._transport.send(stream, stream.header.version)

    def save(self, folder: str) -> int:
        """Write weights, optimizer and schedule below ``folder``; return the weights' version."""
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
