"""What training with a configured ``torch`` keeps on the device, counted without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf_core.api import Facts, Unknown
from rlinf_plugin_torch.config import TorchConfig


def facts(config: TorchConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return the bytes of gradients and of the optimizer's state, which are in fp32.

    Each of several processes keeps a whole copy of them.

    Args:
        config: of the backend.
        upstream: facts of the sections before this one; ``model`` gives the parameters.
    """
    model = upstream.get("model")
    trained = getattr(model, "trainable", None)
    if trained is None:
        trained = getattr(model, "parameters", Unknown("there is no model"))
    if isinstance(trained, Unknown):
        reason = f"the number of trained parameters is not known: {trained.reason}"
        memory: dict[str, int | Unknown] = dict.fromkeys(
            ("gradients", "optimizer"), Unknown(reason)
        )
    else:
        memory = {"gradients": 4 * trained, "optimizer": 4 * trained * _copies(config)}
    return Facts(parameters=0, bytes=0, memory=memory, spread="whole")


def _copies(config: TorchConfig) -> int:
    """Return how many numbers the optimizer keeps of each parameter."""
    if config.optimizer == "sgd":
        return 1 if config.momentum else 0
    return 2  # Adam's two moments
