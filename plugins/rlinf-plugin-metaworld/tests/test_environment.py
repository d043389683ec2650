"""Our environment against Meta-World's own: equal bit for bit, and nothing carried over."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import metaworld  # registers "Meta-World/MT1"
import mujoco
import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP
from metaworld.types import Task
from rlinf_plugin_metaworld import lean
from rlinf_plugin_metaworld.config import TASKS
from rlinf_plugin_metaworld.environment import MetaWorldEnvironment
from rlinf_plugin_metaworld.lean import LeanTask, physics
from scipy.spatial.transform import Rotation

from rlinf_core.api import StateId

FEW = ("reach-v3", "pick-place-v3", "door-open-v3", "basketball-v3", "box-close-v3")
"""Tasks of each sort: nothing moves in the model, bodies move, attributes are live views."""


@contextmanager
def untouched(task: str) -> Iterator[None]:
    """Give the task's module SciPy's rotation back, which the lean tasks replace."""
    module: Any = sys.modules[ALL_V3_ENVIRONMENTS[task].__module__]
    before, module.Rotation = getattr(module, "Rotation", None), Rotation
    yield
    module.Rotation = before


def fresh(task: str, start: np.ndarray) -> Any:
    """Return a new plain task that begins where a MT1 task with this random vector does."""
    cls = ALL_V3_ENVIRONMENTS[task]
    env = cls()
    data = {"env_cls": cls, "rand_vec": start, "partially_observable": False}
    env.set_task(Task(task, pickle.dumps(data)))
    return env


def actions(seed: int, steps: int) -> np.ndarray:
    """Return actions float32 [steps, 4] that tend down and forth, to where things are touched."""
    drift = np.array([0, 0.3, -0.4, 0.2])
    wild = np.random.default_rng(seed).uniform(-1, 1, (steps, 4))
    return (wild + drift).clip(-1, 1).astype(np.float32)


def play(env: MetaWorldEnvironment, state: StateId, steps: int) -> list[Any]:
    """Return first observation, outcomes and physics of an episode's beginning."""
    shown = [env.reset(state)["state"].copy()]
    for action in actions(state.index, steps):
        seen, reward, terminated, truncated, success = env.step(action)
        shown += [seen["state"].copy(), reward, terminated, truncated, success]
    return [*shown, physics(env._task)]


def play_plain(task: str, start: np.ndarray, seed: int, steps: int) -> tuple[list[Any], Any]:
    """Return the same of a new plain task."""
    with untouched(task):
        env = fresh(task, start)
        shown = [env.reset()[0]]
        for action in actions(seed, steps):
            seen, reward, terminated, truncated, info = env.step(action)
            shown += [seen, reward, terminated, truncated, bool(info["success"])]
    return [*shown, physics(env)], env


def assert_same(one: list[Any], other: list[Any]) -> None:
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        assert np.array_equal(a, b), f"entry {number}: {a} and {b}"


def model_arrays(model: Any) -> dict[str, np.ndarray]:
    values = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_equals_the_first_one_of_a_new_plain_task(task: str) -> None:
    env = MetaWorldEnvironment(task)
    assert isinstance(env._task, LeanTask)
    before = copy.deepcopy(model_arrays(env._task.model))
    for index in (3, 11):  # the second after an episode that ended elsewhere
        mine = play(env, StateId("train", index), 30)
        plain, other = play_plain(task, env._task._last_rand_vec, index, 30)
        assert_same(mine, plain)
        after, theirs = model_arrays(env._task.model), model_arrays(other.model)
        changed = {
            name for name in after if not np.array_equal(after[name], before[name], equal_nan=True)
        }
        assert changed <= {"body_pos", "site_pos"}  # what our reset puts back
        assert all(np.array_equal(after[name], theirs[name]) for name in changed)


@pytest.mark.filterwarnings("ignore:Constant")  # of the scripted experts
@pytest.mark.parametrize(
    "task", ["pick-place-v3", "push-v3", "coffee-pull-v3", "sweep-into-v3", "stick-push-v3"]
)
def test_a_task_that_is_solved_by_grasping_equals_the_plain_one(task: str) -> None:
    env, expert = MetaWorldEnvironment(task), ENV_POLICY_MAP[task]()
    seen = env.reset(StateId("train", 1))["state"]
    start, solved, touched = env._task._last_rand_vec, False, 0
    with untouched(task):
        plain = fresh(task, start)
        plain.reset()
        for _ in range(150):
            action = expert.get_action(seen).clip(-1, 1).astype(np.float32)
            shown, reward, _, _, success = env.step(action)
            seen = shown["state"]
            theirs, their_reward, _, _, info = plain.step(action)
            assert np.array_equal(seen, theirs)
            assert (reward, success) == (their_reward, bool(info["success"]))
            touching = env._task.touching_main_object
            assert touching == plain.touching_main_object
            solved, touched = solved or success, touched + touching
    assert solved
    assert touched or task == "coffee-pull-v3"  # where "main object" names another part


