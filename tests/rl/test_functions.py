"""What the goldens and the cases leave open: refusals, limits, dtypes, and where gradients go."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
import torch

from rlinf_core import rl
from rlinf_core.errors import RLInputError
from rlinf_core.rl import masks

NAN, INF = math.nan, math.inf
TRUE, FALSE = torch.tensor([True]), torch.tensor([False])


def test_the_public_face_is_complete_and_sorted_by_kind() -> None:
    assert len(set(rl.__all__)) == len(rl.__all__)
    for name in rl.__all__:
        assert getattr(rl, name) is not None


def test_rl_imports_torch_numpy_and_errors_and_nothing_else() -> None:
    allowed = ("rlinf_core.rl", "rlinf_core.errors", "torch", "numpy")
    standard = {"__future__", "collections.abc", "math", "typing"}
    for file in Path(rl.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name in standard or name.startswith(allowed), f"{file.name}: {name}"


# --- masks ---------------------------------------------------------------------------------------


def test_mean_over_a_global_count_as_tensor_or_number() -> None:
    mean = rl.masked_mean(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
    assert float(mean.over()) == 1.5
    assert float(mean.over(6)) == 0.5
    assert float(mean.over(torch.tensor(6))) == 0.5
    assert float(mean.over(0)) == 3.0  # a sum of nothing is 0, so that no count of 0 divides
    assert mean.over(torch.tensor(6.0, dtype=torch.float64)).dtype == torch.float32


def test_sums_are_at_least_float32_and_along_a_dimension() -> None:
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert rl.masked_sum(x, mask).dtype == torch.float32
    assert rl.masked_sum(x, mask, dim=1).tolist() == [2.0, 0.0]
    many = torch.ones(70_000, dtype=torch.bfloat16)
    assert float(rl.masked_mean(many, many > 0).n) == 70_000
    assert float(rl.masked_sum(many, many > 0)) == 70_000


def test_require_finite_names_the_entry_and_reads_only_valid_ones() -> None:
    x, mask = torch.tensor([[0.0, NAN], [INF, 1.0]]), torch.tensor([[True, False], [True, True]])
    with pytest.raises(RLInputError, match=r"reward\[1, 0\] is inf and 1 of 3"):
        masks.require_finite("reward", x, mask)
    masks.require_finite("reward", x, ~mask & (x == 0))


def test_where_valid_fills_and_expand_trailing_repeats() -> None:
    x, mask = torch.tensor([1.0, NAN]), torch.tensor([True, False])
    assert rl.where_valid(x, mask, 7.0).tolist() == [1.0, 7.0]
    assert rl.expand_trailing(torch.tensor([1, 2]), torch.zeros(2, 2, 1)).tolist() == [
        [[1], [1]],
        [[2], [2]],
    ]


# --- statistics ----------------------------------------------------------------------------------


def test_normalize_keeps_digits_of_large_float32_numbers() -> None:
    x = torch.tensor([1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3])
    got = rl.normalize(x, torch.ones(4, dtype=torch.bool))
    want = rl.normalize(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.ones(4, dtype=torch.bool))
    torch.testing.assert_close(got, want)
    assert got.dtype == torch.float32


def test_a_small_spread_around_a_large_mean_is_kept() -> None:
    x = torch.tensor([1e9, 1e9 + 1], dtype=torch.float64)
    got = rl.normalize(x, torch.tensor([True, True]))
    torch.testing.assert_close(got[1], torch.tensor(0.5 / (math.sqrt(0.5) + 1e-5)).double())


def test_nan_at_a_valid_position_is_not_hidden() -> None:
    x, mask = torch.tensor([1.0, NAN, 3.0]), torch.ones(3, dtype=torch.bool)
    assert bool(rl.normalize(x, mask).isnan().any())
    assert bool(rl.explained_variance(x, torch.tensor([1.0, 2.0, 3.0]), mask).isnan())


def test_reduce_is_called_by_every_rank_also_by_an_empty_one() -> None:
    calls = []

    def reduce(part: torch.Tensor) -> torch.Tensor:
        calls.append(part)
        return part

    rl.normalize(torch.zeros(2), torch.zeros(2, dtype=torch.bool), reduce)
    assert [tuple(part.shape) for part in calls] == [(2,), (1,)]
    assert all(part.dtype == torch.float64 for part in calls)


def test_sums_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(RLInputError, match=r"\[2\]"):
        rl.moments_from_sums(torch.zeros(2))


# --- advantages ----------------------------------------------------------------------------------


def gae_inputs(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    inputs = {
        "rewards": torch.ones(2, 2),
        "values": torch.zeros(3, 2),
        "terminated": torch.tensor([[False, True], [False, False]]),
        "truncated": torch.tensor([[True, False], [False, False]]),
        "final_values": torch.tensor([[2.0, NAN], [NAN, NAN]]),
        "mask": torch.ones(2, 2, dtype=torch.bool),
    }
    return inputs | changes


@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        ("rewards", (1, 0), "rewards[1, 0] is nan"),
        ("values", (0, 1), "values[0, 1] is nan"),
        ("values", (2, 1), "the last row of values[1] is nan"),
        ("final_values", (0, 0), "final_values[0, 0] is nan"),
    ],
)
def test_gae_refuses_what_would_spread(name: str, at: tuple[int, int], words: str) -> None:
    rl.gae(**gae_inputs(), gamma=0.9, lam=0.9)
    spoilt = gae_inputs()
    spoilt[name][at] = NAN
    with pytest.raises(RLInputError) as refusal:
        rl.gae(**spoilt, gamma=0.9, lam=0.9)
    assert words in str(refusal.value)


def test_gae_needs_no_final_value_where_termination_wins() -> None:
    inputs = gae_inputs(truncated=torch.tensor([[True, True], [False, False]]))
    result = rl.gae(**inputs, gamma=0.5, lam=0.9)
    assert result.returns[0].tolist() == [2.0, 1.0]


def test_gae_does_not_read_what_no_valid_row_needs() -> None:
    inputs = gae_inputs(mask=torch.tensor([[True, True], [False, False]]))
    inputs["rewards"][1], inputs["values"][1], inputs["values"][2] = NAN, NAN, NAN
    result = rl.gae(**inputs, gamma=0.5, lam=0.9)
    assert result.advantages.tolist() == [[2.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(("gamma", "lam"), [(1.1, 0.9), (0.9, -0.1), (NAN, 0.9)])
def test_gae_refuses_rates_out_of_range(gamma: float, lam: float) -> None:
    with pytest.raises(RLInputError, match="must lie in"):
        rl.gae(**gae_inputs(), gamma=gamma, lam=lam)


def test_advantages_are_at_least_float32_whatever_the_critic_and_the_rewards_are() -> None:
    coarse = gae_inputs(values=torch.full((3, 2), 1 / 3, dtype=torch.bfloat16))
    exact = coarse | {"values": coarse["values"].float()}
    got = rl.gae(**coarse, gamma=0.9, lam=0.9)
    torch.testing.assert_close(got, rl.gae(**exact, gamma=0.9, lam=0.9), rtol=0, atol=0)
    assert got.returns.dtype == torch.float32
    counted = rl.critic_free_returns(torch.tensor([[1], [2]]), torch.tensor([[False], [True]]))
    assert counted.tolist() == [[3.0], [2.0]]


def test_advantages_carry_no_gradient() -> None:
    inputs = gae_inputs(values=torch.zeros(3, 2, requires_grad=True))
    assert not rl.gae(**inputs, gamma=0.9, lam=0.9).advantages.requires_grad


def test_critic_free_returns_discount_and_stop_at_the_mask() -> None:
    rewards = torch.tensor([[1.0, 1.0], [2.0, 1.0], [4.0, NAN]])
    ended = torch.tensor([[False, False], [False, True], [True, False]])
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    got = rl.critic_free_returns(rewards, ended, mask, gamma=0.5)
    assert got.tolist() == [[3.0, 1.5], [4.0, 1.0], [4.0, 0.0]]


def test_token_rewards_refusals() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(RLInputError, match="beta"):
        rl.token_rewards(torch.zeros(2), mask, beta=0.1)
    with pytest.raises(RLInputError, match=r"scores\[1\] is nan"):
        rl.token_rewards(torch.tensor([0.0, NAN]), mask)
    with pytest.raises(RLInputError, match=r"kl\[0, 0\] is nan"):
        rl.token_rewards(torch.zeros(2), mask, kl=torch.full((2, 3), NAN), beta=0.1)


def test_last_valid_is_found_behind_gaps() -> None:
    mask = torch.tensor([[False, True, False, True, False], [False] * 5])
    assert rl.last_valid(mask).tolist() == [[False, False, False, True, False], [False] * 5]


# --- chunks and groups ---------------------------------------------------------------------------


def test_steps_and_chunks_are_the_same_numbers() -> None:
    x = torch.arange(24).reshape(2, 3, 4)
    steps = rl.flatten_chunks(x)
    assert steps.shape == (8, 3)
    assert [steps[k * 4 + c, n] == x[k, n, c] for k in range(2) for n in range(3) for c in range(4)]
    assert torch.equal(steps[5], x[1, :, 1])
    assert torch.equal(rl.unflatten_steps(steps, 4), x)
    with pytest.raises(RLInputError, match="C = 3"):
        rl.unflatten_steps(steps, 3)


@pytest.mark.parametrize(
    "function",
    [rl.flatten_chunks, rl.valid_until_done, rl.valid_within_chunk],
)
def test_chunks_must_have_three_dimensions(function: object) -> None:
    with pytest.raises(RLInputError, match="chunks, environments, steps"):
        function(torch.zeros(2, 3, dtype=torch.bool))  # type: ignore[operator]


@pytest.mark.parametrize("function", [rl.chunk_rewards, rl.trajectory_scores, rl.chunk_flags])
def test_chunk_sums_must_have_three_dimensions(function: object) -> None:
    flat = torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(RLInputError, match="chunks, environments, steps"):
        function(flat, flat)  # type: ignore[operator]


def test_trajectory_to_steps_fills_only_valid_steps() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    assert rl.trajectory_to_steps(torch.tensor([1.0, 2.0]), mask, dim=0).tolist() == [
        [1.0, 0.0],
        [2.0, 2.0],
    ]
    assert rl.trajectory_to_steps(torch.tensor([1.0, 2.0]), mask, dim=1).tolist() == [
        [1.0, 0.0],
        [1.0, 2.0],
    ]


def test_a_group_is_equal_if_its_valid_members_are() -> None:
    rewards = torch.tensor([-1.0, -1.0, NAN, 1.0, 1.0, NAN])
    mask = torch.tensor([True, True, False] * 2)
    result = rl.grpo_advantages(rewards, 3, mask)
    assert result.advantages.tolist() == [0.0] * 6
    assert float(result.equal_groups.total) == 2


def test_rewards_may_be_integers() -> None:
    result = rl.grpo_advantages(torch.tensor([1, 0]), 2)
    assert result.advantages.dtype == torch.float32
    torch.testing.assert_close(result.advantages, torch.tensor([0.5, -0.5]) / math.sqrt(0.5))


def test_a_bound_that_float32_rounds_is_still_included() -> None:
    rewards = torch.tensor([0.1, 0.1, 0.7, 0.7])
    for bound, keep in ((0.1, [True, False]), (0.7, [False, True])):
        assert rl.filter_groups(rewards, 2, lower=bound, upper=bound).keep.tolist() == keep
    with pytest.raises(RLInputError, match="no group could be kept"):
        rl.filter_groups(rewards, 2, lower=0.7, upper=0.1)


# --- losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"clip_low": 1.0, "clip_high": 0.2},
        {"clip_low": -0.1, "clip_high": 0.2},
        {"clip_low": 0.2, "clip_high": -0.1},
        {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 1.0},
    ],
)
def test_ppo_refuses_clips_out_of_range(options: dict[str, float]) -> None:
    x = torch.zeros(1)
    with pytest.raises(RLInputError, match="clip"):
        rl.ppo_loss(x, x, x, TRUE, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log_ratio", [100.0, 1e4, -1e4])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_huge_ratio_leaves_loss_and_gradient_finite(
    dtype: torch.dtype, log_ratio: float, advantage: float
) -> None:
    logprobs = torch.tensor([log_ratio], dtype=dtype, requires_grad=True)
    old, advantages = torch.zeros(1, dtype=dtype), torch.tensor([advantage], dtype=dtype)
    for loss, _ in (
        rl.ppo_loss(logprobs, old, advantages, TRUE, clip_low=0.2, clip_high=0.2, dual_clip=3.0),
        rl.decoupled_ppo_loss(
            logprobs, old, logprobs.detach(), advantages, TRUE, clip_low=0.2, clip_high=0.2
        ),
    ):
        (gradient,) = torch.autograd.grad(loss, logprobs)
        assert bool(torch.isfinite(loss))
        assert bool(torch.isfinite(gradient))


def test_ppo_terms_are_finite_in_masked_slots() -> None:
    junk = torch.tensor([NAN])
    for term in rl.ppo_terms(junk, junk, junk, FALSE, clip_low=0.2, clip_high=0.2, dual_clip=3.0):
        assert term.tolist() in ([0.0], [1.0])


def test_k3_of_a_huge_difference_leaves_the_gradient_finite() -> None:
    logprobs = torch.tensor([-1e4, 1e4], requires_grad=True)
    mask = torch.tensor([True, True])
    loss, _ = rl.kl_loss(logprobs, torch.zeros(2), mask, estimator="k3")
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert float(loss.detach()) == 10.0
    assert gradient.tolist() == [0.0, 0.0]


def test_a_step_above_the_threshold_has_no_gradient() -> None:
    logprobs = torch.tensor([0.0, 0.0], requires_grad=True)
    old, proximal = torch.tensor([-1000.0, 0.0]), torch.zeros(2)
    loss, metrics = rl.decoupled_ppo_loss(
        logprobs,
        old,
        proximal,
        torch.ones(2),
        torch.tensor([True, True]),
        clip_low=0.2,
        clip_high=0.2,
        behave_weight_threshold=1.0,
    )
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert gradient.tolist() == [0.0, -1.0]
    assert float(rl.mean_metrics(metrics)["behav_clip_fraction"]) == 0.5
    with pytest.raises(RLInputError, match="must be positive"):
        rl.counted_steps(old, proximal, old < 0, behave_weight_threshold=0.0)


def test_value_loss_without_clip_and_without_huber_is_half_the_squared_error() -> None:
    values = torch.tensor([1.0, -30.0], requires_grad=True)
    returns, mask = torch.tensor([4.0, 20.0]), torch.tensor([True, True])
    loss, _ = rl.value_loss(values, torch.zeros(2), returns, mask, value_clip=INF, huber_delta=INF)
    loss.backward()
    assert float(loss.detach()) == (9.0 + 2500.0) / 4
    assert values.grad is not None
    assert values.grad.tolist() == [-1.5, -25.0]
    for options in (
        {"value_clip": 0.0, "huber_delta": 1.0},
        {"value_clip": 1.0, "huber_delta": 0.0},
    ):
        with pytest.raises(RLInputError, match="must be positive"):
            rl.value_loss(values, values, returns, mask, **options)


def test_losses_compose_by_addition_and_their_metrics_do_not_collide() -> None:
    x, mask = torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool)
    names = [
        *rl.ppo_loss(x, x, x, mask, clip_low=0.2, clip_high=0.2)[1],
        *rl.value_loss(x, x, x, mask, value_clip=1.0, huber_delta=1.0)[1],
        *rl.entropy_loss(x, mask)[1],
        *rl.kl_loss(x, x, mask, estimator="k2")[1],
    ]
    assert len(set(names)) == len(names)


def test_episode_weights_make_long_and_short_episodes_equal() -> None:
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    values, steps = torch.ones(2, 4), mask.sum(1)
    mean = rl.episode_weighted_mean(values, mask, steps=steps, max_episode_steps=4)
    assert (float(mean.total), float(mean.n)) == (8.0, 8.0)
    halves = [
        rl.episode_weighted_mean(values[r], mask[r], steps=steps[r], max_episode_steps=4).over(8)
        for r in (slice(0, 1), slice(1, 2))
    ]
    assert [float(half) for half in halves] == [0.5, 0.5]
    dirty = torch.where(mask, values, NAN)
    empty = rl.episode_weighted_mean(
        dirty, mask & (steps > 1).unsqueeze(1), steps=steps * 0, max_episode_steps=4
    )
    assert math.isfinite(float(empty.total))
    with pytest.raises(RLInputError, match="max_episode_steps"):
        rl.episode_weighted_mean(values, mask, steps=steps, max_episode_steps=0)


def test_staleness_weight_of_known_and_unknown_versions() -> None:
    alpha = rl.staleness_weight(torch.tensor([-1, 0, 4, 5, 6, 7]), 6)
    torch.testing.assert_close(alpha, torch.tensor([0, 5 / 6, 1 / 2, 0, 0, 0], dtype=torch.float64))


def test_an_interpolated_proximal_policy_is_a_constant() -> None:
    logprobs = torch.tensor([-1.0], requires_grad=True)
    alpha = torch.tensor([0.5], dtype=torch.float64)
    proximal = rl.interpolate_proximal(logprobs, torch.tensor([-2.0]), alpha)
    assert proximal.tolist() == [-1.5]
    assert proximal.dtype == torch.float32
    assert not proximal.requires_grad


# --- distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    logits = torch.zeros(1, 3)
    with pytest.raises(RLInputError, match="temperature"):
        rl.categorical_entropy(logits, temperature=temperature)
    with pytest.raises(RLInputError, match="temperature"):
        rl.categorical_logprobs(logits, torch.tensor([0]), temperature=temperature)


def test_masked_logits_have_no_gradient() -> None:
    logits = torch.tensor([[0.0, 1.0], [NAN, NAN]], requires_grad=True)
    mask, tokens = torch.tensor([True, False]), torch.tensor([1, 0])
    logprobs = rl.categorical_logprobs(logits, tokens, mask=mask)
    entropy = rl.categorical_entropy(logits, mask=mask)
    (gradient,) = torch.autograd.grad((logprobs + entropy).sum(), logits)
    assert bool(torch.isfinite(logprobs).all())
    assert gradient[1].tolist() == [0.0, 0.0]
    assert bool((gradient[0] != 0).all())
    with pytest.raises(RLInputError, match="mask has shape"):
        rl.categorical_entropy(logits, mask=torch.tensor([[True], [True]]))


def test_half_precision_logits_are_read_in_float32() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.bfloat16)
    got = rl.categorical_logprobs(logits, torch.tensor([2]), temperature=1.6)
    torch.testing.assert_close(
        got, rl.categorical_logprobs(logits.float(), torch.tensor([2]), temperature=1.6)
    )
    assert rl.categorical_entropy(logits).dtype == torch.float32


def test_gaussian_gradients_are_finite_where_there_is_no_noise() -> None:
    std = torch.tensor([0.0, 0.5], requires_grad=True)
    mean = torch.tensor([0.0, 0.2], requires_grad=True)
    total = rl.gaussian_logprobs(torch.tensor([3.0, 1.0]), mean, std) + rl.gaussian_entropy(std)
    gradients = torch.autograd.grad(total.sum(), (std, mean))
    assert gradients[0][0] == gradients[1][0] == 0
    want = torch.distributions.Normal(torch.tensor(0.2), torch.tensor(0.5))
    torch.testing.assert_close(total[1].detach(), want.log_prob(torch.tensor(1.0)) + want.entropy())
    assert bool(torch.isfinite(torch.stack(gradients)).all())
