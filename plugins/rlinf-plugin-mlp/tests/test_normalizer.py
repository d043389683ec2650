"""Running statistics: exactly those of all valid rows, and frozen in between."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlinf_plugin_mlp.normalizer import Normalizer

from rlinf_core.api import Batch, Mode, RLInputError, rl


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_merged_pieces_are_the_whole(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    pieces = [torch.randn(n, 3, generator=generator) * 5 + 100 for n in sizes]
    normalizer = Normalizer(3, 10.0)
    for piece in pieces:
        normalizer.update(piece)
    whole = torch.cat(pieces).double()
    assert normalizer.count == len(whole)
    if len(whole):
        torch.testing.assert_close(normalizer.mean, whole.mean(0))
        torch.testing.assert_close(normalizer.variance, whole.var(0, correction=0))


def test_two_ranks_have_the_statistics_of_both_even_where_one_saw_nothing():
    for sizes in [(40, 7), (40, 0)]:
        pieces = [torch.randn(n, 3) * 5 + 100 for n in sizes]
        whole = Normalizer(3, 10.0)
        whole.update(torch.cat(pieces))
        barrier, shares = threading.Barrier(2), [torch.empty(0)] * 2

        def reducer(rank, barrier=barrier, shares=shares):
            def reduce(part):
                shares[rank] = part
                barrier.wait(10)
                total = shares[0] + shares[1]
                barrier.wait(10)
                return total

            return reduce

        ranks = [Normalizer(3, 10.0) for _ in sizes]
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(n.update, pieces[r], reducer(r)) for r, n in enumerate(ranks)]
            for job in jobs:
                job.result()
        for rank in ranks:
            for name, value in rank.state_dict().items():
                torch.testing.assert_close(value, whole.state_dict()[name])


def test_a_large_offset_costs_no_digits():
    normalizer = Normalizer(1, 10.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        normalizer.update(1e6 + torch.randn(50, 1, generator=generator, dtype=torch.float64))
    assert float(normalizer.variance) == pytest.approx(1.0, rel=0.05)


def test_before_any_observation_numbers_pass_through():
    x = torch.tensor([[0.5, -2.0]])
    torch.testing.assert_close(Normalizer(2, 10.0)(x), x)


def test_results_have_unit_deviation_and_are_clipped():
    normalizer = Normalizer(2, 10.0)
    x = torch.randn(1000, 2) * torch.tensor([1e-2, 1e3]) + torch.tensor([4.0, -50.0])
    normalizer.update(x)
    y = normalizer(x)
    torch.testing.assert_close(y.mean(0), torch.zeros(2), rtol=0, atol=1e-3)
    torch.testing.assert_close(y.std(0, correction=0), torch.ones(2), rtol=0, atol=1e-3)
    assert normalizer(torch.tensor([[1e9, -1e9]])).tolist() == [[10.0, -10.0]]


def test_a_constant_column_becomes_zero():
    normalizer = Normalizer(1, 10.0)
    for n in (7, 3):
        normalizer.update(torch.full((n, 1), 0.3))
    assert normalizer(torch.full((1, 1), 0.3)).tolist() == [[0.0]]


def test_numbers_that_are_not_finite_are_refused_and_change_nothing():
    normalizer = Normalizer(3, 10.0)
    normalizer.update(torch.randn(5, 3))
    before = {name: t.clone() for name, t in normalizer.state_dict().items()}
    bad = torch.zeros(2, 3)
    bad[1, 2] = torch.nan
    with pytest.raises(RLInputError, match=r"columns \[2\]"):
        normalizer.update(bad)
    assert all(torch.equal(t, before[n]) for n, t in normalizer.state_dict().items())


def test_observe_takes_valid_rows_only_and_acting_takes_none(make_policy, observe, draws):
    policy = make_policy()
    state = torch.randn(6, 4, 5)  # [T, N, S]
    valid = torch.rand(6, 4) < 0.6
    state[~valid] = torch.nan
    policy.observe(Batch({"state": state}), valid, rl.local)
    assert policy.normalizer.count == valid.sum()
    torch.testing.assert_close(policy.normalizer.mean, state[valid].double().mean(0))
    before = {n: t.clone() for n, t in policy.state_dict().items()}
    act = policy.act(observe(8), draws(8), Mode.SAMPLE)
    policy.evaluate(act.replay)
    assert all(torch.equal(t, before[n]) for n, t in policy.state_dict().items())


def test_statistics_travel_with_the_weights_and_change_what_is_seen(make_policy, observe):
    policy, other = make_policy(), make_policy(seed=0)
    fresh = policy.act(observe(4), None, Mode.GREEDY).value
    policy.observe(
        observe(99, seed=2).map(lambda t: t[None]), torch.ones(1, 99, dtype=torch.bool), rl.local
    )
    seen = policy.act(observe(4), None, Mode.GREEDY).value
    assert not torch.equal(fresh, seen)
    assert {n for n in policy.state_dict() if "normalizer" in n} == {
        "normalizer.count",
        "normalizer.mean",
        "normalizer.variance",
    }
    other.load_state_dict(policy.state_dict())
    assert torch.equal(other.act(observe(4), None, Mode.GREEDY).value, seen)


def test_without_normalisation_observing_does_nothing(make_policy, observe):
    policy = make_policy(normalize_observations=False)
    before = policy.act(observe(4), None, Mode.GREEDY).value
    policy.observe(observe(9).map(lambda t: t[None]), torch.ones(1, 9, dtype=torch.bool), rl.local)
    assert torch.equal(policy.act(observe(4), None, Mode.GREEDY).value, before)
    assert not any("normalizer" in name for name in policy.state_dict())
