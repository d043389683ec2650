"""RolloutWorker: answers observations with actions, and makes trajectories of what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import Draws, DrawsAhead
from rlinf_core.data.trajectory import TrajectoryBuilder, columns
from rlinf_core.errors import BatchError
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.policy import Act, Mode
from rlinf_core.protocols.rollout_engine import RolloutEngine
from rlinf_core.protocols.runtime import Channel
from rlinf_core.protocols.simulator import Spaces
from rlinf_core.protocols.weight_transport import Layout, Receipt, WeightTransport
from rlinf_core.runs.layout import StageKey, overlap, served_by
from rlinf_core.runs.workers.build import policy_factory
from rlinf_core.runtime.worker import Place, Worker
from rlinf_core.specs import ComponentRef
from rlinf_core.transport.weights import stream_from_files

_OUTCOME = ("reward", "terminated", "truncated", "success", "valid")


class RolloutWorker(Worker):
    """Runs the policy in a rollout engine.

    Args:
        engine: the rollout engine, with ``engine_config`` its validated configuration.
        model: the policy, with ``model_config``.
        weights: the weight transport, with ``weights_config``.
        chunk: actions per step.
        seed: the run's seed; keys every random number that the policy draws.
    """

    def __init__(
        self,
        place: Place,
        engine: ComponentRef,
        engine_config: Any,
        model: ComponentRef,
        model_config: Any,
        weights: ComponentRef,
        weights_config: Any,
        chunk: int,
        seed: int,
    ) -> None:
        super().__init__(place)
        self._engine: RolloutEngine = resolve_ref(engine)(engine_config, place.torch_name)
        self._transport: WeightTransport = resolve_ref(weights)(weights_config)
        self._model, self._model_config = model, model_config
        self._chunk, self._seed = chunk, seed

    def build(self, spaces: Spaces) -> None:
        """Make the policy."""
        self._shape = (self._chunk, *spaces.action.shape)
        with self.lease():
            self._engine.build(
                policy_factory(self._model, self._model_config, spaces, self._chunk, self._seed)
            )

    def open_weights(
        self, channel: Channel, replies: Channel, source: Layout, target: Layout
    ) -> None:
        """Get ready to receive weights through ``channel``."""
        mine = replace(target, rank=self.place.rank, device=self.place.torch_name)
        self._transport.open(channel, replies, source, mine)

    def receive_weights(self) -> Receipt:
        """Wait for the next version of the weights and load it."""
        receipt = self._transport.receive(self._engine)
        self.notes |= {"version": receipt.version, "bytes": receipt.bytes}
        return receipt

    def load_weights(self, folder: str, version: int) -> None:
        """Load the weights of a checkpoint."""
        from pathlib import Path

        self._engine.load(stream_from_files(Path(folder), version), version)

    # --- serving ---------------------------------------------------------------------------------

    def serve(
        self,
        first_step: int,
        steps: int,
        keys: list[StageKey],
        observations: Channel,
        actions: Channel,
        trajectories: Channel,
        owned: list[range],
    ) -> None:
        """Answer ``steps`` observations of each stage and send its trajectory.

        Args:
            first_step: run-wide number of the first step; keys the policy's random numbers.
            keys: all stages; this worker serves its share of them.
            owned: which environments each training worker learns from. Under the key (its rank,
                rank of the simulation worker, stage) it gets those columns of a trajectory.
        """
        self.notes["version"] = self._engine.version
        mine = served_by(keys, self.place.size, self.place.rank)
        self.notes["items"] = (steps + 1) * len(mine)
        builders = {key: TrajectoryBuilder() for key in mine}
        draws = {key: DrawsAhead(self._seed) for key in mine}
        for step in range(steps):
            for key in mine:
                message = observations.get(key=key)
                numbers = draws[key].at(message["env"].tolist(), first_step + step)
                act = self._act(message, numbers)
                actions.put(act.actions, key=key)
                # what is left is done while the simulator goes on
                if step:
                    self._outcome(builders[key], message)
                self._keep(builders[key], message, first_step + step, act)
        for key in mine:
            message = observations.get(key=key)
            self._outcome(builders[key], message)
            last = self._infer(message["obs"], None, Mode.VALUE)
            trajectory = builders[key].build(last.value)
            ids = message["env"].tolist()
            self.notes["rows"] = len(ids)
            for reader, envs in enumerate(owned):
                wanted = overlap(ids, envs)
                if rows := len(trajectory) * len(ids[wanted]):
                    part = columns(trajectory, wanted)
                    version = self._engine.version
                    trajectories.put(part, key=(reader, *key), weight=rows, version=version)

    def answer(self, keys: list[StageKey], observations: Channel, actions: Channel) -> None:
        """Answer greedily until each stage says that it has ended (evaluation)."""
        mine = served_by(keys, self.place.size, self.place.rank)
        while mine:
            for key in list(mine):
                message = observations.get(key=key)
                if message is None:
                    mine.remove(key)
                else:
                    act = self._infer(message["obs"], None, Mode.GREEDY)
                    actions.put(act.actions, key=key)

    def offload(self) -> None:
        """Free the device for whoever takes turns with this worker."""
        self._engine.sleep()

    def onload(self) -> None:
        """Come back to it."""
        self._engine.wake()

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def _infer(self, obs: Batch, draws: Draws | None, mode: Mode) -> Act:
        with self.lease():
            return self._engine.act(obs, draws, mode)

    def _act(self, message: Batch, draws: Draws) -> Act:
        act = self._infer(message["obs"], draws, Mode.SAMPLE)
        self._check(act, len(message))
        return act

    def _keep(self, builder: TrajectoryBuilder, message: Batch, step: int, act: Act) -> None:
        ids = message["env"]  # [n]
        builder.act(
            obs=message["obs"],
            replay=act.replay,
            logp=act.logp,
            value=act.value,
            env=ids,
            step=torch.full_like(ids, step),  # [n]
            version=torch.full_like(ids, self._engine.version),  # [n]
        )

    def _check(self, act: Act, rows: int) -> None:
        """Refuse an act that breaks the contract, before it spreads."""
        wanted = (rows, *self._shape)
        for name in ("actions", "logp", "replay"):
            if getattr(act, name, None) is None:
                raise BatchError(f"the model's act() gave no {name} in mode SAMPLE")
        if act.actions is None or tuple(act.actions.shape) != wanted:
            found = None if act.actions is None else list(act.actions.shape)
            raise BatchError(
                f"the model's act() gave actions of shape {found}; wanted {list(wanted)}, [N, C, A]"
            )

    def _outcome(self, builder: TrajectoryBuilder, message: Batch) -> None:
        final_values = None
        if "final_obs" in message:
            truncated = (message["truncated"] & message["valid"]).any(dim=1)  # [n]
            act = self._infer(message["final_obs"].rows(truncated), None, Mode.VALUE)
            if act.value is not None:
                final_values = torch.zeros(len(message), dtype=act.value.dtype)  # [n]
                final_values[truncated] = act.value
        builder.outcome(final_values, **{name: message[name] for name in _OUTCOME})