@pytest.mark.parametrize("task", TASKS)
def test_a_restored_episode_goes_on_bit_for_bit(task: str) -> None:
    env = MetaWorldEnvironment(task)
    play(env, StateId("train", 5), 15)
    saved = pickle.loads(pickle.dumps(env.state_dict()))

    def go_on() -> list[Any]:
        shown: list[Any] = []
        for action in actions(9, 15):
            seen, *outcome = env.step(action)
            shown += [seen["state"].copy(), *outcome]
        return [*shown, physics(env._task)]

    straight = go_on()
    play(env, StateId("test", 2), 7)
    env.load_state_dict(saved)
    assert_same(straight, go_on())


@pytest.mark.parametrize("task", FEW)
def test_case_e05_nothing_is_carried_over(task: str) -> None:
    env = MetaWorldEnvironment(task)
    first = play(env, StateId("train", 42), 60)
    other = play(env, StateId("train", 7), 60)
    play(env, StateId("test", 42), 3)
    assert_same(first, play(env, StateId("train", 42), 60))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("task", FEW)
def test_case_e05_whatever_was_left_behind_is_gone(task: str) -> None:
    env = MetaWorldEnvironment(task)
    first = play(env, StateId("train", 42), 20)
    inner = env._task
    inner.model.body_pos += 0.1
    inner.model.site_pos += 0.1
    inner.data.qpos[:] += 0.3
    inner.data.qacc_warmstart[:] = 50.0
    for value in (inner.hand_init_pos, inner.mocap_low, *inner.init_config.values()):
        if isinstance(value, np.ndarray):
            value += 0.05  # in place
    inner.max_path_length, inner.action_scale = 3, 0.5
    inner._did_see_sim_exception = inner.left_by_somebody = True
    assert_same(first, play(env, StateId("train", 42), 20))
    assert not hasattr(inner, "left_by_somebody")


@pytest.mark.parametrize("task", FEW)
def test_without_the_shortcuts_all_is_the_same(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = play(MetaWorldEnvironment(task), StateId("train", 1), 60)
    monkeypatch.setattr(lean, "_COMPARED", frozenset())
    with untouched(task):
        env = MetaWorldEnvironment(task)
        assert not isinstance(env._task, LeanTask)
        assert_same(quick, play(env, StateId("train", 1), 60))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Meta-World's own space hides the goal
def test_the_observation_is_the_one_of_mt1() -> None:
    assert metaworld
    theirs = gymnasium.make("Meta-World/MT1", env_name="reach-v3", seed=1)
    shown, _ = theirs.reset(seed=1)
    start = theirs.unwrapped._last_rand_vec
    assert np.array_equal(shown[-3:], start[-3:])  # the goal is in sight
    ours = MetaWorldEnvironment("reach-v3")
    seen = ours.reset(StateId("train", 0))["state"]
    assert np.array_equal(seen[-3:], ours._task._last_rand_vec[-3:])
    with untouched("reach-v3"):
        assert np.array_equal(fresh("reach-v3", start).reset()[0], shown)
    space = ours._task._random_reset_space
    starts = []
    for index in range(200):
        ours.reset(StateId("train", index))
        starts.append(ours._task._last_rand_vec)
    low, high = np.min(starts, axis=0), np.max(starts, axis=0)
    assert (low >= space.low).all()
    assert (high <= space.high).all()
    assert (high - low >= 0.9 * (space.high - space.low)).all()  # all of it is used


def test_an_episode_is_truncated_at_its_limit_and_never_terminated() -> None:
    env = MetaWorldEnvironment("reach-v3", max_episode_steps=7)
    shown = play(env, StateId("train", 0), 7)
    assert shown[3:-1:5] == [False] * 7
    assert shown[4:-1:5] == [False] * 6 + [True]
    whole = MetaWorldEnvironment("reach-v3")
    assert play(whole, StateId("train", 0), 500)[4:-1:5] == [False] * 499 + [True]


def test_rotations_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    for number in range(3000):
        quat = random.normal(size=4) if number % 2 else np.eye(4)[number % 4]
        quat = quat + 1e-4 * random.normal(size=4) * (number % 3)
        matrix = np.empty(9)
        mujoco.mju_quat2Mat(matrix, quat / np.linalg.norm(quat))
        mine = lean._Rotation.from_matrix(matrix.reshape(3, 3)).as_quat()
        assert np.array_equal(mine, Rotation.from_matrix(matrix.reshape(3, 3)).as_quat())
