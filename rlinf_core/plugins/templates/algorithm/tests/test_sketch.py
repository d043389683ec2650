"""Numbers worked out by hand."""

import pytest
import torch
from rlinf_plugin_sketch.algorithm import SketchAlgorithm
from rlinf_plugin_sketch.config import SketchConfig

from rlinf_core.api import Batch, Counts, Eval


def rollout(terminated=False, truncated=False):
    """Return two steps of two environments; the first one's episode ends at the first step."""
    flags = torch.zeros(2, 2, 1, dtype=torch.bool)
    ends = {"terminated": flags.clone(), "truncated": flags.clone()}
    ends["terminated"][0, 0], ends["truncated"][0, 0] = terminated, truncated
    return Batch(
        {
            "valid": torch.ones(2, 2, 1, dtype=torch.bool),
            "reward": torch.tensor([[[1.0], [0.0]], [[2.0], [4.0]]]),
            "value": torch.zeros(2, 2),
            "next_value": torch.full((2, 2), 10.0),
            **ends,
        }
    )


def minibatch():
    return Batch(
        {
            "valid": torch.tensor([[True], [True], [False]]),
            "mask": torch.tensor([True, True, False]),
            "advantage": torch.tensor([1.0, -2.0, 100.0]),
            "value": torch.zeros(3),
            "return": torch.tensor([1.0, 3.0, 100.0]),
        }
    )


def loss_of(logp, value, value_coefficient=0.5):
    counts = Counts(steps=torch.tensor(2.0), rows=torch.tensor(2.0), groups=torch.tensor(1.0))
    evaluation = Eval(logp, None, value)
    algorithm = SketchAlgorithm(SketchConfig(value_coefficient=value_coefficient))
    return algorithm.loss(minibatch(), evaluation, counts)


@pytest.mark.parametrize(
    ("ends", "expected"), [({"terminated": True}, 1.0), ({"truncated": True}, 1.0 + 0.5 * 10.0)]
)
def test_only_a_truncated_episode_is_worth_something_after_its_end(ends, expected):
    algorithm = SketchAlgorithm(SketchConfig(gamma=0.5, gae_lambda=1.0))
    returns = algorithm.advantages(rollout(**ends), lambda total: total)["return"]
    assert returns[0, 0] == expected


def test_the_loss_is_that_of_the_valid_rows():
    logp = torch.tensor([-1.0, -2.0, -5.0]).reshape(3, 1, 1).requires_grad_()
    value = torch.tensor([0.0, 1.0, 0.0])
    loss, metrics = loss_of(logp, value)
    # -(1 * -1 + -2 * -2) / 2 + 0.5 * 0.5 * ((0 - 1)^2 + (1 - 3)^2) / 2
    assert loss.item() == pytest.approx(-1.5 + 0.625)
    total, count = metrics["policy_loss"]
    assert (total.item(), count.item()) == (-3.0, 2)
    loss.backward()
    assert logp.grad.flatten().tolist() == [-0.5, 1.0, 0.0]


def test_the_value_loss_has_its_weight():
    logp, value = torch.zeros(3, 1, 1), torch.zeros(3)
    assert loss_of(logp, value, value_coefficient=0.0)[0].item() == 0.0
    assert loss_of(logp, value, value_coefficient=2.0)[0].item() == pytest.approx(5.0)
