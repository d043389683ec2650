"""The loss: what trains, what does not, and that no number depends on how a minibatch is split."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from rlinf_plugin_ppo.config import PPOConfig
from rlinf_plugin_ppo.ppo import PPO
from rlinf_plugin_torch.backend import TorchBackend
from rlinf_plugin_torch.config import TorchConfig

from rlinf_core.api import Batch, CapabilityError, Counts, Eval, RLInputError

LEVELS = ("chunk", "action", "token")  # log-probs of shape [B], [B, C], [B, C, A]


def means(metrics) -> dict[str, float]:
    return {name: float(total) / float(n) for name, (total, n) in metrics.items()}


def chunks(logp: list[float], old: list[float], advantage: list[float], **entries) -> Batch:
    """Return rows of one action of one dimension."""
    rows = len(logp)
    base = {
        "valid": torch.ones(rows, 1, dtype=torch.bool),
        "mask": torch.ones(rows, dtype=torch.bool),
        "logp": torch.tensor(old).reshape(rows, 1, 1),
        "advantage": torch.tensor(advantage),
        "return": torch.zeros(rows),
        "value": torch.zeros(rows),
        "explained_variance": torch.zeros(rows),
    }
    return Batch({**base, **entries})


def scores(logp: list[float], **given) -> Eval:
    rows = len(logp)
    full = torch.tensor(logp, requires_grad=True)
    parts = {"entropy": torch.zeros(rows, 1, 1), "value": torch.zeros(rows), **given}
    return Eval(logp=full.reshape(rows, 1, 1), **parts)


def test_listing_imports_no_torch():
    code = (
        "import sys, rlinf_plugin_ppo.plugin as p; [s] = p.rlinf_algorithms(); "
        "assert s.name == 'ppo'; import rlinf_plugin_ppo.config; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_option_has_help():
    assert [n for n, f in PPOConfig.model_fields.items() if not f.description] == []


# --- by hand --------------------------------------------------------------------------------------


def test_clipped_loss_by_hand(count):
    """Ratios 1.5 and 0.5 with either sign of advantage: the clip acts where gain would go on."""
    ratio, advantage = [1.5, 1.5, 0.5, 0.5], [2.0, -2.0, 2.0, -2.0]
    logp = [math.log(r) for r in ratio]
    batch, evaluation = chunks(logp, [0.0] * 4, advantage), scores(logp)
    loss, metrics = PPO(PPOConfig()).loss(batch, evaluation, count(batch))
    per_row = [-1.2 * 2, 1.5 * 2, -0.5 * 2, 0.8 * 2]
    assert loss.item() == pytest.approx(sum(per_row) / 4)
    said = means(metrics)
    assert said["policy_loss"] == pytest.approx(sum(per_row) / 4)
    assert said["clip_fraction"] == 0.5
    assert said["ratio"] == pytest.approx(1.0)
    (gradient,) = torch.autograd.grad(loss, evaluation.logp)
    assert gradient.flatten().tolist() == pytest.approx([0.0, 0.75, -0.25, 0.0])


def test_a_gradient_step_makes_good_decisions_likelier(count):
    evaluation = scores([0.0, 0.0])
    batch = chunks([0.0, 0.0], [0.0, 0.0], [1.0, -1.0])
    loss, _ = PPO(PPOConfig()).loss(batch, evaluation, count(batch))
    (gradient,) = torch.autograd.grad(loss, evaluation.logp)
    assert gradient.flatten().tolist() == [-0.5, 0.5]  # descent raises the first, lowers the second


def test_upper_clip_of_its_own(count):
    logp = [math.log(1.25)]
    batch = chunks(logp, [0.0], [1.0])
    losses = [
        PPO(PPOConfig(clip_ratio_high=high)).loss(batch, scores(logp), count(batch))[0].item()
        for high in (None, 0.28)
    ]
    assert losses == pytest.approx([-1.2, -1.25])


def test_case_n08_approx_kl_is_k3_and_never_negative(count):
    """r = 1/2 and 3: k3 = (r - 1) - log r. The k1 estimate of the second would be -1.0986."""
    for ratio in (0.5, 3.0):
        logp = [math.log(ratio)]
        batch = chunks(logp, [0.0], [0.0])
        _, metrics = PPO(PPOConfig()).loss(batch, scores(logp), count(batch))
        assert means(metrics)["approx_kl"] == pytest.approx(ratio - 1 - math.log(ratio))
        assert means(metrics)["approx_kl"] > 0


def test_value_loss_by_hand_with_clip_and_huber(count):
    """Value 3, before 1, return 0; and what a clip of 0.5 and Huber's delta 1 make of it."""
    batch = chunks([0.0], [0.0], [0.0], value=torch.ones(1))

    def loss(**options: object) -> float:
        value = torch.full((1,), 3.0, requires_grad=True)
        ppo = PPO(PPOConfig(value_coefficient=2.0, **options))
        total, metrics = ppo.loss(batch, scores([0.0], value=value), count(batch))
        (gradient,) = torch.autograd.grad(total, value)
        assert total.item() == pytest.approx(2 * means(metrics)["value_loss"])
        assert gradient.isfinite().all()
        return total.item()

    assert loss() == pytest.approx(2 * 9 / 2)
    assert loss(huber_delta=1.0) == pytest.approx(2 * (3 - 0.5))
    assert loss(value_clip=0.5) == pytest.approx(2 * 9 / 2)  # the worse of 3 and 1.5
    worse = chunks([0.0], [0.0], [0.0], value=torch.full((1,), 7.0))
    total, _ = PPO(PPOConfig(value_coefficient=2.0, value_clip=0.5)).loss(
        worse, scores([0.0], value=torch.full((1,), 3.0)), count(worse)
    )
    assert total.item() == pytest.approx(2 * 6.5**2 / 2)


