"""Environments of all kinds behind the simulator protocol."""

from __future__ import annotations

import multiprocessing
import warnings

import gymnasium
import gymnasium_toys
import numpy as np
import pytest
import torch
from rlinf_plugin_gymnasium.actions import actions_of
from rlinf_plugin_gymnasium.config import GymnasiumConfig
from rlinf_plugin_gymnasium.simulator import make_simulator

from rlinf_core.api import Autoreset, EnvSlots, SimulatorError, state_seed
from rlinf_core.testing import SimulatorContract


class TestPendulum(SimulatorContract):
    steps = 6

    def make(self, slots):
        return make_simulator(GymnasiumConfig(id="Pendulum-v1", max_episode_steps=10), slots)


class TestDiscreteWalk(SimulatorContract):
    steps = 3

    def make(self, slots):
        config = GymnasiumConfig(id="gymnasium_toys:ToyWalk-v0", success="is_success")
        return make_simulator(config, slots)


class TestFactory(SimulatorContract):
    steps = 3

    def make(self, slots):
        return make_simulator(GymnasiumConfig(factory="gymnasium_toys:make_world"), slots)


@pytest.fixture
def make():
    """Return a function that makes a simulator of ToyWalk, or of another."""
    made = []

    def make(envs: int = 2, chunk: int = 1, **options):
        if "factory" not in options:
            options = {"id": "gymnasium_toys:ToyWalk-v0", **options}
        slots = EnvSlots(tuple(range(envs)), seed=0, chunk=chunk)
        made.append(make_simulator(GymnasiumConfig(**options), slots))
        return made[-1]

    yield make
    for simulator in made:
        simulator.close()


def begin(simulator, *indices: int):
    states = simulator.initial_states("train")
    every = torch.ones(len(indices), dtype=torch.bool)
    return simulator.reset(every, [states[i] for i in indices])


def move(*by: int) -> torch.Tensor:
    """Return scores [N, 1, 3] for these moves, each -1, 0 or 1."""
    return torch.nn.functional.one_hot(torch.tensor(by) + 1, 3).float().unsqueeze(1)


# --- spaces ---------------------------------------------------------------------------------------


def test_a_discrete_action_is_the_one_with_the_largest_score(make):
    simulator = make(3)
    assert simulator.spaces.action == gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    before = begin(simulator, 0, 0, 0)["state"][:, 0]
    after = simulator.step(torch.tensor([[[0.1, 0.0, 0.2]], [[-0.3, -0.2, -0.9]], [[1.0, 0, 0]]]))
    want = (before + torch.tensor([1, 0, -1])).clamp(min=0)
    assert after.obs["state"][:, 0].tolist() == want.tolist()


def test_boxes_of_any_shape_and_type_are_taken():
    space = gymnasium.spaces.Box(-2.0, np.array([[1.0, 2.0], [3.0, np.inf]]), (2, 2), np.float64)
    box, take = actions_of(space)
    assert box.high.tolist() == [1.0, 2.0, 3.0, np.inf]
    assert (box.shape, box.dtype) == ((4,), np.float32)
    taken = take(np.array([[0.0, 1.0, 2.0, 3.0]], np.float32))
    assert taken.dtype == np.float64
    assert taken.tolist() == [[[0.0, 1.0], [2.0, 3.0]]]
    with pytest.raises(SimulatorError, match="Box of real numbers"):
        actions_of(gymnasium.spaces.Box(0, 5, (2,), np.int64))


def test_what_is_refused_is_closed(make, monkeypatch):
    monkeypatch.setattr(gymnasium_toys.Odd, "closed", 0)
    with pytest.raises(SimulatorError):
        make(id="gymnasium_toys:ToyOdd-v0")
    assert gymnasium_toys.Odd.closed == 2


def test_discrete_observations_are_one_hot(make):
    simulator = make(kwargs={"show": "discrete"})
    state = begin(simulator, 0, 1)["state"]
    assert state.shape == (2, 10)
    assert state.sum(dim=1).tolist() == [1.0, 1.0]


def test_images_and_numbers_of_a_dictionary(make):
    obs = begin(make(kwargs={"show": "image"}), 0, 1)
    assert obs["images"]["front"].shape == (2, 4, 6, 3)
    assert obs["state"].shape == (2, 1)
    assert obs["images"]["front"][:, 0, 0, 0].tolist() == obs["state"][:, 0].tolist()


def test_what_cannot_be_made_is_named(make):
    for options, told in (
        ({"id": "gymnasium_toys:ToyOdd-v0"}, "actions from MultiBinary"),
        ({"id": "gymnasium_toys:ToyFly-v0"}, "no environment 'gymnasium_toys:ToyFly-v0'"),
        ({"id": "no_such_package:Toy-v0"}, "No module named 'no_such_package'"),
        ({"factory": "gymnasium_toys:make_wrld"}, "'gymnasium_toys:make_wrld' cannot be imported"),
        ({"factory": "gymnasium_toys:make_nothing"}, "returned 'nothing'; wanted a gymnasium"),
        ({"vectorization": "vector_entry_point"}, "without a vector entry point"),
    ):
        with pytest.raises(SimulatorError, match=told):
            make(**options)
    with pytest.raises(SimulatorError, match="takes no list of seeds"):
        make(id="CartPole-v1", vectorization="vector_entry_point")


