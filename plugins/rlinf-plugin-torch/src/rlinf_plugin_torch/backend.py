"""The training backend ``torch``: one optimizer step from micro-batches, on one rank or several.

What a training backend must do is stated in ``rlinf_core.protocols.training_backend``. An update
reads top to bottom in :meth:`TorchBackend.update`; optimizers and parameter groups are in
``optimizers.py``, sums over ranks in ``ranks.py``, files in ``checkpoint.py``, the learning-rate
curve in ``config.py``.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from rlinf_core.api import (
    Batch,
    BatchError,
    CheckpointError,
    Eval,
    RlinfError,
    WeightStream,
    rl,
)
from rlinf_plugin_torch import checkpoint
from rlinf_plugin_torch.config import TorchConfig
from rlinf_plugin_torch.optimizers import make_optimizer
from rlinf_plugin_torch.ranks import add_up

LossFunction = Callable[[Batch, Eval], tuple[Tensor, rl.Metrics]]

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class NonFiniteGradientError(RlinfError):
    """A gradient was NaN or infinite; the weights are those from before the update."""


class TorchBackend:
    """Owns the trained copy of a policy, its optimizer and its schedule.

    Attributes:
        policy: the module that is trained; there from :meth:`build` on.
        iteration: finished iterations, which is also the version of the weights. It counts on
            after a :meth:`load`.

    Args:
        config: optimizer, clipping, schedule, precision and so on.
        device: torch's name of the device to train on.
    """

    policy: Any  # a torch.nn.Module that is a rlinf_core.api.Policy
    optimizer: torch.optim.Optimizer

    def __init__(self, config: TorchConfig, device: str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self.iteration = 0
        self._offloaded = False
        self._total: Callable[[Tensor], Tensor] | None = None

    def join(self, rank: int, size: int, total: Callable[[Tensor], Tensor]) -> None:
        """Become one of several ranks: each has all weights, and gradients are added up.

        Args:
            rank: of this process.
            size: number of ranks.
            total: sums a tensor over all ranks.
        """
        self._total = total

    def build(self, make_policy: Callable[[], nn.Module]) -> None:
        """Make the policy, move it to the device and make its optimizer.

        Raises:
            ConfigError: a parameter group matches nothing, or two match one parameter.
        """
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        if self.config.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS refuses
            torch.use_deterministic_algorithms(True)
        self.policy = make_policy().to(self.device)
        self.optimizer = make_optimizer(self.policy, self.config)
        # fp16 holds nothing below 6e-8: the loss is scaled up so that gradients are above that.
        self._scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.config.precision == "fp16"
        )
        self._set_learning_rate()

    # --- one optimizer step ----------------------------------------------------------------------

    def update(self, microbatches: Sequence[Batch], loss_fn: LossFunction) -> dict[str, float]:
        """Make one optimizer step from micro-batches whose losses add up to the whole.

        Args:
            microbatches: batches with an entry ``replay``, on any device.
            loss_fn: returns a micro-batch's share of the loss and its metrics as (sum, count).

        Returns:
            each metric as sum / count, and ``loss``, ``grad_norm`` (before clipping),
            ``learning_rate`` (the common one) and ``skipped`` (1 if the gradient was not finite
            and no step was made, else 0).

        Raises:
            BatchError: there is no micro-batch.
            NonFiniteGradientError: the gradient is NaN or infinite and ``nonfinite`` is "raise".
        """
        if not microbatches:
            raise BatchError("update() without micro-batches; wanted at least one")
        if self._offloaded:
            raise RlinfError("update() of an offloaded backend; call onload() first")

        self.optimizer.zero_grad(set_to_none=True)
        parts, losses = [], []
        for micro in microbatches:
            micro = micro.to(self.device)
            with self._autocast():
                evaluation = self.policy.evaluate(micro["replay"])
            loss, metrics = loss_fn(micro, evaluation)  # in fp32: outside of autocast
            torch.autograd.backward(self._scaler.scale(loss))
            parts.append(metrics)
            losses.append(loss.detach())

        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        loss, merged = torch.stack(losses).sum(), rl.merge_metrics(parts)
        if self._total is not None:
            loss, merged = add_up(self._total, parameters, loss, merged)
        self._scaler.unscale_(self.optimizer)
        norm = get_total_norm([p.grad for p in parameters if p.grad is not None])  # []

        # The one wait for the device: every number in a single copy, before the weights change.
        numbers = rl.mean_metrics(merged)
        numbers |= {"loss": loss, "grad_norm": norm}
        values = torch.stack([number.detach().double() for number in numbers.values()]).tolist()
        result = dict(zip(numbers, values, strict=True))

        finite = math.isfinite(result["grad_norm"])
        if finite:
            if self.config.max_grad_norm is not None:
                clip_grads_with_norm_(parameters, self.config.max_grad_norm, norm)
            self._scaler.step(self.optimizer)
        elif self.config.nonfinite == "raise" and not self._can_rescale():
            raise NonFiniteGradientError(self._diagnosis(result))
        self._scaler.update()
        result["learning_rate"] = self.config.learning_rate * self._factor
        result["skipped"] = float(not finite)
        return result

    @torch.no_grad()
    def score(self, microbatches: Sequence[Batch]) -> list[Eval]:
        """Return ``policy.evaluate`` of each micro-batch under the weights of now, no gradients."""
        scored = []
        for micro in microbatches:
            with self._autocast():
                scored.append(self.policy.evaluate(micro["replay"].to(self.device)))
        return scored

    def advance(self) -> None:
        """Tell the schedule that an iteration is over; the weights' version goes up by one."""
        self.iteration += 1
        self._set_learning_rate()

    def reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks."""
        return tensor if self._total is None else self._total(tensor)

    # --- files -----------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write weights, optimizer, schedule and torch's random state into ``folder``.

        See ``checkpoint.py`` for the files. They are flushed to the disk.
        """
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"state/{name}/{key}": value
            for name, parameter in self._trained()
            for key, value in self.optimizer.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }
        tensors["random/cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(self.device)
        checkpoint.write_tensors(folder / "model.safetensors", self.policy.state_dict())
        checkpoint.write_tensors(folder / "optimizer.safetensors", tensors)
        record = {
            "optimizer": self.config.optimizer,
            "iteration": self.iteration,
            "scaler": self._scaler.state_dict(),
            "parameters": [name for name, _ in self._trained()],
            "tensors": sorted(tensors),
        }
        checkpoint.write_json(folder / "optimizer.json", record)

    def load(self, folder: Path) -> None:
        """Read what :meth:`save` wrote; updates go on bit for bit on the same kind of device.

        Options such as the learning rate are those of ``config``, not of the file. Nothing is
        changed unless all files fit.

        Raises:
            CheckpointError: a file is missing or damaged, or is of another model or optimizer.
        """
        record = checkpoint.read_json(folder / "optimizer.json")
        weights = checkpoint.read_tensors(folder / "model.safetensors")
        tensors = checkpoint.read_tensors(folder / "optimizer.safetensors")
        checkpoint.check_weights(folder, weights, self.policy.state_dict())
        state = self._optimizer_state(folder, record, tensors)
        self.policy.load_state_dict(weights)
        self.optimizer.load_state_dict(state)
        if record["scaler"]:
            self._scaler.load_state_dict(record["scaler"])
        torch.set_rng_state(tensors["random/cpu"])
        if self.device.type == "cuda" and "random/cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random/cuda"], self.device)
        self.iteration = record["iteration"]
        self._set_learning_rate()

    # --- weights to other places -----------------------------------------------------------------

    def export(self) -> WeightStream:
        """Return all weights and buffers by name, not copied, of version ``iteration``."""
        return WeightStream.of(self.policy, self.iteration)

    def offload(self) -> None:
        """Move weights and optimizer to the CPU and free the gradients."""
        self._move(torch.device("cpu"))
        self._offloaded = True
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def onload(self) -> None:
        """Move weights and optimizer back to the device."""
        self._move(self.device)
        self._offloaded = False

    # --- private ---------------------------------------------------------------------------------

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        dtype = AUTOCAST[self.config.precision]
        return torch.autocast(self.device.type, dtype) if dtype else contextlib.nullcontext()

    def _set_learning_rate(self) -> None:
        self._factor = self.config.schedule.factor(self.iteration)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * self._factor

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        """Return names and parameters in the optimizer's own order."""
        return [
            pair
            for group in self.optimizer.param_groups
            for pair in zip(group["names"], group["params"], strict=True)
        ]

    def _move(self, device: torch.device) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.policy.to(device)
        for state in self.optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    state[key] = value.to(device)

    def _can_rescale(self) -> bool:
        """Return whether fp16's loss scale, which is meant to overflow at times, can go down."""
        return self._scaler.is_enabled() and self._scaler.get_scale() > 1.0

    def _diagnosis(self, result: Mapping[str, float]) -> str:
        metrics = {n: v for n, v in result.items() if not math.isfinite(v) and n != "grad_norm"}
        broken = [
            name
            for name, p in self.policy.named_parameters()
            if p.grad is not None and not bool(p.grad.isfinite().all())
        ]
        return (
            f"the gradient's norm is {result['grad_norm']} in iteration {self.iteration}, wanted a "
            f"finite number. Metrics that are not finite: {metrics or 'none'}. Parameters whose "
            f"gradient is not: {', '.join(broken[:5]) or 'none'}{', ...' if broken[5:] else ''}. "
            "The weights are unchanged. Lower training.learning_rate or look at the rewards and "
            "observations; training.nonfinite: skip leaves out such steps"
        )

    def _optimizer_state(
        self, folder: Path, record: Mapping[str, object], tensors: Mapping[str, Tensor]
    ) -> dict[str, object]:
        """Return saved tensors in the form of ``Optimizer.load_state_dict``, checked."""
        trained = self._trained()
        for what, found, wanted in (
            ("optimizer", record["optimizer"], self.config.optimizer),
            ("trained parameters", record["parameters"], [name for name, _ in trained]),
            ("optimizer.safetensors", sorted(tensors), record["tensors"]),
        ):
            if found != wanted:
                raise CheckpointError(
                    f"{folder}: {what}: found {found}, wanted {wanted}; resume with the options "
                    "that the checkpoint was written with"
                )
        place = {name: index for index, (name, _) in enumerate(trained)}
        state: dict[int, dict[str, Tensor]] = {}
        for path, tensor in tensors.items():
            kind, _, rest = path.partition("/")
            if kind == "state":
                name, _, key = rest.rpartition("/")
                state.setdefault(place[name], {})[key] = tensor
        return {"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]}
