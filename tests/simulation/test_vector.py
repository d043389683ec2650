"""Gymnasium vector environments as simulators, in each autoreset mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from simulation_toys import Forgetful, Three
from torch import Tensor

from rlinf_core.errors import SimulatorError
from rlinf_core.protocols.simulator import Autoreset, EnvSlots, StateId
from rlinf_core.simulation import VectorSimulator, from_vector_env
from rlinf_core.testing import SimulatorContract

MODES = list(AutoresetMode)
Make = Callable[..., VectorSimulator]


def wrap(make_env: Callable[[], Any], count: int, seed: int = 0, **options: Any) -> VectorSimulator:
    slots = EnvSlots(tuple(range(count)), seed=seed)
    return from_vector_env(make_env, slots, states={"train": 10**6, "test": 10}, **options)


@pytest.fixture
def three() -> Iterator[Make]:
    """Make a simulator of episodes of three steps."""
    made: list[VectorSimulator] = []

    def build(mode: AutoresetMode, count: int = 2, kind: Any = SyncVectorEnv, **given: Any) -> Any:
        seed = given.pop("seed", 0)
        envs = [partial(Three, **given)] * count
        made.append(wrap(lambda: kind(envs, autoreset_mode=mode), count, seed))
        return made[-1]

    yield build
    for simulator in made:
        simulator.close()


def states(*indices: int) -> list[StateId]:
    return [StateId("train", index) for index in indices]


def everyone(count: int) -> Tensor:
    return torch.ones(count, dtype=torch.bool)


class TestPendulumDisabled(SimulatorContract):
    mode = AutoresetMode.DISABLED

    def make(self, slots: EnvSlots) -> VectorSimulator:
        options = {"autoreset_mode": self.mode}
        env = partial(
            gymnasium.make_vec,
            "Pendulum-v1",
            num_envs=len(slots.ids),
            vectorization_mode="sync",
            vector_kwargs=options,
        )
        return from_vector_env(env, slots, states={"train": 1000, "test": 10})


class TestPendulumNextStep(TestPendulumDisabled):
    mode = AutoresetMode.NEXT_STEP


class TestPendulumSameStep(TestPendulumDisabled):
    mode = AutoresetMode.SAME_STEP


class TestCartPole(SimulatorContract):
    steps = 6

    def make(self, slots: EnvSlots) -> VectorSimulator:
        env = partial(
            gymnasium.make_vec,
            "CartPole-v1",
            num_envs=len(slots.ids),
            vectorization_mode="sync",
        )
        return from_vector_env(env, slots, states={"train": 1000, "test": 10})


@pytest.mark.parametrize(
    ("kind", "chunk"),
    [(SyncVectorEnv, 1), (SyncVectorEnv, 2), (SyncVectorEnv, 5), (AsyncVectorEnv, 5)],
)
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("mode", MODES)
def test_case_e04_three_steps_are_three_valid_rows_in_every_mode(
    three: Make, mode: AutoresetMode, chunk: int, ends: str, kind: Any
) -> None:
    simulator = three(mode, kind=kind, ends=ends)
    simulator.reset(everyone(2), states(0, 1))
    rewards: list[list[float]] = [[], []]
    episodes = [0, 0]
    while min(episodes) < 4:
        step = simulator.step(torch.full((2, chunk, 1), 0.5))
        ended = getattr(step, ends)
        assert not (step.truncated if ends == "terminated" else step.terminated).any()
        assert not step.reward[~step.valid].any()
        assert torch.equal(step.success, step.valid & (step.reward >= 20))
        for row in range(2):
            rewards[row] += step.reward[row][step.valid[row]].tolist()
            episodes[row] += int(ended[row].sum())
        last = step.obs if step.final_obs is None else step.final_obs
        assert (last["state"][ended.any(1), 1] == 3).all()
        if simulator.autoreset is Autoreset.SAME_STEP:
            assert (step.obs["state"][ended.any(1), 1] == 0).all()
        elif ended.any():
            assert not simulator.step(torch.full((2, chunk, 1), 0.5)).valid.any()
            simulator.reset(ended.any(1), states(*range(int(ended.sum()))))
    for row in range(2):
        assert rewards[row] == [10.5, 20.5, 30.5] * episodes[row]


def test_modes_are_declared(three: Make) -> None:
    found = [three(mode).autoreset for mode in MODES]
    wanted = dict.fromkeys(MODES, Autoreset.DISABLED)
    wanted[AutoresetMode.SAME_STEP] = Autoreset.SAME_STEP
    assert found == list(wanted.values())


@pytest.mark.parametrize("mode", MODES)
def test_case_e01_a_masked_reset_moves_only_its_own(three: Make, mode: AutoresetMode) -> None:
    simulator = three(mode, 4)
    simulator.reset(everyone(4), states(0, 1, 2, 3))
    before = simulator.step(torch.zeros(4, 1, 1)).obs["state"]
    after = simulator.reset(torch.tensor([False, True, False, True]), states(8, 9))["state"]
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert after[:, 1].tolist() == [1, 0, 1, 0]
    ended = [simulator.step(torch.zeros(4, 1, 1)).terminated[:, 0].tolist() for _ in range(3)]
    assert ended == [[False] * 4, [True, False, True, False], [False, True, False, True]]


@pytest.mark.parametrize("mode", MODES)
def test_case_e05_the_same_state_gives_the_same_start(three: Make, mode: AutoresetMode) -> None:
    simulator = three(mode)
    seen = []
    for index in (42, 7, 42):
        seen.append(simulator.reset(everyone(2), states(index, index))["state"])
        for _ in range(4):
            simulator.step(torch.zeros(2, 1, 1))
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[1])


def test_what_same_step_draws_follows_from_the_runs_seed_alone(three: Make) -> None:
    def starts(seed: int, chunk: int) -> list[Any]:
        simulator = three(AutoresetMode.SAME_STEP, seed=seed)
        simulator.reset(everyone(2), states(0, 1))
        found = []
        while len(found) < 3:
            step = simulator.step(torch.zeros(2, chunk, 1))
            if step.terminated.any():
                found.append(step.obs["state"][:, 0].tolist())
        return found

    assert starts(1, chunk=1) == starts(1, chunk=5)
    assert starts(1, chunk=1) != starts(2, chunk=1)
    assert len({start for pair in starts(1, 1) for start in pair}) == 6


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_executed_before_the_first_reset(three: Make, mode: AutoresetMode) -> None:
    simulator = three(mode)
    for _ in range(5):
        assert not simulator.step(torch.full((2, 1, 1), torch.nan)).valid.any()


def test_frames_come_where_the_environment_was_made_to_draw(three: Make) -> None:
    assert three(AutoresetMode.DISABLED).render() is None
    simulator = three(AutoresetMode.DISABLED, render_mode="rgb_array")
    simulator.reset(everyone(2), states(0, 1))
    simulator.step(torch.zeros(2, 1, 1))
    frames = simulator.render()
    assert frames is not None
    assert frames.shape == (2, 4, 4, 3)
    assert (frames == 1).all()


def test_dict_observations_become_state_and_images() -> None:
    class Seeing(Three):
        observation_space = gymnasium.spaces.Dict(
            {
                "wrist": gymnasium.spaces.Box(0, 255, (2, 2, 3), np.uint8),
                "joints": gymnasium.spaces.Box(-1, 1, (2,), np.float64),
                "hand": gymnasium.spaces.Box(-1, 1, (1, 3), np.float32),
            }
        )

        def look(self) -> Any:
            return {
                "wrist": np.full((2, 2, 3), self.steps, np.uint8),
                "joints": np.full(2, self.steps / 10, np.float64),
                "hand": np.full((1, 3), self.start, np.float32),
            }

    for mode in MODES:
        simulator = wrap(lambda mode=mode: SyncVectorEnv([Seeing] * 2, autoreset_mode=mode), 2)
        assert simulator.spaces.observation["state"].shape == (5,)
        simulator.reset(everyone(2), states(0, 1))
        for _ in range(3):
            step = simulator.step(torch.zeros(2, 1, 1))
        last = step.obs if step.final_obs is None else step.final_obs
        assert last["images"]["wrist"].shape == (2, 2, 2, 3)
        assert (last["images"]["wrist"] == 3).all()
        assert torch.allclose(last["state"][:, 3:], torch.tensor(0.3))  # hand comes before joints
        simulator.close()


# --- refusals -----------------------------------------------------------------------------------


def test_an_undeclared_mode_is_refused() -> None:
    def undeclared() -> Any:
        env = SyncVectorEnv([Three])
        del env.metadata["autoreset_mode"]
        return env

    with pytest.raises(SimulatorError, match="does not say what happens when an episode ends"):
        wrap(undeclared, 1)


def test_another_number_of_environments_is_refused() -> None:
    with pytest.raises(SimulatorError, match="has 1 environments; the run wants 2"):
        wrap(lambda: SyncVectorEnv([Three]), 2)


@pytest.mark.parametrize("mode", MODES)
def test_an_environment_that_ignores_the_mask_is_refused(mode: AutoresetMode) -> None:
    simulator = wrap(lambda: Forgetful([Three] * 2, autoreset_mode=mode), 2)
    simulator.reset(everyone(2), states(0, 1))
    simulator.step(torch.zeros(2, 1, 1))
    with pytest.raises(SimulatorError, match="reset more environments than"):
        simulator.reset(torch.tensor([True, False]), states(5))
    simulator.close()


def test_an_environment_without_seeds_for_each_is_refused() -> None:
    env = partial(
        gymnasium.make_vec, "CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point"
    )
    with pytest.raises(SimulatorError, match="takes no list of seeds"):
        wrap(env, 2)


def test_spaces_without_a_default_are_refused_by_name() -> None:
    class Odd(Three):
        action_space = gymnasium.spaces.MultiDiscrete([2, 3])  # type: ignore[assignment]

    with pytest.raises(SimulatorError, match=r"MultiDiscrete.*pass action="):
        wrap(lambda: SyncVectorEnv([Odd]), 1)
    box = gymnasium.spaces.Box(0, 2, (2,), np.float32)
    given = (box, lambda values: values.round().astype(np.int64))
    wrap(lambda: SyncVectorEnv([Odd]), 1, action=given).close()


def test_saving_is_refused(three: Make) -> None:
    with pytest.raises(SimulatorError, match="no capability RESTORE"):
        three(AutoresetMode.DISABLED).state_dict()
