"""Sizes without torch are those of the modules; listing and facts import no torch."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config
from rlinf_plugin_pi0.facts import facts
from rlinf_plugin_pi0.model import PiModel
from rlinf_plugin_pi0.policy import Pi0Policy, Pi05Policy
from rlinf_plugin_pi0.shapes import head_shapes, model_shapes

from rlinf_core.api import Capability, Draws, Facts, Level, Mode, Unknown

KINDS = {"pi0": (Pi0Config, Pi0Policy), "pi05": (Pi05Config, Pi05Policy)}


def shapes_of(module):
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize(
    ("config", "tensors", "billions"), [(Pi0Config(), 776, 3.238), (Pi05Config(), 811, 3.353)]
)
def test_published_sizes_are_those_of_the_modules(config, tensors, billions):
    shapes = model_shapes(config)
    assert len(shapes) == tensors
    assert round(sum(map(math.prod, shapes.values())) / 1e9, 3) == billions
    with torch.device("meta"):
        model = PiModel(config, isinstance(config, Pi05Config))
    assert shapes_of(model) == dict(shapes)


OPTIONS = [
    {},
    {"train_vlm": True, "value": "none"},
    {"sampler": "flow_noise", "joint_logprob": True, "value": "expert"},
    {"precision": "bfloat16", "value": "vlm", "cameras": ("", "wrist")},
]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
def test_facts_are_those_of_the_policy(name, options, tiny, spaces, observe):
    kind, make = KINDS[name]
    config = kind(**{**tiny, "max_tokens": 100, **options})
    policy = make(config, spaces(), 2)
    found = facts(config, {"simulator": Facts(spaces=spaces()), "chunk": 2})
    assert shapes_of(policy) == {**model_shapes(config), **head_shapes(config)}
    parameters = list(policy.parameters())
    assert found.parameters == sum(p.numel() for p in parameters)
    assert found.trainable == sum(p.numel() for p in parameters if p.requires_grad)
    assert found.bytes == sum(t.numel() * t.element_size() for t in policy.state_dict().values())
    act = policy.act(observe(3), Draws(0, range(3), [0] * 3), Mode.SAMPLE)
    kept = [act.logp, act.value, *(leaf for _, leaf in act.replay.leaves())]
    assert found.act_bytes == sum(t[0].numel() * t.element_size() for t in kept if t is not None)


def test_without_a_simulator_what_depends_on_it_is_unknown(tiny):
    found = facts(Pi0Config(**tiny), {})
    assert isinstance(found.act_bytes, Unknown)
    assert isinstance(found.parameters, int)


def test_what_cannot_be_trained_is_told(tiny):
    found = facts(Pi0Config(**{**tiny, "sampler": "ode", "value": "none"}), {})
    assert found.capabilities[Capability.LOGPROB] is Level.UNSUPPORTED
    assert found.capabilities[Capability.VALUE] is Level.UNSUPPORTED


def test_listing_and_facts_import_no_torch():
    code = (
        "import sys, rlinf_plugin_pi0.plugin as p; "
        "assert [s.name for s in p.rlinf_models()] == ['pi0', 'pi05']; "
        "from rlinf_plugin_pi0 import config, facts, prompt; "
        "assert facts.facts(config.Pi0Config(), {}).parameters > 3e9; "
        "prompt.load_tokenizer('bytes'); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_part_of_the_experts_sizes_leaves_the_others_as_published():
    expert = Pi0Config(vlm={"depth": 2}, expert={"depth": 2}).expert
    assert (expert.width, expert.mlp, expert.depth) == (1024, 4096, 2)


@pytest.mark.parametrize("kind", [Pi0Config, Pi05Config])
def test_every_option_has_help(kind):
    assert [n for n, f in kind.model_fields.items() if not f.description] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vision": {"image_size": 30}}, "image_size=30 is not a multiple of 14"),
        ({"vlm": {"heads": 3, "kv_heads": 2}}, "heads=3 is not a multiple of kv_heads=2"),
        ({"expert": {"width": 8, "depth": 3}}, "expert.depth=3, wanted vlm.depth=18"),
        ({"sampler": "flow_cps"}, "set ignore_last or joint_logprob"),
        ({"noise_range": (0.2, 0.1)}, "wanted 0 < least <= largest"),
        ({"checkpoint": "x"}, "a checkpoint without statistics"),
        ({"checkpoint": "x", "statistics": "y"}, "tokenizer=bytes"),
        ({"unnorm_key": "x"}, "unnorm_key without statistics"),
        ({"vocabulary": 100}, "needs 259 tokens"),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Pi0Config(**options)
