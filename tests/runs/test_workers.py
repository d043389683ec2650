"""Simulation and rollout workers on the toy world, joined by the inline runtime."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from rlinf_core import __version__
from rlinf_core.builtin.config import DirectConfig, WeightsConfig
from rlinf_core.builtin.weights import FullTransport
from rlinf_core.data.batch import Batch
from rlinf_core.data.outcomes import summary
from rlinf_core.errors import SimulatorError, WorkerFailed
from rlinf_core.protocols.runtime import WorkerSpec
from rlinf_core.protocols.weight_transport import Layout
from rlinf_core.runs.layout import served_by, share, stage_ids, stage_keys, stream_channel
from rlinf_core.runs.workers.stage import Stage
from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.specs import ComponentRef, Kind
from rlinf_core.testing import SimulatorContract, ToyConfig, ToySimulator
from rlinf_core.testing.toy import ToyPolicy
from rlinf_core.transport.weights import WeightStream, checksum, load_into


def ref(kind: Kind, target: str) -> ComponentRef:
    return ComponentRef(kind, "toy", target, "rlinf-core", __version__)


class World:
    """A simulation group and a rollout group on one runtime."""

    def __init__(self, envs=4, stages=1, chunk=1, processes=1, group_size=1, **config):
        self.runtime = InlineRuntime()
        self.stages = stages
        self.simulation = self.runtime.launch(
            WorkerSpec(
                "simulation",
                "rlinf_core.runs.workers.simulation:SimulationWorker",
                {
                    "simulator": ref(Kind.SIMULATOR, "rlinf_core.testing.toy:ToySimulator"),
                    "config": ToyConfig(**config),
                    "envs": envs,
                    "stages": stages,
                    "chunk": chunk,
                    "seed": 3,
                    "group_size": group_size,
                },
            ),
            processes,
        )
        self.rollout = self.runtime.launch(
            WorkerSpec(
                "rollout",
                "rlinf_core.runs.workers.rollout:RolloutWorker",
                {
                    "engine": ref(Kind.ROLLOUT_ENGINE, "rlinf_core.builtin.direct:DirectEngine"),
                    "engine_config": DirectConfig(),
                    "model": ref(Kind.MODEL, "rlinf_core.testing.toy:ToyPolicy"),
                    "model_config": None,
                    "weights": ref(
                        Kind.WEIGHT_TRANSPORT, "rlinf_core.builtin.weights:FullTransport"
                    ),
                    "weights_config": WeightsConfig(),
                    "chunk": chunk,
                    "seed": 3,
                },
            )
        )
        self.channels = [self.runtime.channel(name) for name in ("observations", "actions")]
        self.trajectories = self.runtime.channel("trajectories")
        self.spaces = self.simulation.call("spaces").wait()[0]
        self.rollout.call("build", self.spaces).wait()
        self.keys = stage_keys(processes, stages)

    def collect(self, steps: int, first: int = 0) -> tuple[Batch, list]:
        done = self.simulation.call("collect", steps, *self.channels)
        served = self.rollout.call(
            "serve", first, steps, self.keys, *self.channels, self.trajectories, [range(99)]
        )
        episodes = [e for part in done.wait() for e in part]
        served.wait()
        pieces = [self.trajectories.get(key=(0, *key)) for key in self.keys]
        return Batch.cat(pieces, dim=1), episodes

    def evaluate(self, episodes: int, split: str = "test"):
        done = self.simulation.call("evaluate", split, episodes, *self.channels, False)
        answered = self.rollout.call("answer", self.keys, *self.channels)
        found = [e for part, *_ in done.wait() for e in part]
        answered.wait()
        return found


@pytest.fixture
def world():
    made: list[World] = []

    def make(**options) -> World:
        made.append(World(**options))
        return made[-1]

    yield make
    for one in made:
        one.runtime.close()


class TestToySimulator(SimulatorContract):
    steps = 3

    def make(self, slots):
        return ToySimulator(ToyConfig(horizon=30), slots)


def test_case_e01_a_masked_reset_leaves_state_observation_and_count_alone(world):
    sim = ToySimulator(ToyConfig(), stage_slots(4))
    sim.reset(torch.ones(4, dtype=torch.bool), sim.initial_states("train")[:4])
    before = sim.step(torch.full((4, 1, 2), 0.5)).obs["state"]
    after = sim.reset(torch.tensor([False, True, False, True]), sim.initial_states("train")[5:7])
    assert torch.equal(after["state"][[0, 2]], before[[0, 2]])
    assert after["state"][[1, 3], 1].tolist() == [0.0, 0.0]
    assert sim.count.tolist() == [1, 0, 1, 0]


def stage_slots(n):
    from rlinf_core.protocols.simulator import EnvSlots

    return EnvSlots(tuple(range(n)), seed=0)


def test_case_e02_each_initial_state_is_visited_exactly_once_with_any_number_of_environments(world):
    results = {}
    for envs, stages, processes in [(2, 1, 1), (5, 1, 1), (16, 1, 1), (6, 2, 1), (4, 1, 2)]:
        episodes = world(envs=envs, stages=stages, processes=processes, terminate=True).evaluate(10)
        assert sorted(e.state for e in episodes) == sorted(f"test/{i}" for i in range(10))
        results[envs] = sorted((e.state, e.length, e.total, e.success_once) for e in episodes)
    first, *others = results.values()
    assert all(other == first for other in others)
    assert len({length for _, length, _, _ in first}) > 1  # episodes of different length


def test_more_episodes_than_initial_states_are_refused(world):
    with pytest.raises(WorkerFailed, match="11 evaluation episodes.*has 10 initial states"):
        world().evaluate(11)


def test_case_e03_steps_after_the_end_inside_a_chunk_earn_nothing(world):
    """Horizon 2, chunk 5: only two steps of the chunk happen, then a new episode starts."""
    made = world(envs=2, chunk=5, horizon=2)
    trajectory, episodes = made.collect(steps=2)
    assert trajectory["valid"].tolist() == [[[True, True, False, False, False]] * 2] * 2
    assert not trajectory["reward"][..., 2:].any()
    assert [e.length for e in episodes] == [2, 2, 2, 2]
    assert (trajectory["obs"]["state"][1, :, 1] == 0).all()  # not stepped into the next episode


def test_case_e04_three_step_episodes_give_exactly_three_valid_rows_each(world):
    trajectory, episodes = world(envs=2, horizon=3).collect(steps=9)
    assert trajectory["valid"].sum() == 18
    assert len(episodes) == 6
    assert trajectory["obs"]["state"][:, 0, 1].tolist() == [0, 1, 2] * 3


def test_case_e07_every_row_can_be_traced_to_its_environment_and_streams_are_disjoint(world):
    made = world(envs=8, stages=2, processes=2)
    trajectory, _ = made.collect(steps=3)
    assert sorted(trajectory["env"][0].tolist()) == list(range(8))
    assert (trajectory["env"] == trajectory["env"][0]).all()
    noise = trajectory["replay"]["noise"]
    assert len(set(noise.flatten().tolist())) == noise.numel()
    assert (trajectory["version"] == -1).all()


def test_how_environments_are_dealt_out_changes_no_number(world):
    def by_env(**options):
        trajectory, episodes = world(envs=8, horizon=4, **options).collect(steps=6)
        order = trajectory["env"][0].argsort()
        rows = {k: trajectory[k][:, order] for k in ("reward", "value", "next_value", "logp")}
        return rows, sorted((e.env, e.state, e.total) for e in episodes)

    plain, plain_episodes = by_env()
    for options in ({"stages": 2}, {"stages": 4}, {"processes": 2}, {"processes": 2, "stages": 2}):
        other, episodes = by_env(**options)
        assert episodes == plain_episodes
        for name, tensor in plain.items():
            assert torch.equal(tensor, other[name]), (options, name)


def test_next_value_is_the_final_observations_at_a_truncation_and_zero_at_a_termination(world):
    truncated, _ = world(envs=4, horizon=2).collect(steps=4)
    # the policy's value is minus the distance, which is the very reward of the step that led there
    assert torch.equal(truncated["next_value"][1], truncated["reward"][1, :, 0])
    assert torch.equal(truncated["next_value"][0], truncated["value"][1])
    terminated, _ = world(envs=4, horizon=50, terminate=True).collect(steps=12)
    ends = terminated["terminated"][..., 0]
    assert ends.any()
    assert not terminated["next_value"][ends].any()


def test_collecting_twice_goes_on_where_it_stopped(world):
    once, _ = world(envs=3, horizon=5).collect(steps=8)
    made = world(envs=3, horizon=5)
    first, _ = made.collect(steps=4)
    second, _ = made.collect(steps=4, first=4)
    assert torch.equal(once["reward"], torch.cat([first["reward"], second["reward"]]))
    assert torch.equal(once["logp"], torch.cat([first["logp"], second["logp"]]))


def test_restarting_at_a_checkpoint_equals_starting_from_its_counters(world):
    made = world(envs=3, horizon=5)
    made.collect(steps=7)
    assert made.simulation.call("restart").wait() == [True]
    assert made.simulation.call("restart").wait() == [False]
    counters = made.simulation.call("counters").wait()[0]
    assert counters == {"0": 2, "1": 2, "2": 2}
    went_on, _ = made.collect(steps=3, first=7)

    resumed = world(envs=3, horizon=5)
    resumed.simulation.call("set_counters", counters).wait()
    after, _ = resumed.collect(steps=3, first=7)
    assert torch.equal(went_on["reward"], after["reward"])


def test_an_episode_that_just_began_is_not_thrown_away(world):
    made = world(envs=3, horizon=5)
    made.collect(steps=5)
    assert made.simulation.call("restart").wait() == [False]
    assert made.simulation.call("counters").wait()[0] == {"0": 1, "1": 1, "2": 1}


def test_members_of_a_group_start_from_one_state(world):
    _, episodes = world(envs=4, group_size=2, horizon=2).collect(steps=4)
    states = {(e.env, n): e.state for n, e in enumerate(sorted(episodes, key=lambda e: e.env))}
    by_env = {env: [s for (e, _), s in states.items() if e == env] for env in range(4)}
    assert by_env[0] == by_env[1]
    assert by_env[2] == by_env[3]
    assert by_env[0] != by_env[2]


def test_success_is_counted_over_evaluated_episodes(world):
    metrics = summary(world(horizon=6).evaluate(10))
    assert metrics["episode/count"] == 10
    assert metrics["episode/success_once"] == 1.0


def test_a_channel_has_room_for_every_stream():
    assert stream_channel(3).capacity == 64
    assert stream_channel(200).capacity == 200


def test_environments_are_shared_out_completely_and_nearly_equally():
    assert [len(share(10, 4, i)) for i in range(4)] == [2, 3, 2, 3]
    ids = [i for rank in range(2) for stage in stage_ids(7, 2, rank, 2) for i in stage]
    assert ids == list(range(7))
    keys = stage_keys(2, 2)
    assert sorted(served_by(keys, 2, 0) + served_by(keys, 2, 1)) == sorted(keys)


# --- weights --------------------------------------------------------------------------------------


def test_weights_arrive_whole_under_their_version(world):
    made = world()
    channels = made.runtime.channel("weights"), made.runtime.channel("replies")
    made.rollout.call("open_weights", *channels, Layout(), Layout()).wait()
    sender = FullTransport(WeightsConfig())
    sender.open(*channels, Layout(rank=0), Layout())
    received = made.rollout.call("receive_weights")
    sender.send(WeightStream.of(ToyPolicy(None, made.spaces, 1), version=4), 4)
    (receipt,) = received.wait()
    assert (receipt.keys, receipt.version) == (1, 4)
    assert (made.collect(steps=1)[0]["version"] == 4).all()


def test_case_w05_weights_that_leave_one_out_or_match_none_are_refused_and_change_nothing(world):
    policy = torch.nn.Linear(2, 2)
    before = checksum(policy.state_dict())
    for broken, message in [
        ({"weight": torch.ones(2, 2)}, r"missing \['bias'\]"),
        ({"weight": torch.ones(2, 2), "bias": torch.ones(2), "extra": torch.ones(1)}, "extra"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(2)}, r"got \[2, 3\], wanted \[2, 2\]"),
        ({"wieght": torch.ones(2, 2), "bias": torch.ones(2)}, "Did you mean 'weight'"),
    ]:
        with pytest.raises(Exception, match=message):
            load_into(policy, WeightStream.from_tensors(broken, 1))
    assert checksum(policy.state_dict()) == before
    whole = {"weight": torch.ones(2, 2), "bias": torch.ones(2)}
    load_into(policy, WeightStream.from_tensors(whole, 1))
    assert checksum(policy.state_dict()) != before


def test_a_stream_that_ends_before_its_header_says_is_refused():
    policy = torch.nn.Linear(2, 2)
    whole = WeightStream.of(torch.nn.Linear(2, 2), 1)
    with pytest.raises(Exception, match=r"\['bias'\] of its header did not come"):
        load_into(policy, WeightStream(whole.header, list(whole)[:1]))


# --- episodes under way across a checkpoint -------------------------------------------------------


def test_a_simulator_that_restores_goes_on_in_the_middle_of_its_episodes(world, tmp_path):
    options = {"envs": 4, "stages": 2, "horizon": 5}
    made = world(**options)
    made.collect(steps=7)
    made.simulation.call("save", str(tmp_path)).wait()
    counters = made.simulation.call("counters").wait()[0]
    went_on, episodes = made.collect(steps=6, first=7)

    resumed = world(**options)
    resumed.simulation.call("set_counters", counters).wait()
    assert resumed.simulation.call("load", str(tmp_path)).wait() == [True]
    after, after_episodes = resumed.collect(steps=6, first=7)
    assert torch.equal(went_on["reward"], after["reward"])
    assert episodes == after_episodes
    assert [e.length for e in episodes] == [5, 5, 5, 5]


def test_saved_episodes_of_another_layout_are_not_loaded(world, tmp_path):
    made = world(envs=4, stages=2)
    made.collect(steps=2)
    made.simulation.call("save", str(tmp_path)).wait()
    assert world(envs=4, stages=1).simulation.call("load", str(tmp_path)).wait() == [False]
    assert world(envs=4).simulation.call("load", str(tmp_path / "no")).wait() == [False]


# --- broken contracts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward": torch.zeros(2, 1, dtype=torch.float64)}, "reward is torch.float64; wanted"),
        ({"valid": torch.ones(2, 1)}, "valid is torch.float32; wanted torch.bool"),
        ({"success": None}, "success is NoneType"),
        ({"terminated": torch.zeros(2, dtype=torch.bool)}, r"terminated has shape \[2\]; wanted"),
        ({"obs": None}, "obs gave a NoneType; wanted a Batch of 2 rows"),
        ({"valid": torch.zeros(2, 1, dtype=torch.bool)}, r"\[0, 1\] executed no step"),
    ],
)
def test_a_simulator_that_breaks_its_contract_is_named_at_once(change, said):
    class Broken(ToySimulator):
        def step(self, actions):
            return dataclasses.replace(super().step(actions), **change)

    stage = Stage(Broken(ToyConfig(), stage_slots(2)), seed=0, group_size=1)
    stage.greeting()
    with pytest.raises(SimulatorError, match=said):
        stage.step(torch.zeros(2, 1, 2))


def test_a_simulator_whose_reset_gives_nothing_is_named_at_once():
    class Broken(ToySimulator):
        def reset(self, mask, states):
            return None

    with pytest.raises(SimulatorError, match=r"reset\(\) gave a NoneType"):
        Stage(Broken(ToyConfig(), stage_slots(2)), seed=0, group_size=1).greeting()
