"""Properties of any batch: independent of the split, of the ranks, and of masked junk."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlinf_core import rl

close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
quick = settings(max_examples=60, deadline=None)

seeds = st.integers(0, 2**31 - 1)
AGGREGATES = st.sampled_from([rl.token_mean, rl.seq_mean_token_sum, rl.seq_mean_token_mean])


@st.composite
def batches(draw: st.DrawFn, columns: int = 5) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """Five random tensors ``[B, L]``, a mask, and row indices dealt to some parts in any order."""
    rows = draw(st.integers(1, 6))
    length = draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(seeds))
    tensors = [
        torch.randn(rows, length, generator=generator, dtype=torch.float64) for _ in range(columns)
    ]
    flags = st.lists(st.booleans(), min_size=rows * length, max_size=rows * length)
    mask = torch.tensor(draw(flags)).reshape(rows, length)
    parts = draw(st.integers(1, 3))
    owner = torch.tensor(draw(st.lists(st.integers(0, parts - 1), min_size=rows, max_size=rows)))
    return tensors, mask, [(owner == part).nonzero().flatten() for part in range(parts)]


def total_loss(
    tensors: list[Tensor], mask: Tensor, aggregate: rl.Aggregate, count: rl.Count
) -> tuple[Tensor, rl.Metrics]:
    """All losses added up, as a run adds them; the first tensor carries the gradient."""
    theta, old, proximal, advantages, ref = tensors
    shared = {"aggregate": aggregate, "count": count}
    clip = {"clip_low": 0.2, "clip_high": 0.3, "dual_clip": 2.0}
    terms = [
        rl.ppo_loss(theta, old, advantages, mask, **clip, **shared),
        rl.value_loss(theta, old, ref, mask, value_clip=0.4, huber_delta=0.7, **shared),
        rl.entropy_loss(theta, mask, **shared),
        rl.kl_loss(theta, ref, mask, estimator="k3", **shared),
    ]
    _, stale = rl.decoupled_ppo_loss(theta, old, proximal, advantages, mask, **clip, **shared)
    metrics = {name: pair for _, part in terms for name, pair in part.items()}
    metrics |= {f"decoupled_{name}": pair for name, pair in stale.items()}
    return torch.stack([loss for loss, _ in terms]).sum(), metrics


@quick
@given(batches(), AGGREGATES)
def test_losses_gradients_and_metrics_do_not_depend_on_the_split(
    batch: tuple[list[Tensor], Tensor, list[Tensor]], aggregate: rl.Aggregate
) -> None:
    tensors, mask, parts = batch
    theta = tensors[0].requires_grad_()
    loss, metrics = total_loss(tensors, mask, aggregate, None)
    (want,) = torch.autograd.grad(loss, theta)

    count = aggregate(mask.double(), mask).n
    pieces = [
        total_loss([t[rows] for t in tensors], mask[rows], aggregate, count) for rows in parts
    ]
    shares = torch.stack([share for share, _ in pieces]).sum()
    (got,) = torch.autograd.grad(shares, theta)
    close(shares, loss)
    close(got, want)
    merged = rl.mean_metrics(rl.merge_metrics(part for _, part in pieces))
    for name, value in rl.mean_metrics(metrics).items():
        close(merged[name], value)


@quick
@given(batches(), st.floats(0.5, 2.0))
def test_the_threshold_of_decoupled_ppo_does_not_depend_on_the_split(
    batch: tuple[list[Tensor], Tensor, list[Tensor]], threshold: float
) -> None:
    (theta, old, proximal, advantages, _), mask, parts = batch
    options = {"clip_low": 0.2, "clip_high": 0.3, "behave_weight_threshold": threshold}
    counted = rl.counted_steps(old, proximal, mask, behave_weight_threshold=threshold)
    whole, _ = rl.decoupled_ppo_loss(theta, old, proximal, advantages, mask, **options)
    shares = [
        rl.decoupled_ppo_loss(
            *(t[rows] for t in (theta, old, proximal, advantages, mask)),
            **options,
            count=counted.sum(),
        )[0]
        for rows in parts
    ]
    close(torch.stack(shares).sum(), whole)


@quick
@given(batches(), AGGREGATES, st.sampled_from([math.nan, math.inf, -math.inf, 1e30, -1e30]))
def test_junk_in_masked_slots_changes_nothing(
    batch: tuple[list[Tensor], Tensor, list[Tensor]], aggregate: rl.Aggregate, junk: float
) -> None:
    tensors, mask, _ = batch
    clean = [t.clone().requires_grad_() for t in tensors]
    dirty = [torch.where(mask, t, junk).requires_grad_() for t in tensors]
    loss, metrics = total_loss(clean, mask, aggregate, None)
    dirty_loss, dirty_metrics = total_loss(dirty, mask, aggregate, None)
    assert torch.equal(dirty_loss, loss)
    for name, value in rl.mean_metrics(metrics).items():
        assert torch.equal(rl.mean_metrics(dirty_metrics)[name], value)
    gradients = torch.autograd.grad(loss, clean[0])[0]
    dirty_gradients = torch.autograd.grad(dirty_loss, dirty[0])[0]
    assert torch.equal(dirty_gradients, gradients)
    assert bool((dirty_gradients[~mask] == 0).all())
    assert torch.equal(rl.normalize(dirty[1].detach(), mask), rl.normalize(clean[1].detach(), mask))


@quick
@given(batches())
def test_only_the_trained_policy_and_critic_get_a_gradient(
    batch: tuple[list[Tensor], Tensor, list[Tensor]],
) -> None:
    tensors, mask, _ = batch
    tensors = [t.requires_grad_() for t in tensors]
    loss, metrics = total_loss(tensors, mask, rl.token_mean, None)
    gradients = torch.autograd.grad(loss, tensors, allow_unused=True)
    assert all(g is None for g in gradients[1:])
    assert not any(part.requires_grad for pair in metrics.values() for part in pair)


@quick
@given(batches(), st.floats(-100, 100), st.floats(0.1, 10))
def test_statistics_do_not_depend_on_the_ranks(
    run_on_ranks: Callable,
    batch: tuple[list[Tensor], Tensor, list[Tensor]],
    shift: float,
    scale: float,
) -> None:
    (x, y, *_), mask, parts = batch
    x = x * scale + shift
    whole = rl.masked_moments(x, mask)
    if int(mask.sum()) > 0:
        close(whole.mean, x[mask].mean())
        close(whole.variance(ddof=0), x[mask].var(correction=0))

    def work(rank: int, reduce: rl.Reduce) -> Tensor:
        return rl.normalize(x[parts[rank]], mask[parts[rank]], reduce)

    for rows, part in zip(parts, run_on_ranks(work, len(parts)), strict=True):
        close(part, rl.normalize(x, mask)[rows])
    sums = torch.stack([rl.masked_sums(x[rows], mask[rows]) for rows in parts]).sum(0)
    close(rl.moments_from_sums(sums).variance(ddof=1), whole.variance(ddof=1), rtol=1e-6)
    explained = rl.explained_variance(y, x, mask)
    if int(mask.sum()) < 2:
        assert bool(explained.isnan())
    else:
        close(explained, 1 - (x - y)[mask].var() / x[mask].var(), rtol=1e-6)


@quick
@given(
    st.floats(-1e12, 1e12),
    st.integers(2, 50),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(1, 3),
)
def test_a_constant_has_no_spread(
    constant: float, n: int, dtype: torch.dtype, group_count: int
) -> None:
    x = torch.full((n,), constant, dtype=dtype)
    mask = torch.ones(n, dtype=torch.bool)
    assert rl.normalize(x, mask).tolist() == [0.0] * n
    assert float(rl.masked_moments(x, mask).variance(ddof=0)) == 0
    assert bool(rl.explained_variance(x + 1, x, mask).isnan())
    groups = rl.grpo_advantages(x.repeat(group_count), n)
    assert groups.advantages.tolist() == [0.0] * n * group_count
    assert float(groups.equal_groups.total) == group_count
    whitened = rl.reinforce_pp_advantages(x, mask.unsqueeze(1)).advantages
    assert whitened.flatten().tolist() == [0.0] * n


@quick
@given(st.integers(1, 6), st.integers(1, 4), seeds, st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_sum_of_discounted_residuals(
    steps: int, environments: int, seed: int, gamma: float, lam: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    shape = (steps, environments)
    rewards = torch.randn(*shape, generator=g, dtype=torch.float64)
    final = torch.randn(*shape, generator=g, dtype=torch.float64)
    values = torch.randn(steps + 1, environments, generator=g, dtype=torch.float64)
    terminated = torch.rand(*shape, generator=g) < 0.2
    truncated = torch.rand(*shape, generator=g) < 0.2
    got = rl.gae(rewards, values, terminated, truncated, final, gamma=gamma, lam=lam)
    for n in range(environments):
        for t in range(steps):
            want, weight = 0.0, 1.0
            for s in range(t, steps):  # Eq. 16, forward and written out
                ends = bool(terminated[s, n] | truncated[s, n])
                after = final[s, n] if truncated[s, n] else values[s + 1, n]
                after = 0.0 if terminated[s, n] else float(after)
                want += weight * (float(rewards[s, n]) + gamma * after - float(values[s, n]))
                weight *= gamma * lam
                if ends:
                    break
            assert math.isclose(float(got.advantages[t, n]), want, rel_tol=1e-9, abs_tol=1e-9)
    close(got.returns, got.advantages + values[:-1])


@quick
@given(st.integers(1, 4), st.integers(1, 6), seeds, st.floats(0, 1), st.floats(0, 1))
def test_token_gae_steps_over_gaps(
    rows: int, length: int, seed: int, gamma: float, lam: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, length, generator=g) < 0.6
    values = torch.randn(rows, length, generator=g, dtype=torch.float64)
    scores = torch.randn(rows, generator=g, dtype=torch.float64)
    kl = torch.rand(rows, length, generator=g, dtype=torch.float64)
    rewards = rl.token_rewards(scores, mask, kl=kl, beta=0.1)
    dirty = torch.where(mask, values, math.nan)
    got = rl.token_gae(rewards, dirty, mask, gamma=gamma, lam=lam)
    for row in range(rows):
        keep = mask[row]
        squeezed = rl.token_gae(
            rewards[row, keep].unsqueeze(0),
            values[row, keep].unsqueeze(0),
            torch.ones(1, int(keep.sum()), dtype=torch.bool),
            gamma=gamma,
            lam=lam,
        )
        close(got.advantages[row, keep], squeezed.advantages[0])
        close(got.returns[row, keep], squeezed.returns[0])
        assert bool((got.advantages[row, ~keep] == 0).all())
        assert bool((got.returns[row, ~keep] == 0).all())


@quick
@given(st.integers(1, 4), st.integers(2, 6), seeds, st.floats(-5, 5), st.floats(0.5, 5))
def test_group_advantages_are_relative(
    groups: int, size: int, seed: int, shift: float, scale: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    rewards = torch.randn(groups * size, generator=g, dtype=torch.float64)
    advantages = rl.grpo_advantages(rewards, size).advantages
    close(advantages.reshape(groups, size).sum(1), torch.zeros(groups, dtype=torch.float64))
    moved = rl.grpo_advantages(rewards * scale + shift, size).advantages
    torch.testing.assert_close(moved, advantages, rtol=1e-3, atol=1e-4)
    assert float(advantages.abs().max()) <= (size - 1) / math.sqrt(size) + 1e-9
    centred = rl.grpo_advantages(rewards, size, divide_by_std=False).advantages
    close(centred, rl.center_on_group(rewards, size))


@quick
@given(seeds, st.integers(2, 7), st.floats(0.2, 5))
def test_categorical_numbers_agree_with_probabilities(
    seed: int, words: int, temperature: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(3, words, generator=g, dtype=torch.float64)
    logits[:, 0] = -math.inf
    tokens = torch.randint(1, words, (3,), generator=g)
    p = torch.softmax(logits / temperature, -1)
    logprobs = rl.categorical_logprobs(logits, tokens, temperature=temperature)
    close(logprobs.exp(), p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1))
    logits.requires_grad_()
    entropy = rl.categorical_entropy(logits, temperature=temperature)
    close(entropy, torch.special.entr(p).sum(-1))
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    assert bool(torch.isfinite(gradient).all())
    assert bool((gradient[:, 0] == 0).all())


@quick
@given(seeds)
def test_k3_is_never_negative_and_keeps_small_differences(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a, b = 10 * torch.randn(2, 20, generator=g)
    assert bool((rl.k3(a, b) >= 0).all())
    small = torch.tensor([1e-4], dtype=torch.float32)
    torch.testing.assert_close(
        rl.k3(torch.zeros(1), small), small.square() / 2, rtol=1e-3, atol=0.0
    )
