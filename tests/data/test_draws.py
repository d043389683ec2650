from __future__ import annotations

import numpy as np
import pytest
import torch

from rlinf_core.data.draws import Draws, DrawsAhead, philox4x32, stream_seed

F = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [  # known answers published with Random123
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((F, F, F, F), (F, F), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, wanted):
    words = philox4x32([np.array([w], dtype=np.uint64) for w in counter], key)
    assert tuple(int(w[0]) for w in words) == wanted


def test_a_rows_numbers_do_not_depend_on_who_shares_its_batch():
    together = Draws(7, [3, 1, 8], [5, 5, 6])
    alone = Draws(7, [1], [5])
    for width in (3, 4):
        assert torch.equal(together.normal(width)[1], alone.normal(width)[0])


def test_a_part_of_the_rows_goes_on_with_the_same_numbers():
    whole, same = Draws(7, range(6), [2] * 6), Draws(7, range(6), [2] * 6)
    whole.uniform(2), same.uniform(2)
    assert torch.equal(whole.normal(3)[2:5], same.rows(slice(2, 5)).normal(3))


def test_seed_id_step_and_call_each_change_the_numbers():
    base = Draws(1, [2], [3])
    first, second = base.normal(4), base.normal(4)
    others = [
        Draws(2, [2], [3]),
        Draws(1, [3], [3]),
        Draws(1, [2], [4]),
        Draws(1, [2], [3 + 2**32]),
    ]
    assert not torch.equal(first, second)
    assert all(not torch.equal(first, other.normal(4)) for other in others)
    assert torch.equal(first, Draws(1, [2], [3]).normal(4))


def test_moments():
    draws = Draws(0, range(200_000), [1] * 200_000)
    normal, uniform = draws.normal(3).double(), draws.uniform(2)
    assert normal.mean().abs() < 0.01
    assert (normal.std() - 1).abs() < 0.01
    assert (normal**4).mean() == pytest.approx(3.0, abs=0.1)
    assert torch.corrcoef(normal.T).fill_diagonal_(0).abs().max() < 0.01
    assert uniform.mean() == pytest.approx(0.5, abs=0.005)
    assert 0 < uniform.min() < uniform.max() < 1


def test_gumbel_samples_the_categorical_distribution():
    probabilities = torch.tensor([0.1, 0.2, 0.7])
    draws = Draws(0, range(50_000), [0] * 50_000)
    chosen = (probabilities.log() + draws.gumbel(3)).argmax(-1)
    shares = torch.bincount(chosen, minlength=3) / len(chosen)
    assert torch.allclose(shares, probabilities, atol=0.01)


def test_integers_stay_in_range():
    drawn = Draws(0, range(10_000), [0] * 10_000).integers(5)
    assert set(drawn.tolist()) == set(range(5))


def test_ids_and_steps_come_in_pairs():
    with pytest.raises(ValueError, match="one each per row"):
        Draws(0, [1, 2], [1])


def test_stream_seed_depends_on_every_part():
    seeds = {stream_seed(*parts) for parts in [(0, 1), (1, 0), (0, 1, 0), (0, 2), (1, 1)]}
    assert len(seeds) == 5


def test_draws_made_ahead_are_those_made_one_by_one():
    ahead = DrawsAhead(7)
    # Other environments in between, steps that go back, wide calls, and more rows than are shared.
    cases = [([3, 9, 4], s) for s in range(100)] + [([1], 5), ([3, 9, 4], 100), ([3, 9, 4], 2)]
    for ids, step in [*cases, (list(range(200)), 3), ([2**33, 5], 2**34)]:
        one, other = ahead.at(ids, step), Draws(7, ids, [step] * len(ids))
        for shape in ((4,), (2, 3), (100,), (4,)):
            assert torch.equal(one.normal(*shape), other.normal(*shape))
        part, same = one.rows(slice(1, None)), other.rows(slice(1, None))
        assert torch.equal(part.uniform(3), same.uniform(3))
        assert torch.equal(one.integers(10), other.integers(10))