# --- episodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "DISABLED", "NEXT_STEP"])
def test_case_e04_an_episode_of_three_steps_has_three_valid_rows(mode, make):
    options = {"max_episode_steps": 3}
    if mode != "sync":
        options = {"factory": "gymnasium_toys:make_world", "kwargs": {"mode": mode}}
    simulator = make(1, **options)
    assert simulator.autoreset is Autoreset.DISABLED
    start = next(i for i in range(99) if begin(simulator, i)["state"][0, 0] == 4)
    begin(simulator, start)
    rows = [simulator.step(move(0 if mode == "sync" else 1)) for _ in range(7)]
    wanted = 3 if mode == "sync" else 5  # from 4 to 9
    assert [bool(row.valid) for row in rows] == [True] * wanted + [False] * (7 - wanted)
    ends = [(bool(row.terminated), bool(row.truncated)) for row in rows]
    assert ends[wanted - 1] == ((False, True) if mode == "sync" else (True, False))
    assert sum(map(any, ends)) == 1


def test_case_e01_only_the_masked_environments_move(make):
    simulator = make(4)
    begin(simulator, 0, 1, 2, 3)
    before = simulator.step(move(1, 1, 1, 1)).obs["state"]
    mask = torch.tensor([False, True, False, True])
    states = simulator.initial_states("test")
    after = simulator.reset(mask, [states[0], states[1]])["state"]
    assert torch.equal(before[~mask], after[~mask])
    assert not torch.equal(before[mask], after[mask])


def test_case_e03_a_chunk_stops_at_the_end_of_an_episode(make):
    simulator = make(1, chunk=5, max_episode_steps=2)
    begin(simulator, 0)
    step = simulator.step(move(1).repeat(1, 5, 1))
    assert step.valid.tolist() == [[True, True, False, False, False]]
    assert step.reward[0, 2:].tolist() == [0.0] * 3


def test_case_e05_a_state_is_the_seed_that_belongs_to_it(make):
    simulator = make(1, seed_bits=31)
    (state,) = (simulator.initial_states("train")[7],)
    first, _, third = (begin(simulator, i)["state"] for i in (7, 3, 7))
    assert torch.equal(first, third)
    env = gymnasium.make("ToyWalk-v0")
    assert env.reset(seed=state_seed(state, 31))[0].tolist() == first[0].tolist()


def test_numbers_of_states_are_those_of_the_options(make):
    simulator = make(train_states=3, test_states=2)
    assert [len(simulator.initial_states(split)) for split in ("train", "test")] == [3, 2]


@pytest.mark.parametrize(("vectorization", "wanted"), [(None, 0), ("sync", 0), ("async", 2)])
def test_there_is_a_process_per_environment_only_where_asked(vectorization, wanted, make):
    before = len(multiprocessing.active_children())
    simulator = make(vectorization=vectorization)
    children = multiprocessing.active_children()
    assert len(children) - before == wanted
    assert not any(type(child).__name__ == "ForkProcess" for child in children)  # locks are copied
    simulator.close()
    assert len(multiprocessing.active_children()) == before


def test_processes_change_no_number(make):
    shown = []
    for vectorization in ("sync", "async"):
        simulator = make(vectorization=vectorization, success="is_success")
        steps = [begin(simulator, 5, 6)["state"]]
        for by in (1, 1, -1, 0):
            step = simulator.step(move(by, 1))
            steps += [step.obs["state"], step.reward, step.success]
        shown.append(torch.cat([part.float() for part in steps], dim=1))
        assert simulator.render().shape == (2, 4, 6, 3)
    assert torch.equal(*shown)


# --- success --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "first"),
    [({"success": "is_success"}, 8), ({"success_reward": 7.0}, 7), ({}, 99)],
    ids=str,
)
@pytest.mark.parametrize("factory", [False, True])
def test_success_is_told_by_a_key_or_by_the_reward(factory, options, first, make):
    """Also at an end, where a factory's environment has begun its next episode (SAME_STEP)."""
    if factory:
        options = {**options, "factory": "gymnasium_toys:make_world"}
    simulator = make(1, **options)
    begin(simulator, 0)
    for _ in range(10):
        step = simulator.step(move(1))
        if step.valid.all():
            assert bool(step.success) == (step.reward.item() >= first)
        if step.terminated.any():
            break
    assert step.reward.item() == 9


# --- pictures -------------------------------------------------------------------------------------


def test_pictures_are_of_every_environment(make):
    simulator = make()
    at = begin(simulator, 0, 1)["state"][:, 0]
    pictures = simulator.render()
    assert pictures.dtype == np.uint8
    assert pictures[:, 0, 0, 0].tolist() == at.tolist()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_case_e10_where_nothing_can_be_drawn_the_simulation_goes_on(vectorization, make):
    simulator = make(vectorization=vectorization, kwargs={"broken": True})
    begin(simulator, 0, 1)
    with pytest.warns(UserWarning, match="draws no pictures: no screen here"):
        assert simulator.render() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once, tried once
        assert simulator.render() is None
    assert simulator.step(move(1, 1)).valid.all()


def test_pictures_can_be_left_out(make):
    assert make(render=False).render() is None


def test_a_factory_draws_as_it_was_made(make):
    drawing = make(factory="gymnasium_toys:make_world", kwargs={"render_mode": "rgb_array"})
    begin(drawing, 0, 1)
    assert drawing.render().shape == (2, 4, 6, 3)
    assert make(factory="gymnasium_toys:make_world").render() is None
