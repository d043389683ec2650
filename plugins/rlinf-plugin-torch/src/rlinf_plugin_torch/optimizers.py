"""Optimizers by name, and which parameter is trained with which options.

Another optimizer is one more entry in ``OPTIMIZERS`` and one more name in ``config.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rlinf_core.api import ConfigError
from rlinf_plugin_torch.config import ParameterGroup, TorchConfig


def _adam(groups: list[dict[str, Any]], config: TorchConfig) -> torch.optim.Optimizer:
    # fused: one kernel for all parameters. On one CPU thread and small networks it takes a third
    # of the time of foreach or of the plain loop.
    return torch.optim.Adam(groups, betas=config.betas, eps=config.eps, fused=True)


def _adamw(groups: list[dict[str, Any]], config: TorchConfig) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=True)


def _sgd(groups: list[dict[str, Any]], config: TorchConfig) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, momentum=config.momentum, fused=True)


OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], TorchConfig], torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
}


def make_optimizer(policy: nn.Module, config: TorchConfig) -> torch.optim.Optimizer:
    """Return an optimizer of every trainable parameter, each in exactly one group.

    Each group also holds ``names`` (of its parameters, in order) and ``base`` (its learning rate
    before the schedule).

    Raises:
        ConfigError: a group matches no parameter, a parameter matches two groups, or there is
            nothing to train.
    """
    trainable = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    owner: dict[str, ParameterGroup] = {}
    findings = [] if trainable else ["the model has no trainable parameter; unfreeze some"]
    for group in config.groups:
        matched = [name for name in trainable if re.search(group.match, name)]
        if not matched:
            findings.append(
                f"training.groups: {group.match!r} matches no trainable parameter; there are "
                f"{list(trainable)}"
            )
        for name in matched:
            if name in owner:
                findings.append(
                    f"training.groups: parameter {name!r} is matched by {owner[name].match!r} and "
                    f"by {group.match!r}; wanted at most one group, so narrow one of them"
                )
            owner[name] = group
    if findings:
        raise ConfigError(findings)

    common = ParameterGroup(match="")
    groups = []
    for group in (common, *config.groups):
        names = [name for name in trainable if owner.get(name, common) is group]
        if not names:
            continue
        rate = group.learning_rate
        rate = config.learning_rate * group.learning_rate_scale if rate is None else rate
        decay = config.weight_decay if group.weight_decay is None else group.weight_decay
        groups.append(
            {
                "params": [trainable[name] for name in names],
                "names": names,
                "base": rate,
                "lr": rate,
                "weight_decay": decay,
            }
        )
    return OPTIMIZERS[config.optimizer](groups, config)
