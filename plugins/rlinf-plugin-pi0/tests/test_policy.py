"""Acting and scoring: equal numbers, the prefix once, gradients where they belong."""

from __future__ import annotations

import pytest
import torch
from rlinf_plugin_pi0 import flow
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config
from rlinf_plugin_pi0.policy import Pi0Policy, Pi05Policy

from rlinf_core.api import Batch, Draws, LogprobLevel, Mode, RLInputError, rl
from rlinf_core.builtin.config import DirectConfig
from rlinf_core.builtin.direct import DirectEngine

KINDS = {"pi0": (Pi0Config, Pi0Policy), "pi05": (Pi05Config, Pi05Policy)}
NOISY = [
    {"sampler": sampler, "joint_logprob": joint, "ignore_last": sampler == "flow_cps" and not joint}
    for sampler in ("flow_sde", "flow_cps", "flow_noise")
    for joint in (False, True)
]


@pytest.fixture
def make(tiny, spaces):
    def make(name="pi0", seed=0, chunk=2, bounds=99.0, **options):
        kind, policy = KINDS[name]
        torch.manual_seed(seed)
        config = kind(**{**tiny, "max_tokens": 100, **options})
        return policy(config, spaces(low=-bounds, high=bounds), chunk).eval()

    return make


def draws(rows, first=0, step=4):
    return Draws(0, range(first, first + rows), [step] * rows)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("options", NOISY)
def test_case_m07_evaluate_gives_the_numbers_of_act(name, options, make, observe):
    policy = make(name, **options)
    act = policy.act(observe(6), draws(6), Mode.SAMPLE)
    scored = policy.evaluate(act.replay)
    assert torch.equal(scored.logp, act.logp)  # so the ratio is exactly 1
    assert act.logp.shape == scored.entropy.shape == (6, 2, 3)
    assert policy.logprob_level is LogprobLevel.TOKEN
    for size in (1, 4):
        for part, logp in zip(act.replay.split(size), act.logp.split(size), strict=True):
            torch.testing.assert_close(policy.evaluate(part).logp, logp, rtol=0, atol=1e-5)
    if options["joint_logprob"] or policy.config.value == "vlm":
        assert torch.equal(scored.value, act.value)


