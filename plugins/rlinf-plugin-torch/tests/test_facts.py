"""What the facts say is kept on the device is what a backend keeps after an update."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from rlinf_plugin_torch.config import TorchConfig
from rlinf_plugin_torch.facts import facts

from rlinf_core.api import Facts, Unknown


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"optimizer": "adamw"},
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "momentum": 0.9},
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_and_optimizer_are_counted(options, ranks, build, rows, squared_error):
    """Of each of several ranks, too: the facts say that it keeps the whole."""
    backend = build(**options)
    if ranks > 1:
        backend.join(0, ranks, lambda tensor: tensor * ranks)  # the others have the same
    backend.update([rows], squared_error)
    trained = [p for p in backend.policy.parameters() if p.requires_grad]
    count = sum(p.numel() for p in backend.policy.parameters())
    model = Facts(parameters=count, trainable=sum(p.numel() for p in trained))
    found = facts(TorchConfig(**options), {"model": model})
    said = found.memory
    assert found.spread == "whole"
    gradients = [p.grad for p in trained]
    state = [
        value
        for entry in backend.optimizer.state.values()
        for value in entry.values()
        if isinstance(value, torch.Tensor) and value.ndim  # not Adam's count of steps
    ]
    assert said["gradients"] == sum(g.numel() * g.element_size() for g in gradients)
    assert said["optimizer"] == sum(v.numel() * v.element_size() for v in state)
    assert facts(TorchConfig(**options), {"model": Facts(parameters=count)}).memory[
        "gradients"
    ] == (4 * count)


def test_what_is_not_known_of_the_model_is_not_known_of_its_training():
    unknown = Facts(parameters=Unknown("needs a licence"))
    for part in facts(TorchConfig(), {"model": unknown}).memory.values():
        assert isinstance(part, Unknown)
        assert "needs a licence" in part.reason
    assert isinstance(facts(TorchConfig(), {}).memory["optimizer"], Unknown)


def test_facts_need_no_torch():
    code = "import sys, rlinf_plugin_torch.facts; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
