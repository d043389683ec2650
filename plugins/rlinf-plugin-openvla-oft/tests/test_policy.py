"""Acting and scoring in one pass, with what a checkpoint may have: state, FiLM, the L1 head."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError
from rlinf_plugin_openvla_oft.config import OFTConfig
from rlinf_plugin_openvla_oft.facts import facts
from rlinf_plugin_openvla_oft.policy import OFTPolicy

from rlinf_core.api import (
    Capability,
    CapabilityError,
    Facts,
    Level,
    Mode,
    RequestError,
    WeightStream,
)

EVERYTHING = {"film": True, "proprio": True, "head": "l1", "stop_token": True}


def test_listing_and_facts_import_no_torch(tiny):
    code = (
        "import sys, rlinf_plugin_openvla_oft.plugin as p\n"
        "[s] = p.rlinf_models()\n"
        "from rlinf_plugin_openvla_oft.config import OFTConfig\n"
        "from rlinf_plugin_openvla_oft.facts import facts\n"
        f"config = OFTConfig(checkpoint={str(tiny)!r}, stop_token=False, trained_chunk=1)\n"
        "print(facts(config, {}).parameters, {'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) > 0
    assert done.stdout.split()[1] == "set()"


def test_every_option_has_help_and_the_layout_must_be_said():
    assert [n for n, f in OFTConfig.model_fields.items() if not f.description] == []
    with pytest.raises(ValidationError, match="stop_token"):
        OFTConfig(checkpoint="here")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"film": True},
        {"proprio": True, "stop_token": True, "value_head": False},
        {**EVERYTHING, "head": "tokens"},
    ],
)
def test_facts_are_those_of_the_module(options, make_policy, make_spaces, observe, draws):
    policy = make_policy(2, **options)
    said = facts(policy.config, {"simulator": Facts(spaces=make_spaces()), "chunk": 2})
    assert said.parameters == sum(p.numel() for p in policy.parameters())
    assert said.bytes == WeightStream.of(policy, 0).header.bytes
    act = policy.act(observe(2), draws(2), Mode.SAMPLE)
    kept = [act.logp, act.value, *(leaf for _, leaf in act.replay.leaves())]
    assert 2 * said.act_bytes == sum(t.numel() * t.element_size() for t in kept if t is not None)


def test_facts_of_the_l1_head_say_that_it_cannot_be_trained(make_policy, make_spaces):
    policy = make_policy(2, **EVERYTHING)
    said = facts(policy.config, {"simulator": Facts(spaces=make_spaces()), "chunk": 2})
    assert said.parameters == sum(p.numel() for p in policy.parameters())
    assert said.capabilities[Capability.LOGPROB] is Level.UNSUPPORTED


# --- refusals -------------------------------------------------------------------------------------


@pytest.fixture
def refused(tiny, make_spaces):
    """Return what facts and making the policy say; both refuse, in the same words."""

    def refused(spaces=None, chunk=2, **options):
        given = {"checkpoint": str(tiny), "stop_token": False, "trained_chunk": 2, **options}
        config, spaces = OFTConfig(**given), spaces or make_spaces()
        with pytest.raises(RequestError) as planned:
            facts(config, {"simulator": Facts(spaces=spaces), "chunk": chunk})
        with pytest.raises(RequestError) as made:
            OFTPolicy(config, spaces, chunk)
        assert str(planned.value) == str(made.value)
        return str(made.value)

    return refused


def test_case_m06_another_chunk_length_is_refused_with_both_numbers(refused):
    said = refused(chunk=5, trained_chunk=8)
    assert "chunks of 8 actions, and the run has chunks of 5" in said
    assert "set model.trained_chunk" in refused(trained_chunk=None)  # nobody says


def test_case_m01_statistics_of_another_robot_are_refused(refused, make_spaces):
    assert "['toy']" in refused(unnorm_key="libero_spatial")
    assert "wanted 7" in refused(spaces=make_spaces(action=7))
    assert "of 'proprio' have widths" in refused(spaces=make_spaces(state=8), proprio=True)
    assert "shows no state" in refused(spaces=make_spaces(state=0), proprio=True)


def test_the_l1_head_is_greedy_only(make_policy, observe, draws):
    policy = make_policy(2, **EVERYTHING)
    act = policy.act(observe(3), None, Mode.GREEDY)
    assert act.actions.shape == (3, 2, 3)
    assert act.logp is None
    with pytest.raises(CapabilityError, match="model.head=tokens"):
        policy.act(observe(3), draws(3), Mode.SAMPLE)
    with pytest.raises(CapabilityError, match="model.head=tokens"):
        policy.evaluate(policy.perceive(observe(3)))


# --- one distribution -----------------------------------------------------------------------------


@pytest.mark.parametrize("stop_token", [False, True])
def test_case_m07_the_first_ratio_is_one(stop_token, make_policy, observe, draws):
    policy = make_policy(2, stop_token=stop_token, temperature=1.6)
    act = policy.act(observe(6), draws(6), Mode.SAMPLE)
    scored = policy.evaluate(act.replay)
    assert torch.equal((scored.logp - act.logp).exp(), torch.ones_like(act.logp))
    for size in (1, 2, 4):
        parts = [policy.evaluate(piece).logp for piece in act.replay.split(size)]
        torch.testing.assert_close(torch.cat(parts), act.logp, atol=1e-5, rtol=0)


@pytest.mark.parametrize("stop_token", [False, True])
@pytest.mark.parametrize("film", [False, True])
def test_case_m04_short_and_long_prompts_together_are_as_each_alone(
    film, stop_token, make_policy, observe, draws
):
    options = {"stop_token": stop_token, "film": film, "proprio": True}
    policy, obs = make_policy(2, **options), observe(3)
    together = policy.act(obs, draws(3), Mode.SAMPLE)
    lengths = together.replay["mask"].sum(1).tolist()
    assert len(set(lengths)) == 3
    for row, length in enumerate(lengths):
        alone = make_policy(2, prompt_length=length, **options)  # without any padding
        act = alone.act(obs.rows(slice(row, row + 1)), draws(1, row), Mode.SAMPLE)
        assert torch.equal(act.replay["tokens"][0], together.replay["tokens"][row])
        torch.testing.assert_close(act.logp[0], together.logp[row], atol=1e-5, rtol=0)
        if not stop_token:  # with one, the critic's position moves with the padding, as in RLinf
            torch.testing.assert_close(act.value[0], together.value[row], atol=1e-5, rtol=0)


def test_case_m03_greedy_is_the_likeliest_bin_whatever_the_temperature(make_policy, observe):
    acts = [make_policy(2, temperature=t).act(observe(4), None, Mode.GREEDY) for t in (0.1, 50)]
    assert torch.equal(acts[0].actions, acts[1].actions)
    policy = make_policy(2)
    logits, _ = policy.score(acts[0].replay)
    likeliest = logits[..., policy.bins.first : policy.bins.end].argmax(-1) + policy.bins.first
    assert torch.equal(likeliest, acts[0].replay["tokens"].flatten(1))


def test_the_layouts_differ_and_state_and_instruction_matter(make_policy, observe):
    obs = observe(2)
    base = {"proprio": True, "film": True}
    logits = {}
    for name, changed in (
        ("base", obs),
        ("state", obs.with_entries(state=obs["state"] + 0.5)),
        ("task", obs.with_entries(task=["open drawer"] * 2)),
    ):
        policy = make_policy(2, **base)
        logits[name] = policy.score(policy.perceive(changed))[0]
    other = make_policy(2, **base, stop_token=True)
    logits["layout"] = other.score(other.perceive(obs))[0]
    for name in ("state", "task", "layout"):
        assert not torch.allclose(logits["base"][0], logits[name][0], atol=1e-4), name


def test_several_cameras_stand_one_behind_the_other(make_policy, observe):
    policy = make_policy(2, cameras=("wrist", "front"))
    obs = observe(2, cameras=("front", "wrist"))
    seen = policy.perceive(obs)
    assert seen["images"].shape == (2, 2, 28, 28, 3)
    one = make_policy(2, cameras=("wrist",)).perceive(obs)
    assert torch.equal(seen["images"][:, 0], one["images"][:, 0])
    assert policy.look(seen).shape[1] == 2 * 4
    other = make_policy(2, cameras=("front", "wrist"))
    assert not torch.allclose(policy.score(seen)[0], other.score(other.perceive(obs))[0])


def test_parts_for_adapters_and_shards_exist(make_policy):
    policy = make_policy(2, **EVERYTHING)
    modules = dict(policy.named_modules())
    assert all(isinstance(modules[name], torch.nn.Linear) for name in policy.lora_targets())
    assert set(policy.shards()) <= set(modules)
    film = "vision_backbone.vision_backbone.featurizer.blocks.0"
    assert film in policy.shards()
    assert f"{film}.block.attn.qkv" in policy.lora_targets()
