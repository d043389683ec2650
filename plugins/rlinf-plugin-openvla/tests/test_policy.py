"""Acting and scoring: one distribution in both, whatever the batch, the padding or the chunk."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from rlinf_plugin_openvla.config import OpenVLAConfig
from rlinf_plugin_openvla.facts import facts
from rlinf_plugin_openvla.llama import make_llama
from rlinf_plugin_openvla.policy import OpenVLAPolicy

from rlinf_core.api import (
    Batch,
    CapabilityError,
    CheckpointError,
    Facts,
    Mode,
    RequestError,
    RLInputError,
    WeightStream,
)

# --- the declaration ------------------------------------------------------------------------------


def test_listing_and_facts_import_no_torch(tiny):
    code = (
        "import sys, rlinf_plugin_openvla.plugin as p\n"
        "[s] = p.rlinf_models()\n"
        "from rlinf_plugin_openvla.config import OpenVLAConfig\n"
        "from rlinf_plugin_openvla.facts import facts\n"
        f"config = OpenVLAConfig(checkpoint={str(tiny)!r}, prompt_suffix_ids=(5,))\n"
        "print(facts(config, {}).parameters, {'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) > 0
    assert done.stdout.split()[1] == "set()"


def test_every_option_has_help():
    assert [n for n, f in OpenVLAConfig.model_fields.items() if not f.description] == []


@pytest.mark.parametrize("options", [{}, {"value_head": False, "logprob_level": "chunk"}])
def test_facts_are_those_of_the_module(options, make_policy, make_spaces, observe, draws):
    policy = make_policy(2, **options)
    said = facts(policy.config, {"simulator": Facts(spaces=make_spaces()), "chunk": 2})
    assert said.parameters == sum(p.numel() for p in policy.parameters())
    assert said.bytes == WeightStream.of(policy, 0).header.bytes
    act = policy.act(observe(2), draws(2), Mode.SAMPLE)
    kept = [act.logp, act.value, *(leaf for _, leaf in act.replay.leaves())]
    size = sum(t.numel() * t.element_size() for t in kept if t is not None)
    assert 2 * said.act_bytes == size


# --- refusals -------------------------------------------------------------------------------------


@pytest.fixture
def refused(tiny, make_spaces):
    """Return what facts and making the policy say; both refuse, in the same words."""

    def refused(spaces=None, chunk=1, **options):
        given = {"checkpoint": str(tiny), "dtype": "float32", "prompt_suffix_ids": (5,), **options}
        config, spaces = OpenVLAConfig(**given), spaces or make_spaces()
        with pytest.raises(RequestError) as planned:
            facts(config, {"simulator": Facts(spaces=spaces), "chunk": chunk})
        with pytest.raises(RequestError) as made:
            OpenVLAPolicy(config, spaces, chunk)
        assert str(planned.value) == str(made.value)
        return str(made.value)

    return refused


def test_case_m06_another_chunk_length_is_refused_with_both_numbers(refused, make_policy):
    said = refused(chunk=5, trained_chunk=8)
    assert "chunks of 8 actions" in said
    assert "chunks of 5" in said
    assert "collect.chunk=8" in said
    assert "chunks of 1 actions" in refused(chunk=2)  # what OpenVLA was trained for
    make_policy(3)  # as trained_chunk says


def test_case_m01_statistics_that_do_not_fit_are_refused(refused, make_spaces):
    assert "['toy']" in refused(unnorm_key="bridge_orig")
    wide = refused(spaces=make_spaces(action=7))
    assert "wanted 7" in wide
    assert "['toy']" in wide


def test_cameras_that_are_not_there_are_refused(refused, make_spaces):
    both = make_spaces(cameras=("front", "wrist"))
    assert "shows images of ['front', 'wrist']" in refused(spaces=both)
    assert "Did you mean 'wrist'?" in refused(spaces=both, cameras=("wirst",))


def test_a_folder_that_is_no_checkpoint_is_refused(refused, tmp_path):
    assert "cannot read" in refused(checkpoint=str(tmp_path))


def test_a_prompt_that_is_too_long_is_refused(make_policy, observe):
    with pytest.raises(RLInputError, match=r"'put the blue bowl.* 22 tokens.* at least 22"):
        make_policy(prompt_length=20).act(observe(3), None, Mode.GREEDY)


def test_sampling_without_draws_is_refused(make_policy, observe):
    with pytest.raises(RLInputError, match="without draws"):
        make_policy().act(observe(1), None, Mode.SAMPLE)


def test_actions_that_are_no_vector_are_refused(make_policy, make_spaces, tiny):
    spaces = make_spaces()
    spaces.action._shape = (2, 3)
    with pytest.raises(CapabilityError, match=r"shape \(2, 3\)"):
        OpenVLAPolicy(OpenVLAConfig(checkpoint=str(tiny)), spaces, 1)


# --- one distribution -----------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 3])
def test_case_m07_log_probs_in_training_are_those_of_acting(chunk, make_policy, observe, draws):
    rescored, decoded = (make_policy(chunk, rescore=flag) for flag in (True, False))
    acts = [p.act(observe(6), draws(6), Mode.SAMPLE) for p in (rescored, decoded)]
    assert torch.equal(acts[0].replay["tokens"], acts[1].replay["tokens"])
    scored = rescored.evaluate(acts[0].replay)
    assert torch.equal((scored.logp - acts[0].logp).exp(), torch.ones_like(scored.logp))
    torch.testing.assert_close(scored.logp, acts[1].logp, atol=1e-5, rtol=0)
    torch.testing.assert_close(scored.value, acts[1].value, atol=1e-5, rtol=0)


def test_case_m04_short_and_long_prompts_together_are_as_each_alone(make_policy, observe, draws):
    policy, obs = make_policy(2), observe(3)
    together = policy.act(obs, draws(3), Mode.SAMPLE)
    lengths = together.replay["mask"].sum(1).tolist()
    assert len(set(lengths)) == 3
    for row, length in enumerate(lengths):
        alone = make_policy(2, prompt_length=length)  # without any padding
        act = alone.act(obs.rows(slice(row, row + 1)), draws(1, row), Mode.SAMPLE)
        assert bool(act.replay["mask"].all())
        assert torch.equal(act.replay["tokens"][0], together.replay["tokens"][row])
        torch.testing.assert_close(act.logp[0], together.logp[row], atol=1e-5, rtol=0)
        torch.testing.assert_close(act.value[0], together.value[row], atol=1e-5, rtol=0)


def test_case_m03_greedy_is_the_likeliest_bin_whatever_the_temperature(make_policy, observe):
    acts = [make_policy(2, temperature=t).act(observe(4), None, Mode.GREEDY) for t in (0.1, 1, 50)]
    assert all(torch.equal(act.actions, acts[0].actions) for act in acts)
    policy = make_policy(2)
    logits, _ = policy.score(acts[0].replay)
    first, end = policy.bins.first, policy.bins.end
    assert torch.equal(
        logits[..., first:end].argmax(-1) + first, acts[0].replay["tokens"].flatten(1)
    )
    assert end == 384 - 64


def test_levels_are_sums_of_one_another(make_policy, observe, draws):
    token, action, chunk = (
        make_policy(2, logprob_level=level).act(observe(3), draws(3), Mode.SAMPLE).logp
        for level in ("token", "action", "chunk")
    )
    torch.testing.assert_close(token.sum(-1), action)
    torch.testing.assert_close(action.sum(-1), chunk)


def test_entropy_is_that_of_the_bins(make_policy, observe, draws):
    policy = make_policy()
    replay = policy.act(observe(2), draws(2), Mode.SAMPLE).replay
    probabilities = policy.score(replay)[0][..., policy.bins.first : policy.bins.end].softmax(-1)
    entropy = -(probabilities * probabilities.log()).sum(-1)
    torch.testing.assert_close(policy.evaluate(replay).entropy.flatten(1), entropy)


def test_value_mode_gives_the_value_of_acting(make_policy, observe, draws):
    policy, obs = make_policy(2), observe(4)
    asked = policy.act(obs, None, Mode.VALUE)
    assert (asked.actions, asked.logp, asked.replay) == (None, None, None)
    acted = policy.act(obs, draws(4), Mode.SAMPLE)
    torch.testing.assert_close(asked.value, acted.value, atol=1e-5, rtol=0)
    assert make_policy(value_head=False).act(obs, None, Mode.VALUE).value is None


def test_case_m02_the_gripper_goes_there_and_back_once(make_policy):
    tokens = [[319, 319, 319], [319, 319, 64]]  # the last dimension is shut, then open
    given = torch.tensor(tokens).flatten(1)
    ways = {"as-is": [-0.996, 0.996], "libero": [1.0, -1.0], "widowx": [-1.0, 1.0]}
    for name, wanted in ways.items():
        actions = make_policy(gripper=name).actions(given)[:, 0]
        assert actions[:, 2].tolist() == pytest.approx(wanted, abs=1e-3)
        assert torch.equal(actions[0, :2], actions[1, :2])
        said = facts(make_policy(gripper=name).config, {}).conventions
        assert ("gripper" in said) == (name != "as-is")


def test_case_m02_an_image_is_turned_nowhere_and_its_channels_stay(make_policy):
    image = torch.zeros(1, 20, 24, 3, dtype=torch.uint8)
    image[0, :5, :5, 0] = 255  # red, above on the left
    policy = make_policy()
    seen = policy.perceive(Batch({"images": {"front": image}, "task": ["open drawer"]}))
    pixels = policy.views.pixels(seen["images"])[0]  # [6, 28, 28]
    assert (pixels[3:] > 0).nonzero()[:, 0].unique().tolist() == [0]
    assert bool((pixels[3, :5, :5] > 0.9).all())
    assert float(pixels[3, 10:].max()) == -1.0
    assert float(pixels[3, :, 10:].max()) == -1.0


def test_several_cameras_are_read_in_the_order_given(tiny, make_spaces, observe):
    def act(cameras):
        config = OpenVLAConfig(
            checkpoint=str(tiny), dtype="float32", prompt_suffix_ids=(5,), cameras=cameras
        )
        torch.manual_seed(0)
        policy = OpenVLAPolicy(config, make_spaces(cameras=("front", "wrist")), 1).eval()
        act = policy.act(observe(2, cameras=("front", "wrist")), None, Mode.GREEDY)
        return policy.score(act.replay)[0]

    one, other, again = act(("front", "wrist")), act(("wrist", "front")), act(("front", "wrist"))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)


# --- training and large models --------------------------------------------------------------------


def test_gradients_with_activations_computed_again_are_the_same(make_policy, observe, draws):
    replay = make_policy(2).act(observe(3), draws(3), Mode.SAMPLE).replay
    gradients = []
    for flag in (False, True):
        policy = make_policy(2, gradient_checkpointing=flag).train()
        layer, calls = policy.language_model.model.layers[1], []
        layer.register_forward_pre_hook(lambda *_, seen=calls: seen.append(1))
        policy.evaluate(replay).logp.sum().backward()
        gradients.append(policy.language_model.model.layers[0].self_attn.q_proj.weight.grad)
        assert len(calls) == 1 + flag
    torch.testing.assert_close(*gradients)
    assert float(gradients[0].abs().max()) > 0


def test_parts_for_adapters_and_shards_exist(make_policy):
    policy = make_policy()
    modules = dict(policy.named_modules())
    targets = policy.lora_targets()
    assert all(isinstance(modules[name], torch.nn.Linear) for name in targets)
    assert "language_model.model.layers.1.self_attn.q_proj" in targets
    assert "vision_backbone.fused_featurizer.blocks.0.attn.qkv" in targets
    assert not [name for name in targets if "lm_head" in name or "value_head" in name]
    assert policy.shards() == (
        *(
            f"vision_backbone.{t}.blocks.{i}"
            for t in ("featurizer", "fused_featurizer")
            for i in (0, 1)
        ),
        *(f"language_model.model.layers.{i}" for i in (0, 1)),
    )
    assert set(policy.shards()) <= set(modules)


def test_a_shards_own_forward_is_called_so_that_a_backend_can_gather_it(make_policy, observe):
    policy, called = make_policy(), set()
    for name in policy.shards():
        policy.get_submodule(name).register_forward_pre_hook(lambda *_, n=name: called.add(n))
    policy.act(observe(1), None, Mode.GREEDY)
    never_read = {f"vision_backbone.{t}.blocks.1" for t in ("featurizer", "fused_featurizer")}
    assert called == set(policy.shards()) - never_read


def test_the_base_of_rotary_positions_is_that_of_the_checkpoint():
    small = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 8}
    rotary = make_llama({**small, "intermediate_size": 8, "rope_theta": 50_000.0}).model.rotary_emb
    wanted = 1 / 50_000.0 ** (torch.arange(0, 8, 2) / 8)
    torch.testing.assert_close(rotary.inv_freq, wanted)


def test_bfloat16_acts_and_learns(make_policy, observe, draws):
    policy = make_policy(2, dtype="bfloat16").train()
    assert {p.dtype for p in policy.parameters()} == {torch.bfloat16}
    act = policy.act(observe(2), draws(2), Mode.SAMPLE)
    assert {act.actions.dtype, act.logp.dtype, act.value.dtype} == {torch.float32}
    scored = policy.evaluate(act.replay)
    assert torch.equal(scored.logp, act.logp)
    scored.logp.sum().backward()


def test_config_json_of_another_network_is_refused(tiny, tmp_path):
    config = json.loads((tiny / "config.json").read_text())
    for change, says in (
        ({"use_fused_vision_backbone": False}, "'use_fused_vision_backbone': False"),
        ({"image_resize_strategy": "letterbox"}, "letterbox"),
        ({"timm_model_ids": ["vit_tiny", config["timm_model_ids"][1]]}, "'vit_tiny'"),
        ({"image_sizes": [224, 384]}, r"image sizes \[224, 384\]"),
        ({"tower_sizes": [{"widht": 8}, {}]}, "'widht'.*wanted some of .*'width'"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(CheckpointError, match=says):
            facts(OpenVLAConfig(checkpoint=str(tmp_path)), {})