def test_case_n03_entropy_bonus_is_the_plain_mean(count):
    entropy = torch.rand(8, 1, 1, requires_grad=True)
    batch = chunks([0.0] * 8, [0.0] * 8, [0.0] * 8)
    ppo = PPO(PPOConfig(entropy_coefficient=0.1))
    loss, metrics = ppo.loss(batch, scores([0.0] * 8, entropy=entropy), count(batch))
    assert loss.item() == pytest.approx(-0.1 * entropy.mean().item())
    assert means(metrics)["entropy"] == pytest.approx(entropy.mean().item())
    (gradient,) = torch.autograd.grad(loss, entropy)
    torch.testing.assert_close(gradient, torch.full((8, 1, 1), -0.1 / 8))


def test_case_n03_tensors_of_different_rank_are_refused(count):
    batch = chunks([0.0] * 4, [0.0] * 4, [0.0] * 4)
    with pytest.raises(RLInputError, match=r"\[4, 1\]"):
        PPO(PPOConfig()).loss(batch, scores([0.0] * 4, value=torch.zeros(4, 1)), count(batch))
    wide = batch.with_entries(advantage=torch.zeros(4, 1))
    with pytest.raises(RLInputError, match=r"\[4, 1\]"):
        PPO(PPOConfig()).loss(wide, scores([0.0] * 4), count(batch))


def test_case_n09_an_unknown_option_fails_and_dual_clip_changes_the_number(count):
    with pytest.raises(ValueError, match="clip_rato"):
        PPOConfig(clip_rato=0.2)
    logp = [math.log(10.0)]
    batch = chunks(logp, [0.0], [-1.0])
    losses = [
        PPO(PPOConfig(dual_clip=c)).loss(batch, scores(logp), count(batch))[0].item()
        for c in (None, 3.0)
    ]
    assert losses == pytest.approx([10.0, 3.0])


@pytest.mark.parametrize(
    "options",
    [{"gamma": 1.1}, {"gae_lambda": -0.1}, {"clip_ratio": 0.0}, {"clip_ratio": 1.0},
     {"dual_clip": 1.0}, {"value_clip": 0.0}, {"huber_delta": 0.0}, {"reward_scale": 0.0},
     {"entropy_coefficient": -1.0}, {"target_kl": 0.0}, {"logprob_level": "word"}],
    ids=str,
)  # fmt: skip
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        PPOConfig(**options)


def test_target_kl_stops():
    ppo = PPO(PPOConfig(target_kl=0.02))
    assert not ppo.stop({"approx_kl": 0.019})
    assert ppo.stop({"approx_kl": 0.021})
    assert not PPO(PPOConfig()).stop({"approx_kl": 1e9})


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_case_n04_what_stands_in_masked_rows_does_not_count(level, count):
    """NaN wherever a masked row has a number; the same as without the row."""
    ppo = PPO(PPOConfig(logprob_level=level, entropy_coefficient=0.1, value_clip=0.2))
    nan = torch.nan
    one = chunks([0.1], [0.0], [1.0])
    two = chunks(
        [0.1, nan], [0.0, nan], [1.0, nan],
        valid=torch.tensor([[True], [False]]),
        mask=torch.tensor([True, False]),
        **{key: torch.tensor([0.0, nan]) for key in ("return", "value", "explained_variance")},
    )  # fmt: skip
    entropy = torch.tensor([0.5, nan]).reshape(2, 1, 1)
    extra = {"entropy": entropy, "value": torch.tensor([0.3, nan])}
    few = {name: tensor[:1] for name, tensor in extra.items()}
    wanted, wanted_metrics = ppo.loss(one, scores([0.1], **few), count(one))
    evaluation = scores([0.1, nan], **extra)
    loss, metrics = ppo.loss(two, evaluation, count(two))
    assert loss.item() == wanted.item()
    assert means(metrics) == means(wanted_metrics)
    (gradient,) = torch.autograd.grad(loss, evaluation.logp)
    assert gradient.isfinite().all()
    assert gradient[1] == 0


