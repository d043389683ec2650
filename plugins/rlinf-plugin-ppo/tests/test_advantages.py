"""What decisions were worth: bootstrapping, padding, statistics."""

from __future__ import annotations

import threading

import pytest
import torch
from rlinf_plugin_ppo.config import PPOConfig
from rlinf_plugin_ppo.ppo import PPO

from rlinf_core.api import Batch, RLInputError, rl


def alone(x: torch.Tensor) -> torch.Tensor:
    return x


def trajectory(**entries: torch.Tensor) -> Batch:
    shape = entries["reward"].shape
    no = torch.zeros(shape, dtype=torch.bool)
    return Batch({"terminated": no, "truncated": no, "valid": ~no, **entries})


def flags(*rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows).bool()


def plain(**options: object) -> PPO:
    return PPO(PPOConfig(normalize_advantages=False, **options))


def test_case_n01_only_the_truncated_environment_bootstraps():
    batch = trajectory(
        reward=torch.ones(1, 2, 1),
        terminated=flags([[1], [0]]),
        truncated=flags([[0], [1]]),
        value=torch.tensor([[0.25, 0.25]]),
        next_value=torch.tensor([[8.0, 8.0]]),  # V(final) stands in both; only one may read it
    )
    done = plain(gamma=0.5).advantages(batch, alone)
    assert done["advantage"].tolist() == [[0.75, 4.75]]
    assert done["return"].tolist() == [[1.0, 5.0]]


def test_advantages_by_hand_over_an_end():
    """gamma 0.5, lambda 0.25; a truncation after the first of three rows, then the end."""
    batch = trajectory(
        reward=torch.tensor([1.0, 2.0, 4.0]).reshape(3, 1, 1),
        truncated=flags([[1]], [[0]], [[0]]),
        value=torch.tensor([[1.0], [2.0], [3.0]]),
        next_value=torch.tensor([[6.0], [3.0], [10.0]]),
    )
    done = plain(gamma=0.5, gae_lambda=0.25).advantages(batch, alone)
    third = 4 + 0.5 * 10 - 3
    second = 2 + 0.5 * 3 - 2 + 0.125 * third
    first = 1 + 0.5 * 6 - 1
    assert done["advantage"].flatten().tolist() == [first, second, third]
    assert done["return"].flatten().tolist() == [first + 1, second + 2, third + 3]


def test_case_e03_steps_after_the_end_of_a_chunk_earn_nothing():
    valid = flags([[1, 1, 0, 0, 0]])
    batch = trajectory(
        reward=torch.tensor([[[1.0, 2.0, 1e9, torch.nan, 4.0]]]),
        terminated=flags([[0, 0, 0, 1, 0]]),  # behind the end: not executed, so no end
        truncated=flags([[0, 1, 0, 0, 0]]),
        valid=valid,
        value=torch.tensor([[0.5]]),
        next_value=torch.tensor([[8.0]]),
    )
    done = plain(gamma=0.5).advantages(batch, alone)
    assert done["return"].tolist() == [[3.0 + 4.0]]
    assert done["advantage"].tolist() == [[6.5]]
    assert done["mask"].tolist() == [[True]]


def test_rewards_are_scaled_before_the_critic_is_compared():
    batch = trajectory(
        reward=torch.full((1, 1, 2), 3.0),
        terminated=flags([[0, 1]]),
        value=torch.tensor([[0.5]]),
        next_value=torch.tensor([[0.0]]),
    )
    done = plain(reward_scale=0.1).advantages(batch, alone)
    torch.testing.assert_close(done["return"], torch.tensor([[0.6]]))
    torch.testing.assert_close(done["advantage"], torch.tensor([[0.1]]))


def test_case_n07_a_row_without_a_valid_step_is_stepped_over(make_trajectory):
    batch = make_trajectory()
    idle = batch["valid"].clone()
    idle[2, 1] = False
    poison = torch.where(idle.any(-1), batch["value"], torch.nan)
    done = PPO(PPOConfig()).advantages(batch.with_entries(valid=idle, value=poison), alone)
    assert not done["mask"][2, 1]
    assert done["mask"].sum() == 11
    assert done["advantage"][2, 1] == done["return"][2, 1] == 0
    assert done["advantage"].isfinite().all()
    assert done["explained_variance"].isfinite().all()


def test_case_n10_statistics_ignore_masked_rows(make_trajectory):
    batch = make_trajectory()
    idle = batch["valid"].clone()
    idle[3, 0] = False
    results = []
    for outlier in (0.0, 1e12):
        reward, value = batch["reward"].clone(), batch["value"].clone()
        reward[3, 0], value[3, 0] = outlier, outlier
        done = PPO(PPOConfig()).advantages(
            batch.with_entries(reward=reward, value=value, valid=idle), alone
        )
        results.append(done["advantage"])
    assert torch.equal(*results)
    kept = results[0][idle.any(-1)]
    torch.testing.assert_close(kept.mean(), torch.tensor(0.0), rtol=0, atol=1e-6)
    torch.testing.assert_close(kept.std(), torch.tensor(1.0), rtol=0, atol=1e-4)


def test_case_n10_statistics_are_global_over_ranks(make_trajectory):
    whole = make_trajectory(envs=5)
    wanted = PPO(PPOConfig()).advantages(whole, alone)
    ranks = 2
    barrier, slots = threading.Barrier(ranks), [None] * ranks
    results = [None] * ranks

    def rank(index: int, part: Batch) -> None:
        def reduce(x: torch.Tensor) -> torch.Tensor:
            slots[index] = x
            barrier.wait(10)
            total = slots[0] + slots[1]
            barrier.wait(10)
            return total

        results[index] = PPO(PPOConfig()).advantages(part, reduce)

    parts = [whole.map(lambda t: t[:, :1]), whole.map(lambda t: t[:, 1:])]
    threads = [threading.Thread(target=rank, args=pair) for pair in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for name in ("advantage", "return", "explained_variance"):
        joined = torch.cat([result[name] for result in results], dim=1)
        torch.testing.assert_close(joined, wanted[name], rtol=1e-5, atol=1e-6)


def test_explained_variance_is_that_of_the_critic(make_trajectory):
    done = plain().advantages(make_trajectory(), alone)
    wanted = rl.explained_variance(done["value"], done["return"], done["mask"])
    torch.testing.assert_close(done["explained_variance"], wanted.float().expand(4, 3))
    for value, share in (([1.0, 2.0, 3.0], 1.0), ([2.0, 2.0, 2.0], 0.0)):
        batch = trajectory(
            reward=torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1),
            terminated=torch.ones(1, 3, 1, dtype=torch.bool),
            value=torch.tensor([value]),
            next_value=torch.zeros(1, 3),
        )
        done = plain().advantages(batch, alone)
        assert done["explained_variance"].tolist() == [pytest.approx([share] * 3)]


def test_a_reward_that_is_not_finite_is_refused():
    batch = trajectory(
        reward=torch.full((1, 1, 1), torch.inf),
        value=torch.zeros(1, 1),
        next_value=torch.zeros(1, 1),
    )
    with pytest.raises(RLInputError, match="not finite"):
        PPO(PPOConfig()).advantages(batch, alone)


def test_case_e08_a_misspelt_mask_is_refused(make_trajectory):
    batch = make_trajectory()
    misspelt = Batch({("vaild" if key == "valid" else key): value for key, value in batch.items()})
    with pytest.raises(KeyError, match=r"no entry 'valid'.*'vaild'"):
        PPO(PPOConfig()).advantages(misspelt, alone)