def test_case_m04_long_and_short_prompts_do_not_depend_on_each_other(make, observe):
    policy = make("pi05", value="expert")
    obs = observe(4).with_entries(task=["a", "push the cube " * 4, "b" * 40, "open it"])
    together = policy.act(obs, draws(4), Mode.SAMPLE)
    for row in range(4):
        alone = policy.act(obs.rows([row]), draws(1, first=row), Mode.SAMPLE)
        for name in ("actions", "logp", "value"):
            one, whole = getattr(alone, name), getattr(together, name)[row : row + 1]
            torch.testing.assert_close(one, whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("joint", [False, True])
def test_the_chain_is_made_of_the_rows_own_draws(joint, make, observe):
    policy, obs = make(joint_logprob=joint), observe(5)
    replay = policy.act(obs, draws(5), Mode.SAMPLE).replay
    numbers = draws(5)
    shape = (policy.config.horizon, policy.config.action_dim)
    chains, noisy = replay["chains"], replay["denoise_inds"]
    assert torch.equal(chains[:, 0], numbers.normal(*shape))
    if joint:
        assert noisy.tolist() == [[0, 1, 2, 3]] * 5
        noise = numbers.normal(4, *shape)
    else:
        assert torch.equal(noisy[:, 0], numbers.integers(4))
        noise = numbers.normal(1, *shape).expand(-1, 4, -1, -1)
    prefix = policy.see(replay)
    for k in range(4):
        step = torch.full((5,), k)
        out, v = policy._velocity(prefix, replay, chains[:, k], step)
        given = out, chains[:, k], v, step, replay["noise_level"]
        drawn = (noisy == k).any(1)[:, None, None]
        mean, std = policy._gaussian("flow_sde", *given)
        without, _ = policy._gaussian("ode", *given)
        wanted = torch.where(drawn, mean + std * noise[:, k], without)
        torch.testing.assert_close(chains[:, k + 1], wanted, rtol=0, atol=1e-6)


def test_every_step_is_drawn_about_equally_and_the_last_can_be_left_out(make, observe):
    for ignore_last in (False, True):
        policy = make(ignore_last=ignore_last)
        noisy, _, _ = policy._draw(4000, draws(4000), torch.device("cpu"))
        counts = torch.bincount(noisy[:, 0], minlength=4)
        steps = 4 - ignore_last
        assert counts[steps:].sum() == 0
        assert (counts[:steps] - 4000 / steps).abs().max() < 150


@pytest.mark.parametrize("value", ["expert", "vlm", "none"])
def test_the_prefix_is_computed_once_whatever_the_number_of_steps(value, make, observe):
    policy = make(value=value, joint_logprob=True, denoise_steps=7)
    calls = {"language_model": 0, "vision_model": 0, "expert": 0}

    def count(name):
        def hook(*_):
            calls[name] += 1

        return hook

    policy.vlm["language_model"].register_forward_hook(count("language_model"))
    policy.vlm["vision_tower"]["vision_model"].register_forward_hook(count("vision_model"))
    policy.expert.register_forward_hook(count("expert"))
    act = policy.act(observe(2), draws(2), Mode.SAMPLE)
    assert calls == {"language_model": 1, "vision_model": 1, "expert": 7}
    policy.evaluate(act.replay)
    assert calls == {"language_model": 2, "vision_model": 2, "expert": 14}


def test_denoising_leaves_the_prefix_as_it_was(make, observe):
    policy = make()
    inputs = policy.interface.read(observe(2))
    prefix = policy.see(inputs)
    before = [(k.clone(), v.clone()) for k, v in prefix.cache]
    x = torch.zeros(2, 4, 8)
    first = policy.denoise(prefix, inputs["state"], x, torch.ones(2))
    again = policy.denoise(prefix, inputs["state"], x, torch.ones(2))
    assert torch.equal(first, again)
    for (k, v), (own_k, own_v) in zip(before, prefix.cache, strict=True):
        assert torch.equal(k, own_k)
        assert torch.equal(v, own_v)


@pytest.mark.parametrize("name", KINDS)
def test_a_camera_that_is_not_there_need_not_be_computed(name, make, observe):
    policy = make(name, value="expert")
    assert policy.interface.cameras == ("base", "wrist")
    act = policy.act(observe(3), draws(3), Mode.SAMPLE)
    policy.interface.cameras = ("base", "wrist", "")
    padded = policy.act(observe(3), draws(3), Mode.SAMPLE)
    torch.testing.assert_close(padded.actions, act.actions, rtol=0, atol=1e-5)
    torch.testing.assert_close(padded.value, act.value, rtol=0, atol=1e-5)
    assert make(name, value="vlm").interface.cameras == ("base", "wrist", "")
    assert make(name, value="vlm", value_token="first").interface.cameras == ("base", "wrist")


# --- gradients ------------------------------------------------------------------------------------


def moved(policy, replay, of):
    policy.zero_grad(set_to_none=True)
    getattr(policy.evaluate(replay), of).sum().backward()
    return {n for n, p in policy.named_parameters() if p.grad is not None and p.grad.any()}


@pytest.mark.parametrize("name", KINDS)
def test_without_train_vlm_the_expert_and_the_heads_are_trained(name, make, observe):
    policy = make(name, sampler="flow_noise", value="expert")
    replay = policy.act(observe(3), draws(3), Mode.SAMPLE).replay
    names = {n for n, p in policy.named_parameters() if p.requires_grad}
    assert not any(".paligemma." in n for n in names)
    reached = moved(policy, replay, "logp") | moved(policy, replay, "value")
    assert {n for n in names if not n.startswith("value_head")} <= reached | {"value_head"}
    assert any(n.startswith("value_head") for n in reached)


def test_with_train_vlm_gradients_reach_the_pixels_layer(make, observe):
    policy = make(train_vlm=True)
    replay = policy.act(observe(3), draws(3), Mode.SAMPLE).replay
    reached = moved(policy, replay, "logp")
    assert any("patch_embedding" in n for n in reached)
    assert any("embed_tokens" in n for n in reached)


def test_what_is_unfrozen_in_the_vlm_is_trained_as_adapters_are(make, observe):
    policy = make()
    weight = policy.vlm["language_model"].layers[0].self_attn.q_proj.weight.requires_grad_()
    replay = policy.act(observe(3), draws(3), Mode.SAMPLE).replay
    moved(policy, replay, "logp")
    assert weight.grad.any()


def test_gradient_checkpointing_changes_no_number(make, observe):
    plain, spared = (make(train_vlm=True, gradient_checkpointing=on) for on in (False, True))
    replay = plain.act(observe(3), draws(3), Mode.SAMPLE).replay
    calls = []
    spared.expert.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    assert moved(plain, replay, "logp") == moved(spared, replay, "logp")
    assert len(calls) == 2  # once forward, once for the gradient
    own = dict(spared.named_parameters())
    for name, parameter in plain.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(own[name].grad, parameter.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", ["expert", "vlm"])
def test_a_detached_value_trains_its_head_alone(value, make, observe):
    policy = make(value=value, detach_value=True, train_vlm=True)
    replay = policy.act(observe(3), draws(3), Mode.SAMPLE).replay
    assert all(n.startswith("value_head") for n in moved(policy, replay, "value"))


def test_log_probs_can_be_raised_by_following_their_gradient(make, observe):
    policy = make()
    replay = policy.act(observe(8), draws(8), Mode.SAMPLE).replay
    optimizer = torch.optim.SGD([p for p in policy.parameters() if p.requires_grad], lr=1e-4)
    before = policy.evaluate(replay).logp.sum()
    (-before).backward()
    optimizer.step()
    assert policy.evaluate(replay).logp.sum() > before


# --- modes, noise, precision ----------------------------------------------------------------------


def test_greedy_repeats_and_a_value_needs_no_actions(make, observe):
    policy = make()
    one, two = (policy.act(observe(3), None, Mode.GREEDY) for _ in range(2))
    assert torch.equal(one.actions, two.actions)
    assert one.replay is None
    asked = policy.act(observe(3), None, Mode.VALUE)
    assert (asked.actions, asked.logp, asked.replay) == (None, None, None)
    assert torch.equal(asked.value, one.value)
    assert make(value="none").act(observe(3), None, Mode.VALUE).value is None


def test_sampling_without_draws_is_refused(make, observe):
    with pytest.raises(RLInputError, match="without draws"):
        make().act(observe(2), None, Mode.SAMPLE)


def test_the_level_falls_from_iteration_to_iteration_and_is_kept_with_what_was_drawn(make, observe):
    policy = make(noise_annealing={"start": 0.8, "end": 0.2, "iterations": 2})
    acts = []
    for level in (0.8, 0.5, 0.2, 0.2):
        act = policy.act(observe(2), draws(2), Mode.SAMPLE)
        torch.testing.assert_close(act.replay["noise_level"], torch.full((2,), level))
        acts.append(act)
        policy.observe(observe(2), torch.ones(1, 2, dtype=torch.bool), rl.local)
    assert torch.equal(policy.evaluate(acts[0].replay).logp, acts[0].logp)
    assert int(policy.state_dict()["iterations"]) == 4


def test_the_engine_in_pieces_acts_as_at_once(make, observe):
    engines = []
    for size in (None, 2):
        engine = DirectEngine(DirectConfig(batch_size=size), "cpu")
        engine.build(make)
        engines.append(engine.act(observe(5), draws(5), Mode.SAMPLE))
    one, other = engines
    torch.testing.assert_close(one.actions, other.actions, rtol=0, atol=1e-5)
    torch.testing.assert_close(one.replay["chains"], other.replay["chains"], rtol=0, atol=1e-5)
    assert torch.equal(one.replay["denoise_inds"], other.replay["denoise_inds"])


@pytest.mark.parametrize("name", KINDS)
def test_bfloat16_is_near_float32_and_leaves_norms_alone(name, make, observe):
    wide, half = make(name), make(name, precision="bfloat16")
    dtypes = {n: p.dtype for n, p in half.named_parameters()}
    assert dtypes["paligemma_with_expert.gemma_expert.model.layers.0.mlp.up_proj.weight"] == (
        torch.bfloat16
    )
    kept = [n for n, dtype in dtypes.items() if dtype == torch.float32]
    assert any("language_model.layers.1.input_layernorm" in n for n in kept)
    assert "action_in_proj.weight" in kept
    act, other = (p.act(observe(4), None, Mode.GREEDY) for p in (wide, half))
    assert other.actions.dtype == torch.float32
    assert 0 < (act.actions - other.actions).abs().max() < 0.1
    sampled = half.act(observe(4), draws(4), Mode.SAMPLE)
    assert torch.equal(half.evaluate(sampled.replay).logp, sampled.logp)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_finite_float32_out(dtype, make, observe):
    policy = make()
    act = policy.act(observe(2), draws(2), Mode.SAMPLE)
    with torch.autocast("cpu", dtype):
        scored = policy.evaluate(act.replay)
    assert torch.isfinite(scored.logp).all()
    assert torch.isfinite(scored.value).all()
    assert {scored.logp.dtype, scored.value.dtype, scored.entropy.dtype} == {torch.float32}


def test_actions_are_cut_to_the_simulators_bounds(make, observe):
    act = make(bounds=0.25).act(observe(16), draws(16), Mode.SAMPLE)
    free = make().act(observe(16), draws(16), Mode.SAMPLE)
    assert torch.equal(act.actions, free.actions.clamp(-0.25, 0.25))
    assert torch.equal(act.logp, free.logp)


# --- names of parts -------------------------------------------------------------------------------


def test_named_parts_exist_and_are_what_they_should_be(make):
    policy = make()
    modules = dict(policy.named_modules())
    shards, targets = policy.shards(), policy.lora_targets()
    assert len(shards) == 1 + 2 + 2  # vision, language model, expert
    assert len(targets) == (2 + 2) * 7
    assert all(isinstance(modules[name], torch.nn.Linear) for name in targets)
    inside = [
        n for n, _ in policy.named_parameters() if n.startswith(tuple(f"{s}." for s in shards))
    ]
    assert len(inside) == 1 * 16 + 4 * 9
    assert len(set(shards)) == len(shards)


def test_weights_depend_on_torchs_seed_alone(make):
    one, same, other = make(seed=3), make(seed=3), make(seed=4)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, same.state_dict()[name])
    assert not torch.equal(one.action_in_proj.weight, other.action_in_proj.weight)


# --- the flow -------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [2, 4, 10])
def test_times_fall_evenly_to_0(steps):
    times = flow.timesteps(steps)
    torch.testing.assert_close(times, 1 - torch.arange(steps + 1) / steps)
    assert times[0] == 1
    assert times[-1] == 0


def test_training_times_follow_their_distribution():
    b = torch.distributions.Beta(torch.tensor(1.5), torch.tensor(1.0))
    uniform = torch.linspace(0.001, 0.999, 999)
    times = flow.training_time(uniform)
    assert 0.001 <= times.min() < times.max() <= 1
    torch.manual_seed(0)
    drawn = 0.999 * b.sample((200_000,)) + 0.001
    torch.testing.assert_close(times.mean(), drawn.mean(), rtol=0.01, atol=0)
    torch.testing.assert_close(times.median(), drawn.median(), rtol=0.01, atol=0)


def test_training_on_demonstrations_lowers_the_loss(make, observe):
    policy, obs = make("pi05", train_vlm=True), observe(8)
    numbers = draws(8)
    actions = torch.tanh(numbers.normal(4, 8))
    noise, time = numbers.normal(4, 8), flow.training_time(numbers.uniform())
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        prefix = policy.see(policy.interface.read(obs))
        loss = policy.loss(prefix, None, actions, noise, time).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_replays_hold_no_strings(make, observe):
    replay = make("pi05").act(observe(2), draws(2), Mode.SAMPLE).replay
    assert isinstance(replay, Batch)
    assert len(dict(replay.leaves())) == len(dict(replay.without_strings().leaves()))