@pytest.mark.parametrize("level", LEVELS)
def test_case_e08_padded_actions_never_train(level, make_trajectory, make_policy, count):
    """Other samples, log-probs and rewards behind the ends give the same gradient, bit for bit."""
    batch = make_trajectory()
    ppo = PPO(PPOConfig(logprob_level=level, entropy_coefficient=0.01))
    padded = ~batch["valid"]  # [T, N, C]
    assert padded.any()
    gradients = []
    for poison in (0.0, 1e3):
        replay, logp = batch["replay"]["sample"].clone(), batch["logp"].clone()
        reward = torch.where(padded, poison, batch["reward"])
        replay[padded] += poison
        logp[padded] += poison
        poisoned = batch.with_entries(
            replay=batch["replay"].with_entries(sample=replay), logp=logp, reward=reward
        )
        rows = ppo.advantages(poisoned, lambda x: x).flatten()
        policy = make_policy()
        loss, _ = ppo.loss(rows, policy.evaluate(rows["replay"]), count(rows))
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in policy.parameters()]))
    assert gradients[0].abs().sum() > 0
    assert torch.equal(*gradients)


def test_case_e08_a_misspelt_mask_is_refused(make_trajectory, make_policy, count):
    ppo = PPO(PPOConfig())
    rows = ppo.advantages(make_trajectory(), lambda x: x).flatten()
    evaluation, counts = make_policy().evaluate(rows["replay"]), count(rows)
    misspelt = Batch({("vaild" if key == "valid" else key): value for key, value in rows.items()})
    with pytest.raises(KeyError, match="'vaild'"):
        ppo.loss(misspelt, evaluation, counts)


# --- levels and capabilities ----------------------------------------------------------------------


def test_levels_sum_over_the_executed_parts(make_trajectory, make_policy, count):
    batch = make_trajectory()
    ratios = {}
    for level in LEVELS:
        ppo = PPO(PPOConfig(logprob_level=level))
        rows = ppo.advantages(batch, lambda x: x).flatten()
        rows = rows.with_entries(logp=rows["logp"] - 0.01)  # each dimension 0.01 likelier now
        _, metrics = ppo.loss(rows, make_policy().evaluate(rows["replay"]), count(rows))
        ratios[level] = means(metrics)["ratio"]
        expected = {"chunk": rows["mask"].sum(), "action": rows["valid"].sum()}
        expected["token"] = 2 * expected["action"]
        assert metrics["ratio"][1] == expected[level]
        # The entropy of a decision is the sum over its executed parts, too.
        dimension = -0.5 + 0.5 * math.log(2 * math.pi * math.e)  # at the first log-std, -0.5
        parts = {"token": 1.0, "action": 2.0, "chunk": 2.0 * float(rows["valid"].sum() / 12)}
        assert means(metrics)["entropy"] == pytest.approx(parts[level] * dimension, rel=1e-5)
    executed = rows["valid"].sum(-1).float()
    assert ratios["token"] == pytest.approx(math.exp(0.01))
    assert ratios["action"] == pytest.approx(math.exp(0.02))
    assert ratios["chunk"] == pytest.approx(float((0.02 * executed).exp().mean()))


@pytest.mark.parametrize("level", LEVELS)
def test_the_loss_is_the_sum_of_its_logged_means(level, make_trajectory, make_policy, count):
    ppo = PPO(PPOConfig(logprob_level=level, entropy_coefficient=0.1))
    rows = ppo.advantages(make_trajectory(), lambda x: x).flatten()
    rows = rows.with_entries(logp=rows["logp"] - 0.01)
    loss, metrics = ppo.loss(rows, make_policy().evaluate(rows["replay"]), count(rows))
    said = means(metrics)
    wanted = said["policy_loss"] + 0.5 * said["value_loss"] - 0.1 * said["entropy"]
    assert loss.item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("ndim", "level"), [(1, "action"), (2, "token"), (1, "token")])
