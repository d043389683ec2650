from __future__ import annotations

import math

import pytest
import torch

from rlinf_core.data.batch import Batch
from rlinf_core.data.episode import EpisodeMeter, chunk_flags, ends, last_valid
from rlinf_core.data.outcomes import summary, wilson_interval
from rlinf_core.data.trajectory import TrajectoryBuilder
from rlinf_core.errors import BatchError


def flags(*rows: str) -> torch.Tensor:
    return torch.tensor([[c == "1" for c in row] for row in rows])


def test_an_end_in_an_unexecuted_step_is_none():
    none = flags("000")
    assert not ends(flags("001"), none, flags("110"))
    assert ends(flags("010"), none, flags("110"))


def test_termination_wins_over_truncation():
    terminated, truncated = chunk_flags(flags("01", "00"), flags("01", "01"), flags("11", "11"))
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]


def test_last_valid_reads_the_last_executed_step():
    assert last_valid(flags("101", "010", "111"), flags("110", "110", "000")).tolist() == [
        False,
        True,
        False,
    ]


def test_flags_of_different_rank_are_refused():
    with pytest.raises(BatchError, match="one shape"):
        ends(flags("01"), torch.zeros(2, dtype=torch.bool), flags("11"))


def test_case_e06_success_is_reported_once_and_at_end():
    meter = EpisodeMeter([5])
    meter.begin(torch.tensor([True]), ["test/0"])
    done = []
    for step in range(1, 10):
        one = torch.ones(1, 1)
        done += meter.add(
            one,
            torch.zeros(1, 1, dtype=torch.bool),
            torch.tensor([[step == 9]]),
            torch.tensor([[3 <= step < 9]]),
            torch.ones(1, 1, dtype=torch.bool),
        )
    (episode,) = done
    assert (episode.success_once, episode.success_at_end) == (True, False)
    assert (episode.length, episode.total, episode.env, episode.state) == (9, 9.0, 5, "test/0")
    metrics = summary(done)
    assert metrics["episode/success_once"] == 1.0
    assert metrics["episode/success_at_end"] == 0.0


def test_the_meter_ignores_what_was_not_executed():
    meter = EpisodeMeter([0, 1])
    meter.begin(torch.tensor([True, True]), ["a/0", "a/1"])
    (episode,) = meter.add(
        torch.tensor([[1.0, 5.0, math.nan], [1.0, 1.0, 1.0]]),
        flags("010", "000"),
        flags("000", "000"),
        flags("001", "000"),
        flags("110", "111"),
    )
    assert (episode.total, episode.length, episode.success_once) == (6.0, 2, False)


def test_summary_of_nothing_is_nan_not_zero():
    assert math.isnan(summary([])["episode/success_once"])
    assert summary([])["episode/count"] == 0


def test_wilson_interval_known_values():
    assert wilson_interval(95, 100) == pytest.approx((0.8882, 0.9785), abs=1e-4)
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_next_value_follows_the_episode_and_not_the_reset():
    """Env 0 goes on, env 1 terminates at step 0, env 2 is truncated at step 0."""
    builder = TrajectoryBuilder()
    no, yes = torch.zeros(3, 1, dtype=torch.bool), torch.ones(3, 1, dtype=torch.bool)
    nan = math.nan
    for step in range(2):
        builder.act(obs=torch.zeros(3, 1), value=torch.tensor([1.0, 2.0, 3.0]) + 10 * step)
        first = step == 0
        builder.outcome(
            torch.tensor([nan, nan, 77.0]) if first else None or torch.full((3,), nan),
            reward=torch.ones(3, 1),
            terminated=torch.tensor([[False], [first], [False]]),
            truncated=torch.tensor([[False], [False], [first]]),
            success=no,
            valid=yes,
        )
    batch = builder.build(torch.tensor([100.0, 200.0, 300.0]))
    assert batch["next_value"].tolist() == [[11.0, 0.0, 77.0], [100.0, 200.0, 300.0]]
    assert len(builder) == 0


def test_a_trajectory_leaves_instructions_out_but_never_drops_from_a_replay():
    builder = TrajectoryBuilder()
    flags = torch.zeros(1, 1, dtype=torch.bool)
    outcome = dict.fromkeys(("terminated", "truncated", "success", "valid"), flags)
    obs = Batch({"state": torch.ones(1, 2), "task": ["push"]})
    for replay in (Batch({"tokens": torch.ones(1, 3)}), obs):
        builder.act(obs=obs, replay=replay)
        builder.outcome(reward=torch.zeros(1, 1), **outcome)
        if replay is obs:
            with pytest.raises(BatchError, match="'task' holds strings"):
                builder.build(None)
        else:
            built = builder.build(None)
            assert set(built["obs"]) == {"state"}
            assert built["replay"]["tokens"].shape == (1, 1, 3)


def test_the_builder_refuses_two_acts_in_a_row():
    builder = TrajectoryBuilder()
    builder.act(obs=torch.zeros(1, 1))
    with pytest.raises(BatchError, match="twice"):
        builder.act(obs=torch.zeros(1, 1))
