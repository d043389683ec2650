"""Acting and scoring: the same numbers both times, and actions the simulator can take."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from rlinf_plugin_mlp.config import MLPConfig
from rlinf_plugin_mlp.facts import facts
from rlinf_plugin_mlp.policy import ACTIVATIONS, MLPPolicy

from rlinf_core.api import (
    Batch,
    CapabilityError,
    Draws,
    Facts,
    LogprobLevel,
    Mode,
    RLInputError,
    Spaces,
    Unknown,
    WeightStream,
    rl,
)


def test_listing_imports_no_torch():
    code = (
        "import sys, rlinf_plugin_mlp.plugin as p; [s] = p.rlinf_models(); assert s.name == 'mlp'; "
        "import rlinf_plugin_mlp.config, rlinf_plugin_mlp.facts; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_option_has_help():
    assert [n for n, f in MLPConfig.model_fields.items() if not f.description] == []


def test_every_activation_of_the_configuration_exists():
    assert set(MLPConfig.model_fields["activation"].annotation.__args__) == set(ACTIVATIONS)


# --- act and evaluate -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.SAMPLE, Mode.GREEDY])
def test_case_m07_evaluate_gives_the_numbers_of_act(mode, make_policy, observe, draws):
    policy, obs = make_policy(), observe(16)
    policy.observe(
        observe(50, seed=2).map(lambda t: t[None]), torch.ones(1, 50, dtype=torch.bool), rl.local
    )
    act = policy.act(obs, draws(16), mode)
    scored = policy.evaluate(act.replay)
    assert torch.equal(scored.logp, act.logp)  # exactly: the shapes are the same
    assert torch.equal(scored.value, act.value)
    for size in (1, 3, 7):
        for part, logp in zip(act.replay.split(size), act.logp.split(size), strict=True):
            torch.testing.assert_close(policy.evaluate(part).logp, logp, rtol=0, atol=1e-5)


def test_shapes_types_and_gradients(make_policy, observe, draws):
    policy = make_policy()
    act = policy.act(observe(4), draws(4), Mode.SAMPLE)
    assert policy.logprob_level is LogprobLevel.TOKEN
    assert act.actions.shape == act.logp.shape == act.replay["sample"].shape == (4, 2, 3)
    assert act.value.shape == (4,)
    assert {t.dtype for t in (act.actions, act.logp, act.value)} == {torch.float32}
    assert not any(t.requires_grad for t in (act.actions, act.logp, act.value))
    scored = policy.evaluate(act.replay)
    assert scored.logp.shape == scored.entropy.shape == (4, 2, 3)
    (scored.logp.sum() + scored.entropy.sum() + scored.value.sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters())


def test_scores_are_those_of_torch_distributions(make_policy, observe, draws):
    policy = make_policy()
    act = policy.act(observe(4), draws(4), Mode.SAMPLE)
    mean = policy.act(observe(4), None, Mode.GREEDY).replay["sample"]
    law = torch.distributions.Normal(mean, policy.log_std.exp().expand_as(mean))
    torch.testing.assert_close(act.logp, law.log_prob(act.replay["sample"]))
    torch.testing.assert_close(policy.evaluate(act.replay).entropy, law.entropy())


def test_a_sample_is_mean_plus_deviation_times_the_rows_own_draws(make_policy, observe):
    policy, obs = make_policy(), observe(4)
    mean = policy.act(obs, None, Mode.GREEDY).replay["sample"]
    together = policy.act(obs, Draws(0, [5, 6, 7, 8], [1, 2, 3, 4]), Mode.SAMPLE).replay["sample"]
    noise = Draws(0, [5, 6, 7, 8], [1, 2, 3, 4]).normal(2, 3)
    torch.testing.assert_close(together, mean + policy.log_std.exp() * noise)
    alone = policy.act(obs.rows([2]), Draws(0, [7], [3]), Mode.SAMPLE).replay["sample"]
    torch.testing.assert_close(alone[0], together[2], rtol=0, atol=1e-6)


def test_sampling_without_draws_is_refused(make_policy, observe):
    with pytest.raises(RLInputError, match="without draws"):
        make_policy().act(observe(2), None, Mode.SAMPLE)


def test_mode_value_asks_the_critic_only(make_policy, observe):
    policy = make_policy()
    act = policy.act(observe(4), None, Mode.VALUE)
    assert (act.actions, act.logp, act.replay) == (None, None, None)
    assert torch.equal(act.value, policy.act(observe(4), None, Mode.GREEDY).value)


def test_half_precision_still_returns_float32(make_policy, observe, draws):
    policy = make_policy()
    act = policy.act(observe(4), draws(4), Mode.SAMPLE)
    with torch.autocast("cpu", torch.bfloat16):
        scored = policy.evaluate(act.replay)
        greedy = policy.act(observe(4), None, Mode.GREEDY)
    assert {greedy.actions.dtype, greedy.replay["sample"].dtype} == {torch.float32}
    assert {scored.logp.dtype, scored.value.dtype, scored.entropy.dtype} == {torch.float32}
    assert not torch.equal(scored.logp, act.logp)


# --- bounds ---------------------------------------------------------------------------------------


def test_actions_fill_the_bounds_and_never_leave_them(make_policy, make_spaces, observe, draws):
    low, high = [-0.1, 0.3, -7.0], [0.7, 0.4, 11.0]
    policy = make_policy(make_spaces(low, high), log_std_init=1.0)
    act = policy.act(observe(400), draws(400), Mode.SAMPLE)
    low, high = torch.tensor(low), torch.tensor(high)
    assert (act.actions >= low).all()
    assert (act.actions <= high).all()
    flat = act.actions.flatten(0, 1)
    assert torch.equal(flat.amin(0), low)
    assert torch.equal(flat.amax(0), high)
    inside = act.replay["sample"].abs() < 0.99
    expected = low + (act.replay["sample"] + 1) / 2 * (high - low)
    torch.testing.assert_close(act.actions[inside], expected[inside])
    # The sample itself is kept and scored, not what became of it.
    assert act.replay["sample"].abs().max() > 1.5
    assert torch.equal(policy.evaluate(act.replay).logp, act.logp)


def test_the_bounds_minus_one_and_one_leave_samples_as_they_are(make_policy, observe, draws):
    act = make_policy().act(observe(64), draws(64), Mode.SAMPLE)
    assert torch.equal(act.actions, act.replay["sample"].clamp(-1, 1))


def test_infinite_bounds_are_not_scaled(make_policy, make_spaces, observe, draws):
    policy = make_policy(make_spaces([-np.inf, 0.0, -2.0], [np.inf, np.inf, 2.0]))
    act = policy.act(observe(64), draws(64), Mode.SAMPLE)
    sample = act.replay["sample"]
    assert torch.equal(act.actions[..., 0], sample[..., 0])
    assert torch.equal(act.actions[..., 1], sample[..., 1].clamp(min=0))
    torch.testing.assert_close(act.actions[..., 2], (2 * sample[..., 2]).clamp(-2, 2))


# --- making it ------------------------------------------------------------------------------------


def test_weights_are_orthogonal_and_depend_on_the_seed_alone(make_spaces):
    def make(seed):
        torch.manual_seed(seed)
        return MLPPolicy(MLPConfig(hidden=(8, 8)), make_spaces(), 2)

    policy = make(0)
    inner, head = policy.actor[2].weight, policy.actor[4].weight
    torch.testing.assert_close(inner @ inner.T, 2 * torch.eye(8), rtol=0, atol=1e-5)
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(6), rtol=0, atol=1e-8)
    critic = policy.critic[4].weight
    torch.testing.assert_close(critic @ critic.T, torch.eye(1), rtol=0, atol=1e-5)
    assert all(p.eq(0).all() for n, p in policy.named_parameters() if n.endswith("bias"))
    assert policy.log_std.eq(-0.5).all()
    assert torch.equal(make(0).actor[0].weight, policy.actor[0].weight)
    assert not torch.equal(make(1).actor[0].weight, policy.actor[0].weight)


def test_spaces_that_do_not_fit_are_refused(make_spaces):
    good = make_spaces()
    image = gym.Dict({"images": gym.Box(0, 255, (8, 8, 3), np.uint8)})
    deep = gym.Dict({"state": gym.Box(-1, 1, (2, 3))})
    matrix = gym.Box(-1, 1, (2, 2))
    for spaces, says in (
        (Spaces(image, good.action), r"observation\['state'\] has shape None.*'images'"),
        (Spaces(deep, good.action), r"observation\['state'\] has shape \(2, 3\)"),
        (Spaces(good.observation, matrix), r"action has shape \(2, 2\)"),
    ):
        with pytest.raises(CapabilityError, match=says):
            MLPPolicy(MLPConfig(), spaces, 1)


def test_an_observation_without_state_is_named(make_policy, draws):
    with pytest.raises(KeyError, match="'state'"):
        make_policy().act(Batch({"stat": torch.zeros(2, 5)}), draws(2), Mode.SAMPLE)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("hidden", "chunk"), [((128, 128), 1), ((7,), 4), ((), 2)])
def test_facts_are_those_of_the_module(normalize, hidden, chunk, make_spaces):
    config = MLPConfig(hidden=hidden, normalize_observations=normalize)
    spaces = make_spaces(state=39, action=4)
    policy = MLPPolicy(config, spaces, chunk)
    said = facts(config, {"simulator": Facts(spaces=spaces), "chunk": chunk})
    assert said.parameters == sum(p.numel() for p in policy.parameters())
    assert said.bytes == WeightStream.of(policy, 0).header.bytes
    draws = Draws(0, [0, 1], [0, 0])
    act = policy.act(Batch({"state": torch.zeros(2, 39)}), draws, Mode.SAMPLE)
    tensors = [act.logp, act.value, *(leaf for _, leaf in act.replay.leaves())]
    assert 2 * said.act_bytes == sum(t.numel() * t.element_size() for t in tensors)


def test_facts_are_unknown_where_the_simulators_are():
    said = facts(MLPConfig(), {"simulator": Facts(spaces=Unknown("needs a licence"))})
    assert isinstance(said.parameters, Unknown)
    assert "needs a licence" in said.parameters.reason
    assert isinstance(facts(MLPConfig(), {}).bytes, Unknown)
    assert isinstance(facts(MLPConfig(), {}).act_bytes, Unknown)