def test_log_probs_that_are_too_coarse_are_refused(ndim, level, count):
    batch = chunks([0.0], [0.0], [0.0])
    coarse = torch.zeros([1] * ndim)
    evaluation = Eval(logp=coarse, entropy=None, value=torch.zeros(1))
    with pytest.raises(RLInputError, match=f"per {LEVELS[ndim - 1]}.*{level!r}, which is finer"):
        PPO(PPOConfig(logprob_level=level)).loss(batch, evaluation, count(batch))


@pytest.mark.parametrize("ndim", [1, 2])
def test_coarser_models_train_at_chunk_level(ndim, count):
    shape = [4] if ndim == 1 else [4, 1]
    batch = chunks([0.0] * 4, [0.0] * 4, [1.0] * 4).with_entries(logp=torch.zeros(shape))
    evaluation = Eval(logp=torch.full(shape, 0.1), entropy=None, value=torch.zeros(4))
    loss, _ = PPO(PPOConfig()).loss(batch, evaluation, count(batch))
    assert loss.item() == pytest.approx(-math.exp(0.1))


def test_what_the_model_cannot_give_is_named(count):
    batch = chunks([0.0], [0.0], [0.0])
    with pytest.raises(CapabilityError, match="gives no value"):
        PPO(PPOConfig()).loss(batch, scores([0.0], value=None), count(batch))
    with pytest.raises(CapabilityError, match="gives no entropy"):
        PPO(PPOConfig(entropy_coefficient=0.1)).loss(
            batch, scores([0.0], entropy=None), count(batch)
        )
    _, metrics = PPO(PPOConfig()).loss(batch, scores([0.0], entropy=None), count(batch))
    assert "entropy" not in metrics


# --- together with a model and a backend ----------------------------------------------------------


def test_case_m07_the_first_ratio_is_exactly_one(make_trajectory, make_policy, count):
    """One time step, so that acting and scoring have the same shapes."""
    ppo = PPO(PPOConfig())
    rows = ppo.advantages(make_trajectory(steps=1, envs=7), lambda x: x).flatten()
    _, metrics = ppo.loss(rows, make_policy().evaluate(rows["replay"]), count(rows))
    said = means(metrics)
    assert said["ratio"] == 1.0
    assert said["approx_kl"] == said["clip_fraction"] == 0.0


@pytest.mark.parametrize("level", LEVELS)
def test_case_n02_micro_batches_change_no_number(level, make_trajectory, make_policy, count):
    config = PPOConfig(logprob_level=level, entropy_coefficient=0.05, value_clip=0.3)
    ppo = PPO(config)
    batch = make_trajectory()
    idle = batch["valid"].clone()
    idle[1, 1] = idle[3, 2] = False  # two rows that were not executed at all
    rows = ppo.advantages(batch.with_entries(valid=idle), lambda x: x).flatten()
    counts = count(rows)
    after, results = [], []
    for size in (12, 1, 2, 4):
        backend = TorchBackend(TorchConfig(optimizer="sgd", learning_rate=0.05, max_grad_norm=None))
        backend.build(make_policy)
        for _ in range(3):
            result = backend.update(rows.split(size), lambda m, e: ppo.loss(m, e, counts))
        results.append(result)
        after.append(torch.cat([p.detach().flatten() for p in backend.policy.parameters()]))
    start = torch.cat([p.detach().flatten() for p in make_policy().parameters()])
    assert (after[0] - start).abs().max() > 1e-3
    for parameters, result in zip(after[1:], results[1:], strict=True):
        torch.testing.assert_close(parameters, after[0], rtol=0, atol=1e-6)
        assert result == pytest.approx(results[0], rel=1e-4, abs=1e-6)


def test_case_n02_ranks_add_up(make_trajectory, make_policy, count):
    ppo = PPO(PPOConfig(entropy_coefficient=0.05))
    rows = ppo.advantages(make_trajectory(), lambda x: x).flatten()
    counts = count(rows)

    def gradient(part: Batch, counts: Counts) -> torch.Tensor:
        policy = make_policy()
        ppo.loss(part, policy.evaluate(part["replay"]), counts)[0].backward()
        return torch.cat([p.grad.flatten() for p in policy.parameters()])

    ranks = [rows.rows(slice(0, 5)), rows.rows(slice(5, 12))]
    total = sum(gradient(part, counts) for part in ranks)
    torch.testing.assert_close(total, gradient(rows, counts), rtol=0, atol=1e-6)
