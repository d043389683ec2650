"""The loss: what trains, what does not, and that no number depends on how a minibatch is split."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rlinf_plugin_grpo import plugin
from rlinf_plugin_grpo.config import GRPOConfig
from rlinf_plugin_grpo.grpo import GRPO
from rlinf_plugin_torch.backend import TorchBackend
from rlinf_plugin_torch.config import TorchConfig

from rlinf_core.api import Batch, CapabilityError, Counts, Eval, Kind, Needs, RLInputError

LEVELS = ("chunk", "action", "token")  # log-probs of shape [B], [B, C], [B, C, A]


def alone(x: torch.Tensor) -> torch.Tensor:
    return x


def means(metrics) -> dict[str, float]:
    return {name: float(total) / max(float(n), 1) for name, (total, n) in metrics.items()}


def chunks(old: list[float], advantage: list[float], **entries) -> Batch:
    """Return rows of one action of one dimension."""
    rows = len(old)
    base = {
        "valid": torch.ones(rows, 1, dtype=torch.bool),
        "mask": torch.ones(rows, dtype=torch.bool),
        "logp": torch.tensor(old).reshape(rows, 1, 1),
        "advantage": torch.tensor(advantage),
        **{name: torch.full((rows,), 0.25) for name in ("score", "equal_groups", "kept_groups")},
    }
    return Batch({**base, **entries})


def scored(logp: list[float], entropy: torch.Tensor | None = None) -> Eval:
    full = torch.tensor(logp, requires_grad=True)
    return Eval(logp=full.reshape(-1, 1, 1), entropy=entropy, value=None)


def test_listing_imports_no_torch():
    code = (
        "import sys, rlinf_plugin_grpo.plugin as p; [s] = p.rlinf_algorithms(); "
        "assert s.name == 'grpo'; import rlinf_plugin_grpo.config; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_core_is_known_by_its_api_alone():
    for path in Path(plugin.__file__).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r"\s*(from|import)\s+rlinf_core", line):
                assert line.startswith("from rlinf_core.api import"), f"{path.name}: {line}"


def test_what_it_needs():
    [spec] = plugin.rlinf_algorithms()
    assert {str(c) for c in spec.needs[Kind.SIMULATOR]} == {"shared-states"}
    assert {str(c) for c in spec.needs[Kind.MODEL]} == {"logprob"}
    assert GRPO(GRPOConfig(group_size=5)).needs == Needs(values=False, group_size=5)


def test_every_option_has_help():
    assert [n for n, f in GRPOConfig.model_fields.items() if not f.description] == []


@pytest.mark.parametrize(
    "options",
    [{"clip_ratio": 0.0}, {"clip_ratio": 1.0}, {"clip_ratio_high": 0.0}, {"dual_clip": 1.0},
     {"entropy_coefficient": -1.0}, {"target_kl": 0.0}, {"logprob_level": "word"},
     {"aggregation": "token"}, {"group_reward_min": math.nan}, {"clip_rato": 0.2},
     {"group_reward_min": 1.0, "group_reward_max": 0.5}],
    ids=str,
)  # fmt: skip
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GRPOConfig(**options)


# --- by hand --------------------------------------------------------------------------------------


def test_clipped_loss_by_hand_with_two_limits(count):
    """Ratios 1.5 and 0.5 with either sign of advantage: the clip acts where gain would go on."""
    ratio, advantage = [1.5, 1.5, 0.5, 0.5], [2.0, -2.0, 2.0, -2.0]
    logp = [math.log(r) for r in ratio]
    batch, evaluation = chunks([0.0] * 4, advantage), scored(logp)
    grpo = GRPO(GRPOConfig(clip_ratio=0.2, clip_ratio_high=0.3))
    loss, metrics = grpo.loss(batch, evaluation, count(batch))
    assert loss.item() == pytest.approx((-1.3 * 2 + 1.5 * 2 - 0.5 * 2 + 0.8 * 2) / 4)
    said = means(metrics)
    assert said["policy_loss"] == pytest.approx(loss.item())
    assert said["clip_fraction"] == 0.5
    assert said["approx_kl"] == pytest.approx(sum(r - 1 - math.log(r) for r in ratio) / 4)
    (gradient,) = torch.autograd.grad(loss, evaluation.logp)
    assert gradient.flatten().tolist() == pytest.approx([0.0, 0.75, -0.25, 0.0])
    same, _ = GRPO(GRPOConfig(clip_ratio=0.2)).loss(batch, scored(logp), count(batch))
    assert same.item() == pytest.approx((-1.2 * 2 + 1.5 * 2 - 0.5 * 2 + 0.8 * 2) / 4)


def test_case_n09_dual_clip_changes_the_number(count):
    batch = chunks([0.0], [-1.0])
    losses = [
        GRPO(GRPOConfig(dual_clip=c)).loss(batch, scored([math.log(10.0)]), count(batch))[0].item()
        for c in (None, 3.0)
    ]
    assert losses == pytest.approx([10.0, 3.0])


def test_case_n03_entropy_bonus_is_the_plain_mean(count):
    entropy = torch.rand(8, 1, 1, requires_grad=True)
    batch = chunks([0.0] * 8, [0.0] * 8)
    grpo = GRPO(GRPOConfig(entropy_coefficient=0.1))
    loss, metrics = grpo.loss(batch, scored([0.0] * 8, entropy), count(batch))
    assert loss.item() == pytest.approx(-0.1 * entropy.mean().item())
    assert means(metrics)["entropy"] == pytest.approx(entropy.mean().item())
    with pytest.raises(CapabilityError, match="gives no entropy"):
        grpo.loss(batch, scored([0.0] * 8), count(batch))
    _, metrics = GRPO(GRPOConfig()).loss(batch, scored([0.0] * 8), count(batch))
    assert "entropy" not in metrics


def test_target_kl_stops():
    grpo = GRPO(GRPOConfig(target_kl=0.02))
    assert not grpo.stop({"approx_kl": 0.019})
    assert grpo.stop({"approx_kl": 0.021})
    assert not GRPO(GRPOConfig()).stop({"approx_kl": 1e9})


@pytest.mark.parametrize(("ndim", "level"), [(1, "action"), (2, "token"), (1, "token")])
def test_log_probs_that_are_too_coarse_are_refused(ndim, level, count):
    batch = chunks([0.0], [0.0])
    coarse = Eval(logp=torch.zeros([1] * ndim), entropy=None, value=None)
    with pytest.raises(RLInputError, match=f"per {LEVELS[ndim - 1]}.*{level!r}, which is finer"):
        GRPO(GRPOConfig(logprob_level=level)).loss(batch, coarse, count(batch))


@pytest.mark.parametrize("shape", [[4], [4, 1]])
def test_coarser_models_train_at_chunk_level(shape, count):
    batch = chunks([0.0] * 4, [1.0] * 4).with_entries(logp=torch.zeros(shape))
    evaluation = Eval(logp=torch.full(shape, 0.1), entropy=None, value=None)
    loss, _ = GRPO(GRPOConfig()).loss(batch, evaluation, count(batch))
    assert loss.item() == pytest.approx(-math.exp(0.1))


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_case_n04_what_stands_in_masked_rows_does_not_count(level, count):
    grpo = GRPO(GRPOConfig(logprob_level=level, entropy_coefficient=0.1))
    nan = torch.nan
    one = chunks([0.0], [1.0])
    two = chunks(
        [0.0, nan], [1.0, nan],
        valid=torch.tensor([[True], [False]]), mask=torch.tensor([True, False]),
    )  # fmt: skip
    entropy = torch.tensor([0.5, nan]).reshape(2, 1, 1)
    wanted, wanted_metrics = grpo.loss(one, scored([0.1], entropy[:1]), count(one))
    evaluation = scored([0.1, nan], entropy)
    loss, metrics = grpo.loss(two, evaluation, count(two))
    assert loss.item() == wanted.item()
    assert means(metrics) == means(wanted_metrics)
    (gradient,) = torch.autograd.grad(loss, evaluation.logp)
    assert gradient.isfinite().all()
    assert gradient[1] == 0


@pytest.mark.parametrize("level", LEVELS)
def test_case_e08_steps_after_the_first_end_never_train(level, make_rollout, make_policy, count):
    batch = make_rollout()
    grpo = GRPO(GRPOConfig(group_size=4, logprob_level=level, entropy_coefficient=0.01))
    padded = ~batch["valid"]  # [T, N, C]
    assert padded.any()
    gradients = []
    for poison in (0.0, 1e3):
        replay, logp = batch["replay"]["sample"].clone(), batch["logp"].clone()
        replay[padded] += poison
        logp[padded] += poison
        poisoned = batch.with_entries(
            replay=batch["replay"].with_entries(sample=replay),
            logp=logp,
            reward=torch.where(padded, poison, batch["reward"]),
            valid=torch.ones_like(padded),  # a simulator that went on with another episode
        )
        rows = grpo.advantages(poisoned, alone).flatten()
        policy = make_policy()
        loss, _ = grpo.loss(rows, policy.evaluate(rows["replay"]), count(rows))
        loss.backward()
        trained = [p.grad.flatten() for p in policy.parameters() if p.grad is not None]
        gradients.append(torch.cat(trained))
    assert gradients[0].abs().sum() > 0
    assert torch.equal(*gradients)


def test_nothing_is_left_and_nothing_moves(make_rollout, make_policy, count):
    grpo = GRPO(GRPOConfig(group_size=4, group_reward_min=1e9))
    rows = grpo.advantages(make_rollout(), alone).flatten()
    policy = make_policy()
    loss, metrics = grpo.loss(rows, policy.evaluate(rows["replay"]), count(rows))
    loss.backward()
    assert loss.item() == 0.0
    assert not any(p.grad.any() for p in policy.parameters() if p.grad is not None)
    assert means(metrics)["kept_groups"] == 0.0
    assert means(metrics)["score"] != 0.0  # said of the rollout, though no row counts


# --- together with a model and a backend ----------------------------------------------------------


def test_case_m07_the_first_ratio_is_exactly_one(make_rollout, make_policy, count):
    """One time step, so that acting and scoring have the same shapes."""
    grpo = GRPO(GRPOConfig(group_size=4))
    rows = grpo.advantages(make_rollout(steps=1), alone).flatten()
    _, metrics = grpo.loss(rows, make_policy().evaluate(rows["replay"]), count(rows))
    said = means(metrics)
    assert said["ratio"] == 1.0
    assert said["approx_kl"] == said["clip_fraction"] == 0.0


@pytest.mark.parametrize("level", LEVELS)
def test_every_episode_pushes_alike_whatever_its_length(level, make_rollout, make_policy, count):
    """At ratio 1 the loss is minus the mean over episodes of their advantages, which is 0."""
    grpo = GRPO(GRPOConfig(group_size=4, logprob_level=level))
    rows = grpo.advantages(make_rollout(), alone).flatten()
    loss, _ = grpo.loss(rows, make_policy().evaluate(rows["replay"]), count(rows))
    assert loss.item() == pytest.approx(0.0, abs=1e-5)
    uneven = GRPO(GRPOConfig(group_size=4, logprob_level=level, aggregation="decision"))
    rows = uneven.advantages(make_rollout(), alone).flatten()
    loss, _ = uneven.loss(rows, make_policy().evaluate(rows["replay"]), count(rows))
    assert abs(loss.item()) > 0.05


@pytest.mark.parametrize("level", LEVELS)
def test_the_loss_is_the_sum_of_its_logged_means(level, make_rollout, make_policy, count):
    grpo = GRPO(GRPOConfig(group_size=4, logprob_level=level, entropy_coefficient=0.1))
    rows = grpo.advantages(make_rollout(), alone).flatten()
    rows = rows.with_entries(logp=rows["logp"] - 0.01)
    loss, metrics = grpo.loss(rows, make_policy().evaluate(rows["replay"]), count(rows))
    said = means(metrics)
    assert loss.item() == pytest.approx(said["policy_loss"] - 0.1 * said["entropy"], rel=1e-4)


@pytest.mark.parametrize("level", LEVELS)
def test_case_n02_n11_micro_batches_change_no_number(level, make_rollout, make_policy, count):
    """A group was compared before the split, so micro-batches that cut it change nothing."""
    grpo = GRPO(GRPOConfig(group_size=4, logprob_level=level, entropy_coefficient=0.05))
    rows = grpo.advantages(make_rollout(), alone).flatten()
    counts = count(rows)
    assert not rows["mask"].all()
    after, results = [], []
    for size in (len(rows), 1, 3, 4):
        backend = TorchBackend(TorchConfig(optimizer="sgd", learning_rate=0.05, max_grad_norm=None))
        backend.build(make_policy)
        for _ in range(3):
            result = backend.update(rows.split(size), lambda m, e: grpo.loss(m, e, counts))
        results.append(result)
        after.append(torch.cat([p.detach().flatten() for p in backend.policy.parameters()]))
    start = torch.cat([p.detach().flatten() for p in make_policy().parameters()])
    assert (after[0] - start).abs().max() > 1e-3
    for parameters, result in zip(after[1:], results[1:], strict=True):
        torch.testing.assert_close(parameters, after[0], rtol=0, atol=1e-6)
        assert result == pytest.approx(results[0], rel=1e-4, abs=1e-6)


def test_case_n02_ranks_add_up(make_rollout, make_policy, count):
    grpo = GRPO(GRPOConfig(group_size=4, entropy_coefficient=0.05))
    rows = grpo.advantages(make_rollout(), alone).flatten()
    counts = count(rows)

    def gradient(part: Batch, counts: Counts) -> torch.Tensor:
        policy = make_policy()
        grpo.loss(part, policy.evaluate(part["replay"]), counts)[0].backward()
        return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])

    ranks = [rows.rows(slice(0, 13)), rows.rows(slice(13, len(rows)))]
    total = sum(gradient(part, counts) for part in ranks)
    torch.testing.assert_close(total, gradient(rows, counts), rtol=0, atol=1e-6)
