"""Which episodes were better: scores, groups, ends, filters, weights."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from rlinf_plugin_grpo.config import GRPOConfig
from rlinf_plugin_grpo.grpo import GRPO

from rlinf_core.api import Batch, RLInputError


def alone(x: torch.Tensor) -> torch.Tensor:
    return x


def rollout(reward: torch.Tensor, **entries: torch.Tensor) -> Batch:
    """Return a rollout of ``reward`` [T, N, C] in which nothing ends."""
    no = torch.zeros(reward.shape, dtype=torch.bool)
    env = torch.arange(reward.shape[1]).expand(reward.shape[:2])
    base = {"terminated": no, "truncated": no, "valid": ~no, "env": env}
    return Batch({**base, "reward": reward, **entries})


def scores(*values: float) -> Batch:
    """Return a rollout of one step with these scores."""
    return rollout(torch.tensor(values).reshape(1, -1, 1))


def grpo(size: int, **options: object) -> GRPO:
    return GRPO(GRPOConfig(group_size=size, **options))


def flags(shape: tuple[int, ...], *true: tuple[int, ...]) -> torch.Tensor:
    made = torch.zeros(shape, dtype=torch.bool)
    for index in true:
        made[index] = True
    return made


# --- groups ---------------------------------------------------------------------------------------


def test_advantages_by_hand():
    """Scores 1, 2, 3, 6: mean 3, deviation sqrt(14 / 3); the second group has its own."""
    done = grpo(4).advantages(scores(1, 2, 3, 6, 10, 10, 10, 14), alone)
    std = math.sqrt(14 / 3)
    wanted = [-2 / std, -1 / std, 0.0, 3 / std, -0.5, -0.5, -0.5, 1.5]
    assert done["advantage"].flatten().tolist() == pytest.approx(wanted, abs=1e-5)
    centred = grpo(4, normalize_by_std=False).advantages(scores(1, 2, 3, 6), alone)
    assert centred["advantage"].flatten().tolist() == [-2.0, -1.0, 0.0, 3.0]


def test_the_score_is_the_sum_over_steps_and_chunks():
    reward = torch.tensor([[[1.0, 2.0], [0.0, 1.0]], [[4.0, 0.0], [1.0, 1.0]]])  # [T, N, C]
    done = grpo(2, normalize_by_std=False).advantages(rollout(reward), alone)
    assert done["advantage"].tolist() == [[2.0, -2.0]] * 2  # 7 against 3
    assert done["score"].tolist() == [[5.0, 5.0]] * 2


def test_case_n05_equal_groups_are_zero_and_counted():
    done = grpo(4).advantages(scores(*[0.1] * 4, 1, 0, 0, 0, *[7.0] * 4), alone)
    advantage = done["advantage"].flatten()
    assert advantage[:4].tolist() == advantage[8:].tolist() == [0.0] * 4
    assert advantage.isfinite().all()
    assert advantage[4] == pytest.approx(1.5, abs=1e-4)
    assert done["equal_groups"].unique().tolist() == [pytest.approx(2 / 3)]
    assert done["mask"].all()  # they count: a group without a difference is a result


def test_case_n05_advantages_stay_small():
    for values in ([1, 0, 0, 0], [0] + [0.95] * 7):
        done = grpo(len(values)).advantages(scores(*values), alone)
        assert 1.0 < done["advantage"].abs().max() < 3.0


@pytest.mark.parametrize("size", [1, 0, -2])
def test_case_n06_a_group_of_one_is_refused(size):
    with pytest.raises(ValueError, match=f"a group of {size} compares an episode with itself"):
        GRPOConfig(group_size=size)


def test_case_n11_what_is_not_a_whole_group_is_refused():
    with pytest.raises(RLInputError, match=r"environments \[4, 5\], wanted a whole group of 4"):
        grpo(4).advantages(scores(0, 0, 0, 0, 0, 0), alone)
    # two groups that were cut and put together again
    cut = scores(0, 0, 0, 0).with_entries(env=torch.tensor([[2, 3, 0, 1]]))
    with pytest.raises(RLInputError, match=r"environments \[2, 3, 0, 1\], wanted a whole group"):
        grpo(4).advantages(cut, alone)
    shifted = scores(0, 0, 0, 0).with_entries(env=torch.tensor([[2, 3, 4, 5]]))
    with pytest.raises(RLInputError, match="never split"):
        grpo(4).advantages(shifted, alone)


def test_case_n11_pieces_may_come_in_any_order():
    swapped = scores(1, 3, 10, 20).with_entries(env=torch.tensor([[2, 3, 0, 1]]))
    done = grpo(2, normalize_by_std=False).advantages(swapped, alone)
    assert done["advantage"].tolist() == [[-1.0, 1.0, -5.0, 5.0]]


# --- episodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_only_the_first_episode_of_a_rollout_counts(how):
    """The first column ends at the second of four steps; what it does then is another episode."""
    reward = torch.tensor([[1.0, 0.0], [2.0, 0.0], [100.0, 0.0], [100.0, 1.0]]).unsqueeze(-1)
    ends = flags((4, 2, 1), (1, 0, 0), (3, 0, 0))
    done = grpo(2, normalize_by_std=False).advantages(rollout(reward, **{how: ends}), alone)
    assert done["mask"].tolist() == [[True, True]] * 2 + [[False, True]] * 2
    assert done["valid"].squeeze(-1).tolist() == done["mask"].tolist()
    assert done["score"][0, 0] == 2.0  # 3 and 1
    assert done["advantage"][:, 0].tolist()[2:] == [0.0, 0.0]


def test_an_end_within_a_chunk_ends_the_episode():
    reward = torch.tensor([[[1.0, 2.0, 50.0], [0.0, 0.0, 0.0]], [[50.0] * 3, [0.0] * 3]])
    valid = ~flags((2, 2, 3), (0, 0, 2))
    ends = flags((2, 2, 3), (0, 0, 1))
    batch = rollout(reward, terminated=ends, valid=valid)
    done = grpo(2, normalize_by_std=False).advantages(batch, alone)
    assert done["valid"][:, 0].tolist() == [[True, True, False], [False] * 3]
    assert done["score"][0, 0] == 1.5


def test_a_flag_behind_the_end_of_a_chunk_ends_nothing():
    reward = torch.ones(2, 2, 2)
    padding = flags((2, 2, 2), (0, 0, 1))
    done = grpo(2).advantages(rollout(reward, terminated=padding, valid=~padding), alone)
    assert done["mask"].all()


def test_an_episode_that_is_cut_off_counts_what_it_earned():
    reward = torch.tensor([[1.0, 0.0], [1.0, 5.0]]).unsqueeze(-1)
    done = grpo(2, normalize_by_std=False).advantages(
        rollout(reward, terminated=flags((2, 2, 1), (1, 1, 0))), alone
    )
    assert done["advantage"][0].tolist() == [-1.5, 1.5]


def test_case_n07_an_environment_that_did_nothing_has_no_score():
    valid = ~flags((1, 4, 1), (0, 1, 0))
    done = grpo(2).advantages(scores(1.0, torch.nan, 1.0, 3.0).with_entries(valid=valid), alone)
    assert done["advantage"][0, :2].tolist() == [0.0, 0.0]
    assert done["mask"].tolist() == [[True, False, True, True]]
    assert done["score"][0, 0] == pytest.approx(5 / 3)
    nobody = grpo(2).advantages(scores(1.0, 2.0).with_entries(valid=~valid[:, :2] & False), alone)
    assert all(nobody[key].isfinite().all() for key in ("advantage", "score", "equal_groups"))


def test_what_stands_in_masked_steps_changes_nothing(make_rollout):
    batch = make_rollout()
    poisoned = batch.with_entries(
        reward=torch.where(batch["valid"], batch["reward"], torch.nan),
        terminated=batch["terminated"] | ~batch["valid"],
    )
    one, other = (grpo(4).advantages(b, alone) for b in (batch, poisoned))
    assert torch.equal(one["advantage"], other["advantage"])
    assert torch.equal(one["valid"], other["valid"])


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(RLInputError, match=r"rewards\[1\] is nan"):
        grpo(2).advantages(scores(0.0, torch.nan), alone)


def test_the_rollout_itself_is_left_as_it_was(make_rollout):
    batch = make_rollout()
    before = {key: batch[key].clone() for key in ("valid", "reward", "env")}
    grpo(4, group_reward_min=0.0).advantages(batch, alone)
    assert all(torch.equal(batch[key], tensor) for key, tensor in before.items())


# --- filters and weights --------------------------------------------------------------------------


def test_groups_outside_the_bounds_are_masked():
    values = (0, 0, 0, 1, 1, 1)
    batch = scores(*map(float, values))
    done = grpo(2, group_reward_min=0.1, group_reward_max=0.9).advantages(batch, alone)
    assert done["mask"].tolist() == [[False, False, True, True, False, False]]
    assert done["valid"].flatten().tolist() == done["mask"].flatten().tolist()
    assert done["kept_groups"].unique().tolist() == [pytest.approx(1 / 3)]
    assert done["equal_groups"].unique().tolist() == [pytest.approx(2 / 3)]  # before the filter
    low = grpo(2, group_reward_min=0.5).advantages(batch, alone)
    assert low["mask"].tolist() == [[False, False, True, True, True, True]]  # bounds included
    high = grpo(2, group_reward_max=0.5).advantages(batch, alone)
    assert high["mask"].tolist() == [[True, True, True, True, False, False]]
    assert grpo(2).advantages(batch, alone)["kept_groups"].unique().tolist() == [1.0]


@pytest.mark.parametrize("level", ["chunk", "action", "token"])
def test_every_episode_weighs_the_same(level, make_rollout):
    batch = make_rollout()
    plain = grpo(4, aggregation="decision", logprob_level=level).advantages(batch, alone)
    even = grpo(4, logprob_level=level).advantages(batch, alone)
    parts = even["mask"].sum(0) if level == "chunk" else even["valid"].sum((0, 2))  # [N]
    weight = even["advantage"][0] / plain["advantage"][0]  # [N]
    assert len(parts.unique()) > 2
    torch.testing.assert_close(weight * parts, torch.full((8,), float(parts.sum() / 8)))
    assert float((weight * parts).sum()) == pytest.approx(float(parts.sum()))  # 1 in the mean


def test_left_out_groups_have_no_part_in_the_weights():
    reward = torch.tensor([[0.0, 0.0, 1.0, 4.0], [0.0, 0.0, 1.0, 9.0]]).unsqueeze(-1)
    ends = flags((2, 4, 1), (0, 0, 0), (0, 3, 0))
    batch = rollout(reward, terminated=ends)
    both = grpo(2, group_reward_min=0.5).advantages(batch, alone)
    only = batch.map(lambda t: t[:, 2:]).with_entries(env=torch.tensor([[0, 1]] * 2))
    torch.testing.assert_close(
        both["advantage"][:, 2:], grpo(2).advantages(only, alone)["advantage"]
    )


@pytest.mark.parametrize("lowest", [None, 1.0])
def test_case_n10_numbers_are_global_over_ranks(lowest, make_rollout):
    """Two ranks with a group each give what one gives with both."""
    config = GRPOConfig(group_size=4, logprob_level="action", group_reward_min=lowest)
    batch = make_rollout()
    batch["reward"][:, :4] += 10.0
    batch["reward"][:, 4:] = 0.0  # the second rank's group is equal, and may be left out
    whole = GRPO(config).advantages(batch, alone)
    barrier, slots, results = threading.Barrier(2), [None, None], [None, None]

    def work(rank: int) -> None:
        def reduce(x: torch.Tensor) -> torch.Tensor:
            slots[rank] = x
            barrier.wait(5)
            total = slots[0] + slots[1]
            barrier.wait(5)
            return total

        part = batch.map(lambda t: t[:, 4 * rank : 4 * rank + 4])
        results[rank] = GRPO(config).advantages(part, reduce)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    for key in ("advantage", "mask", "score", "equal_groups", "kept_groups"):
        joined = torch.cat([result[key] for result in results], dim=1)
        torch.testing.assert_close(joined, whole[key])
