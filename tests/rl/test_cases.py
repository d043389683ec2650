"""The numeric cases from the field, n01-n11, and those of episodes that are pure functions."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rlinf_core import rl
from rlinf_core.errors import RLInputError

NAN, INF = math.nan, math.inf
CLIP = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}


def uneven_mask(rows: int = 4, length: int = 6) -> Tensor:
    """Rows of 6, 1, 3 and 4 valid tokens, and so on."""
    lengths = torch.tensor([6, 1, 3, 4] * rows)[:rows]
    return torch.arange(length) < lengths.unsqueeze(1)


def draws(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


Loss = Callable[..., tuple[Tensor, rl.Metrics]]


def all_losses(rows: int, aggregate: rl.Aggregate, length: int = 6) -> dict[str, Loss]:
    """Each loss as ``loss(theta, mask, rows, count)``, theta being what carries the gradient."""
    a, b, c = (draws(rows, length, seed=s) for s in (1, 2, 3))

    def ppo(theta: Tensor, mask: Tensor, at: slice, count: rl.Count) -> tuple[Tensor, rl.Metrics]:
        return rl.ppo_loss(theta, a[at], b[at], mask, **CLIP, aggregate=aggregate, count=count)

    def decoupled(
        theta: Tensor, mask: Tensor, at: slice, count: rl.Count
    ) -> tuple[Tensor, rl.Metrics]:
        return rl.decoupled_ppo_loss(
            theta, a[at], c[at], b[at], mask, **CLIP, aggregate=aggregate, count=count
        )

    def value(theta: Tensor, mask: Tensor, at: slice, count: rl.Count) -> tuple[Tensor, rl.Metrics]:
        options = {"value_clip": 0.3, "huber_delta": 0.8}
        return rl.value_loss(theta, a[at], b[at], mask, **options, aggregate=aggregate, count=count)

    def entropy(
        theta: Tensor, mask: Tensor, at: slice, count: rl.Count
    ) -> tuple[Tensor, rl.Metrics]:
        return rl.entropy_loss(theta, mask, aggregate=aggregate, count=count)

    def kl(theta: Tensor, mask: Tensor, at: slice, count: rl.Count) -> tuple[Tensor, rl.Metrics]:
        return rl.kl_loss(theta, a[at], mask, estimator="k3", aggregate=aggregate, count=count)

    return {"ppo": ppo, "decoupled": decoupled, "value": value, "entropy": entropy, "kl": kl}


AGGREGATIONS = {
    "token_mean": rl.token_mean,
    "seq_mean_token_sum": rl.seq_mean_token_sum,
    "seq_mean_token_mean": rl.seq_mean_token_mean,
}
LOSSES = ("ppo", "decoupled", "value", "entropy", "kl")


def test_case_n01_only_the_time_limit_bootstraps() -> None:
    rewards = torch.tensor([[1.0, 1.0]])
    terminated, truncated = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    final_values = torch.tensor([[5.0, 5.0]])
    values = torch.tensor([[0.5, 0.5], [99.0, 99.0]])
    result = rl.gae(rewards, values, terminated, truncated, final_values, gamma=0.9, lam=0.95)
    torch.testing.assert_close(result.returns, torch.tensor([[1.0, 1.0 + 0.9 * 5.0]]))
    torch.testing.assert_close(result.advantages, torch.tensor([[0.5, 5.0]]))


@pytest.mark.parametrize("loss_name", LOSSES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_case_n02_gradients_do_not_depend_on_the_micro_batch(
    micro_batches: Callable, loss_name: str, aggregation: str, size: int
) -> None:
    aggregate, mask = AGGREGATIONS[aggregation], uneven_mask()
    loss_fn = all_losses(4, aggregate)[loss_name]
    whole = draws(4, 6).requires_grad_()
    loss, metrics = loss_fn(whole, mask, slice(None), None)
    loss.backward()

    theta, total, parts = draws(4, 6).requires_grad_(), torch.zeros(()), []
    count = aggregate(mask.double(), mask).n
    for at in micro_batches(4, size):
        share, part = loss_fn(theta[at], mask[at], at, count)
        share.backward()  # gradients are added, nothing else
        total, parts = total + share.detach(), [*parts, part]
    torch.testing.assert_close(total, loss.detach(), rtol=1e-12, atol=1e-12, check_dtype=False)
    torch.testing.assert_close(theta.grad, whole.grad, rtol=1e-12, atol=1e-12)
    merged, once = rl.mean_metrics(rl.merge_metrics(parts)), rl.mean_metrics(metrics)
    assert merged.keys() == once.keys()
    for name in once:
        torch.testing.assert_close(merged[name], once[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss_name", LOSSES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_case_n02_gradients_do_not_depend_on_the_number_of_ranks(
    run_on_ranks: Callable, loss_name: str, aggregation: str
) -> None:
    aggregate, mask = AGGREGATIONS[aggregation], uneven_mask()
    loss_fn = all_losses(4, aggregate)[loss_name]

    def train(parts: int) -> list[Tensor]:
        def work(rank: int, reduce: rl.Reduce) -> Tensor:
            at = slice(rank * 4 // parts, (rank + 1) * 4 // parts)
            theta = draws(4, 6).requires_grad_()
            count = reduce(aggregate(mask[at].double(), mask[at]).n)
            loss_fn(theta[at], mask[at], at, count)[0].backward()
            assert theta.grad is not None
            return reduce(theta.grad)

        return run_on_ranks(work, parts)

    (alone,) = train(1)
    for gradient in train(2):
        torch.testing.assert_close(gradient, alone, rtol=1e-12, atol=1e-12)


def test_case_n02_a_batch_of_ranks_without_valid_steps_has_no_gradient() -> None:
    for loss_fn in all_losses(4, rl.token_mean).values():
        theta = draws(4, 6).requires_grad_()
        loss, _ = loss_fn(theta, torch.zeros(4, 6, dtype=torch.bool), slice(None), 0)
        loss.backward()
        assert float(loss.detach()) == 0
        assert theta.grad is not None
        assert bool((theta.grad == 0).all())


def test_case_n03_entropy_bonus_of_a_batch_of_8_is_the_plain_mean() -> None:
    entropy = draws(8)
    loss, metrics = rl.entropy_loss(entropy, torch.ones(8, dtype=torch.bool))
    assert float(loss) == pytest.approx(-float(entropy.mean()), abs=1e-15)
    assert float(rl.mean_metrics(metrics)["entropy"]) == pytest.approx(float(entropy.mean()))


def test_case_n03_tensors_of_different_rank_are_refused() -> None:
    flat, column = draws(8), draws(8, 1)
    mask, mask_column = flat < 99, column < 99
    option = {"value_clip": 0.2, "huber_delta": 1.0}
    ended = torch.zeros(3, 2, dtype=torch.bool)
    steps = torch.zeros(3, 2)
    calls: list[Callable[[], object]] = [
        lambda: rl.entropy_loss(flat, mask_column),
        lambda: rl.ppo_loss(flat, flat, column, mask, **CLIP),
        lambda: rl.ppo_loss(flat, column, flat, mask, **CLIP),
        lambda: rl.ppo_loss(flat, flat, flat, mask_column, **CLIP),
        lambda: rl.decoupled_ppo_loss(flat, flat, column, flat, mask, **CLIP),
        lambda: rl.interpolate_proximal(flat, flat, column),
        lambda: rl.value_loss(flat, flat, column, mask, **option),
        lambda: rl.value_loss(flat, column, flat, mask, **option),
        lambda: rl.kl_loss(flat, column, mask, estimator="k1"),
        lambda: rl.k3(flat, column),
        lambda: rl.masked_sum(flat, mask_column),
        lambda: rl.token_mean(column, mask),
        lambda: rl.normalize(flat, mask_column),
        lambda: rl.explained_variance(flat, column, mask),
        lambda: rl.gaussian_logprobs(flat, flat, column),
        lambda: rl.categorical_logprobs(draws(8, 5), torch.zeros(8, 1, dtype=torch.int64)),
        lambda: rl.grpo_advantages(column, 2),
        lambda: rl.grpo_advantages(flat, 2, mask_column),
        lambda: rl.gae(steps, steps, ended, ended, steps, gamma=1.0, lam=1.0),
        lambda: rl.gae(steps[0], draws(3), ended[0], ended[0], steps[0], gamma=1.0, lam=1.0),
        lambda: rl.token_gae(flat, flat, mask, gamma=1.0, lam=1.0),
        lambda: rl.token_rewards(column, mask_column),
        lambda: rl.token_rewards(flat[:3], mask_column),
        lambda: rl.seq_mean_token_sum(flat, mask),
        lambda: rl.seq_mean_token_mean(flat, mask),
        lambda: rl.expand_trailing(draws(3), draws(8, 3)),
        lambda: rl.trajectory_to_steps(draws(3), mask_column, dim=0),
    ]
    for call in calls:
        with pytest.raises(RLInputError):
            call()


def test_case_n03_the_refusal_names_both_shapes_and_the_way_out() -> None:
    with pytest.raises(RLInputError, match=r"\[8, 1\].*\[8\].*expand_trailing"):
        rl.ppo_loss(draws(8), draws(8), draws(8, 1), draws(8) < 99, **CLIP)


def test_case_n03_masks_and_flags_must_be_boolean() -> None:
    steps, ended = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    with pytest.raises(RLInputError, match=r"mask has dtype torch\.float32"):
        rl.masked_sum(torch.ones(3), torch.ones(3))
    with pytest.raises(RLInputError, match="terminated has dtype"):
        rl.gae(steps, torch.zeros(4, 2), steps, ended, steps, gamma=1.0, lam=1.0)
    with pytest.raises(RLInputError, match="dones has dtype"):
        rl.valid_until_done(torch.zeros(1, 2, 3))


def test_case_n04_nan_under_the_mask_changes_nothing() -> None:
    dirty = {
        "logprobs": torch.tensor([-0.5, NAN], requires_grad=True),
        "old_logprobs": torch.tensor([0.0, NAN]),
        "advantages": torch.tensor([1.5, INF]),
    }
    clean = {name: tensor.detach()[:1].requires_grad_() for name, tensor in dirty.items()}
    loss, metrics = rl.ppo_loss(**dirty, mask=torch.tensor([True, False]), **CLIP)
    want, want_metrics = rl.ppo_loss(**clean, mask=torch.tensor([True]), **CLIP)
    assert float(loss.detach()) == float(want.detach())
    assert {n: float(m) for n, m in rl.mean_metrics(metrics).items()} == {
        n: float(m) for n, m in rl.mean_metrics(want_metrics).items()
    }
    loss.backward()
    want.backward()
    gradient, want_gradient = dirty["logprobs"].grad, clean["logprobs"].grad
    assert gradient is not None
    assert want_gradient is not None
    assert gradient.tolist() == [float(want_gradient), 0.0]

    ref = torch.tensor([-1.0, NAN])
    kl, kl_metrics = rl.kl_loss(dirty["logprobs"], ref, torch.tensor([True, False]), estimator="k1")
    assert float(kl.detach()) == 0.5
    assert float(rl.mean_metrics(kl_metrics)["kl"]) == 0.5


def test_case_n05_equal_rewards_give_zero_advantages_and_are_counted() -> None:
    rewards = torch.tensor([0.3, 0.3, 0.3, 0.3, 1.0, 0.0, 0.0, 0.0])
    result = rl.grpo_advantages(rewards, 4)
    assert result.advantages[:4].tolist() == [0.0] * 4
    assert float(result.equal_groups.total) == 1
    assert float(result.equal_groups.n) == 2
    torch.testing.assert_close(result.advantages[4:], torch.tensor([1.5, -0.5, -0.5, -0.5]))
    eight = rl.grpo_advantages(torch.tensor([0.0] + [0.95] * 7), 8).advantages
    assert 2 < float(eight.abs().max()) < 3


def test_case_n06_a_group_of_one_is_refused() -> None:
    for function in (
        rl.grpo_advantages,
        rl.center_on_group,
        functools.partial(rl.filter_groups, lower=0.0, upper=1.0),
    ):
        with pytest.raises(RLInputError, match="group_size is 1"):
            function(torch.ones(3), 1)


def test_case_n07_a_response_of_length_zero_contributes_nothing() -> None:
    mask = uneven_mask()
    with_empty = torch.cat([mask, torch.zeros(2, 6, dtype=torch.bool)])
    junk = torch.full((2, 6), NAN, dtype=torch.float64)
    values = draws(4, 6)
    padded = torch.cat([values, junk])
    for aggregate in AGGREGATIONS.values():
        torch.testing.assert_close(
            aggregate(padded, with_empty).over(), aggregate(values, mask).over()
        )
    torch.testing.assert_close(
        rl.normalize(padded, with_empty)[:4], rl.normalize(values, mask), rtol=0, atol=0
    )

    scores = torch.tensor([1.0, 0.0, 0.5, 0.25], dtype=torch.float64)
    extra = torch.cat([scores, torch.tensor([1e9, NAN], dtype=torch.float64)])
    want = rl.reinforce_pp_advantages(scores, mask)
    got = rl.reinforce_pp_advantages(extra, with_empty)
    torch.testing.assert_close(got.advantages[:4], want.advantages, rtol=0, atol=0)
    assert bool((got.advantages[4:] == 0).all())
    assert bool((got.returns[4:] == 0).all())

    gae = rl.token_gae(
        rl.token_rewards(extra, with_empty), padded, with_empty, gamma=0.99, lam=0.95
    )
    assert bool((gae.advantages[4:] == 0).all())
    assert bool((gae.returns[4:] == 0).all())

    not_empty = torch.tensor([True, True, True, False])
    group = rl.grpo_advantages(torch.tensor([1.0, 0.0, 0.5, 7.0]), 4, not_empty).advantages
    three = torch.tensor([1.0, 0.0, 0.5])
    torch.testing.assert_close(group[:3], (three - 0.5) / (three.std() + 1e-6))
    assert float(group[3]) == 0
    centred = rl.center_on_group(torch.tensor([1.0, 0.0, 0.5, NAN]), 4, not_empty)
    torch.testing.assert_close(centred, torch.tensor([0.5, -0.5, 0.0, 0.0]))
    nobody = torch.tensor([False] * 4)
    alone = rl.grpo_advantages(torch.full((4,), NAN), 4, nobody)
    assert alone.advantages.tolist() == [0.0] * 4
    assert float(alone.equal_groups.n) == 0
    kept = rl.filter_groups(torch.full((4,), NAN), 4, nobody, lower=-1.0, upper=1.0)
    assert kept.keep.tolist() == [False]
    mean = rl.filter_groups(torch.tensor([1.0, 0.0, 0.5, 7.0]), 4, not_empty, lower=0.0, upper=1.0)
    assert mean.mean.tolist() == [0.5]
    baseline = rl.reinforce_pp_baseline_advantages(
        torch.tensor([1.0, 0.0, NAN, 0.5]),
        mask[[0, 1, 1, 2]] & torch.tensor([[1], [1], [0], [1]]).bool(),
        4,
    )
    assert bool(torch.isfinite(baseline.advantages).all())
    torch.testing.assert_close(baseline.returns[:, 0], torch.tensor([0.5, -0.5, 0.0, 0.0]))


def test_case_n08_kl_estimators_against_hand_computed_values() -> None:
    logp = torch.tensor([math.log(0.5), math.log(0.2)], dtype=torch.float64)
    ref = torch.tensor([math.log(0.25), math.log(0.4)], dtype=torch.float64)
    ln2 = math.log(2.0)
    want = {
        "k1": [ln2, -ln2],
        "abs": [ln2, ln2],
        "k2": [ln2 * ln2 / 2, ln2 * ln2 / 2],
        "k3": [0.5 + ln2 - 1, 2 - ln2 - 1],
    }
    assert want.keys() == rl.ESTIMATORS.keys()
    mask = torch.tensor([True, True])
    for name, numbers in want.items():
        assert rl.ESTIMATORS[name](logp, ref).tolist() == pytest.approx(numbers, abs=1e-14)
        loss, _ = rl.kl_loss(logp, ref, mask, estimator=name)
        assert float(loss) == pytest.approx(sum(numbers) / 2, abs=1e-14)


def test_case_n08_k1_is_positive_where_the_policy_is_likelier_than_the_reference() -> None:
    assert float(rl.k1(torch.tensor(-1.0), torch.tensor(-3.0))) == 2.0
    assert float(rl.k1(torch.tensor(-3.0), torch.tensor(-1.0))) == -2.0


def test_case_n08_the_logged_approx_kl_is_positive_where_the_new_policy_is_less_likely() -> None:
    old, new, mask = torch.tensor([-1.0]), torch.tensor([-1.5]), torch.tensor([True])
    _, metrics = rl.ppo_loss(new, old, torch.ones(1), mask, **CLIP)
    assert float(rl.mean_metrics(metrics)["approx_kl"]) == 0.5
    assert float(rl.k1(old, new)) == 0.5
    _, metrics = rl.decoupled_ppo_loss(new, torch.tensor([-3.0]), old, torch.ones(1), mask, **CLIP)
    means = rl.mean_metrics(metrics)
    assert float(means["proximal_kl"]) == 0.5
    assert float(means["behav_kl"]) == -2.0


def test_case_n09_an_unknown_keyword_fails() -> None:
    x, mask = torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(TypeError, match="clip_ratio"):
        rl.ppo_loss(x, x, x, mask, **CLIP, clip_ratio=0.2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="loss_mask"):
        rl.value_loss(x, x, x, value_clip=1.0, huber_delta=1.0, loss_mask=mask)  # type: ignore[call-arg]
    for function in (
        rl.ppo_loss,
        rl.ppo_terms,
        rl.decoupled_ppo_loss,
        rl.value_loss,
        rl.entropy_loss,
        rl.kl_loss,
    ):
        kinds = {p.kind for p in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
        assert inspect.Parameter.VAR_POSITIONAL not in kinds
    with pytest.raises(RLInputError, match="k4"):
        rl.kl_loss(x, x, mask, estimator="k4")  # type: ignore[arg-type]
    with pytest.raises(RLInputError, match="step"):
        rl.aggregate_logprob(torch.zeros(1, 2, 3), "step")  # type: ignore[arg-type]


def test_case_n09_dual_clip_changes_the_number_when_it_should() -> None:
    old, mask = torch.zeros(1, dtype=torch.float64), torch.tensor([True])
    grown = torch.tensor([math.log(10.0)], dtype=torch.float64)

    def loss(logp: Tensor, advantage: float, dual_clip: float | None) -> float:
        advantages = torch.tensor([advantage], dtype=torch.float64)
        options = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": dual_clip}
        return float(rl.ppo_loss(logp, old, advantages, mask, **options)[0])

    assert loss(grown, -1.0, None) == pytest.approx(10.0)
    assert loss(grown, -1.0, 3.0) == pytest.approx(3.0)
    assert loss(grown, +1.0, 3.0) == loss(grown, +1.0, None) == pytest.approx(-1.2)
    assert loss(-grown, -1.0, 3.0) == loss(-grown, -1.0, None) == pytest.approx(0.8)


def test_case_n10_statistics_ignore_masked_slots() -> None:
    x, mask = draws(4, 6), uneven_mask()
    clean = rl.normalize(x, mask)
    for outlier in (1e30, -1e30, NAN, INF):
        assert torch.equal(rl.normalize(torch.where(mask, x, outlier), mask), clean)
    valid = x[mask]
    want = (valid - valid.mean()) / (valid.std() + 1e-5)
    torch.testing.assert_close(clean[mask], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_case_n10_statistics_are_global_over_ranks(run_on_ranks: Callable, size: int) -> None:
    x, mask, scores = draws(4, 6), uneven_mask(), draws(4, seed=9)
    values = draws(4, 6, seed=5)
    rows = [slice(r * 4 // size, (r + 1) * 4 // size) for r in range(size)]

    def work(rank: int, reduce: rl.Reduce) -> tuple[Tensor, Tensor, Tensor]:
        at = rows[rank]
        return (
            rl.normalize(x[at], mask[at], reduce),
            rl.reinforce_pp_advantages(scores[at], mask[at], reduce=reduce).advantages,
            rl.explained_variance(values[at], x[at], mask[at], reduce).reshape(1),
        )

    normalized, reinforce, explained = (
        torch.cat(p) for p in zip(*run_on_ranks(work, size), strict=True)
    )
    close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    close(normalized, rl.normalize(x, mask))
    close(reinforce, rl.reinforce_pp_advantages(scores, mask).advantages)
    close(explained, rl.explained_variance(values, x, mask).expand(size))
    baseline = torch.cat(
        run_on_ranks(
            lambda rank, reduce: (
                rl.reinforce_pp_baseline_advantages(
                    scores[2 * rank : 2 * rank + 2], mask[2 * rank : 2 * rank + 2], 2, reduce=reduce
                ).advantages
            ),
            2,
        )
    )
    close(baseline, rl.reinforce_pp_baseline_advantages(scores, mask, 2).advantages)


def test_case_n10_statistics_are_global_over_micro_batches(micro_batches: Callable) -> None:
    x, mask = draws(4, 6), uneven_mask()
    for size in (1, 2, 4):
        parts = micro_batches(4, size)
        sums = torch.stack([rl.masked_sums(x[at], mask[at]) for at in parts]).sum(0)
        moments = rl.moments_from_sums(sums)
        pieces = torch.cat([rl.standardize(x[at], mask[at], moments) for at in parts])
        torch.testing.assert_close(pieces, rl.normalize(x, mask), rtol=1e-12, atol=1e-12)


def test_case_n11_a_piece_that_splits_a_group_is_refused() -> None:
    rewards, mask = draws(12), torch.ones(12, 3, dtype=torch.bool)
    for piece in (rewards[:6], rewards[4:11], rewards[:1]):
        for function in (
            rl.grpo_advantages,
            rl.center_on_group,
            functools.partial(rl.filter_groups, lower=0.0, upper=1.0),
        ):
            with pytest.raises(RLInputError, match="never split"):
                function(piece, 4)
    with pytest.raises(RLInputError, match="never split"):
        rl.reinforce_pp_baseline_advantages(rewards[:6], mask[:6], 4)


def test_case_n11_whole_groups_may_be_streamed_apart() -> None:
    rewards = draws(12)
    whole = rl.grpo_advantages(rewards, 4).advantages
    pieces = [rl.grpo_advantages(rewards[i : i + 4], 4).advantages for i in (0, 4, 8)]
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=0, atol=0)
    kept = rl.filter_groups(rewards, 4, lower=-0.2, upper=0.2)
    assert kept.keep_rows.reshape(3, 4).unique(dim=1).shape == (3, 1)


def test_case_e03_steps_after_done_in_a_chunk_earn_nothing() -> None:
    dones = torch.zeros(2, 1, 5, dtype=torch.bool)
    dones[0, 0, 1] = True
    rewards = torch.tensor([[[1.0, 2.0, 4.0, 8.0, NAN]], [[16.0] * 5]])
    stays = rl.valid_until_done(dones)
    assert stays[:, 0].tolist() == [[True, True, False, False, False], [False] * 5]
    assert rl.chunk_rewards(rewards, stays).tolist() == [[3.0], [0.0]]
    resets = rl.valid_within_chunk(dones)
    assert resets[:, 0].tolist() == [[True, True, False, False, False], [True] * 5]
    assert rl.chunk_rewards(rewards, resets).tolist() == [[3.0], [80.0]]


def test_case_e03_a_flag_behind_the_end_of_the_chunk_is_dropped() -> None:
    terminated, truncated = torch.zeros(1, 1, 5).bool(), torch.zeros(1, 1, 5).bool()
    truncated[0, 0, 1] = True
    terminated[0, 0, 3] = True
    valid = rl.valid_within_chunk(terminated | truncated)
    assert rl.chunk_flags(truncated, valid).item() is True
    assert rl.chunk_flags(terminated, valid).item() is False


@pytest.mark.parametrize("level", ["token", "action", "chunk"])
def test_case_e08_padded_actions_never_train(level: rl.Level) -> None:
    executed = torch.tensor([[True, True, False], [True, True, True]])
    logprobs = draws(2, 3, 4)
    logprobs[0, 2] = NAN
    logprobs.requires_grad_()
    old = draws(2, 3, 4, seed=1)
    new_at_level = rl.aggregate_logprob(logprobs, level, executed)
    old_at_level = rl.aggregate_logprob(old, level, executed)
    mask = {
        "token": rl.expand_trailing(executed, logprobs),
        "action": executed,
        "chunk": executed.any(-1),
    }[level]
    advantages = rl.expand_trailing(torch.tensor([1.0, -1.0]), new_at_level)
    loss, _ = rl.ppo_loss(new_at_level, old_at_level, advantages, mask, clip_low=0.9, clip_high=1e9)
    loss.backward()
    assert logprobs.grad is not None
    assert bool(torch.isfinite(loss.detach()))
    assert bool((logprobs.grad[0, 2] == 0).all())
    assert bool((logprobs.grad[executed] != 0).any())


def test_case_e08_a_mask_that_is_not_one_flag_per_action_is_refused() -> None:
    with pytest.raises(RLInputError, match="one flag per action"):
        rl.aggregate_logprob(draws(2, 3, 4), "chunk", torch.ones(2, dtype=torch.bool))
    with pytest.raises(TypeError, match="loss_mask"):
        rl.aggregate_logprob(draws(2, 3, 4), "chunk", loss_mask=None)  # type: ignore[call-arg]
