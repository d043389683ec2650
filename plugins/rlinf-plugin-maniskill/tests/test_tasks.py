"""All tasks of the installed ManiSkill: the table, the shortcuts, and what episodes depend on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from mani_skill.utils import common
from mani_skill.utils.geometry import rotation_conversions
from mani_skill.utils.registration import REGISTERED_ENVS
from rlinf_plugin_maniskill import lean, tasks
from rlinf_plugin_maniskill.config import ManiSkillConfig
from rlinf_plugin_maniskill.environment import ManiSkillEnvironment
from rlinf_plugin_maniskill.facts import make_spaces
from rlinf_plugin_maniskill.measure import measure
from rlinf_plugin_maniskill.simulator import make_options

from rlinf_core.api import StateId

KNOWN = [name for name in tasks.names() if tasks.known(name)]
FEW = ("PlaceSphere-v1", "UnitreeG1Stand-v1", "TwoRobotPickCube-v1")
"""Tasks of each sort: with contacts from the start, without a table, with two robots."""


def make(name: str, **options: Any) -> ManiSkillEnvironment:
    config = ManiSkillConfig(task=name, **options)
    return ManiSkillEnvironment(name, make_options(config), 1_000)


def actions(env: ManiSkillEnvironment, seed: int, steps: int) -> np.ndarray:
    """Return actions float32 [steps, A] with a tendency, so that something is touched."""
    random = np.random.default_rng(seed)
    wild = random.uniform(-1, 1, (steps, env.width)) + random.uniform(-0.5, 0.5, env.width)
    return wild.clip(-1, 1).astype(np.float32)


def play(env: ManiSkillEnvironment, index: int, steps: int) -> np.ndarray:
    """Return all that is seen in an episode's beginning."""
    shown = [env.reset(StateId("train", index))["state"].copy()]
    for action in actions(env, index, steps):
        seen, *outcome = env.step(action)
        shown.append(np.concatenate((seen["state"], outcome)))
    return np.concatenate(shown)


@pytest.fixture
def plain() -> Iterator[None]:
    """ManiSkill without the shortcuts, until somebody takes them."""
    lean.lengthen()
    yield
    lean.shorten()


def test_the_table_has_all_tasks() -> None:
    assert set(tasks.names()) == set(REGISTERED_ENVS)
    assert len(KNOWN) == 45


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", KNOWN)
def test_case_e05_a_task_is_as_the_table_says_and_nothing_is_carried_over(name: str) -> None:
    """Once with ManiSkill's own code, then with the shortcuts after other episodes."""
    env, task = make(name), tasks.known(name)
    assert task is not None
    spaces = make_spaces(ManiSkillConfig(task=name), task)
    slow = play(env, 0, 8)
    width = spaces.observation["state"].shape[0]
    assert len(slow) == width + 8 * (width + 4)
    assert env.width == spaces.action.shape[0]
    assert env._task.reward_mode in task.rewards
    assert REGISTERED_ENVS[name].max_episode_steps == task.max_episode_steps
    with torch.inference_mode():
        assert ("success" in env._task.get_info()) == task.success
    assert lean.shorten() == []
    assert not np.array_equal(slow, play(env, 1, 8))
    assert np.array_equal(slow, play(env, 0, 8), equal_nan=True)
    env.close()


def test_measuring_a_task_gives_its_entry() -> None:
    found, task = measure("PlaceSphere-v1"), tasks.known("PlaceSphere-v1")
    assert tasks.Task.of(found["task"], found["robots"]) == task


def push(env: ManiSkillEnvironment, index: int) -> tuple[np.ndarray, bool]:
    """Push the cube to its goal; return all that is seen, and whether it got there."""
    seen, solved = env.reset(StateId("train", index))["state"].copy(), False
    shown = [seen]
    for step in range(30):
        hand, cube = seen[18:21], seen[28:31]
        target = cube + (np.array([-0.06, 0, 0]) if step < 8 else np.array([0.05, 0, 0]))
        target[2] += 0.02 * (step < 4)
        action = np.append(((target - hand) * 10).clip(-1, 1), -1).astype(np.float32)
        looks, *outcome = env.step(action)
        seen, solved = looks["state"].copy(), solved or outcome[-1]
        shown.append(np.concatenate((seen, outcome)))
    return np.concatenate(shown), solved


def test_case_e05_contacts_are_not_carried_over() -> None:
    """A plain reset fails this: PhysX's solver remembers contacts."""
    env = make("PushCube-v1", control_mode="pd_ee_delta_pos")
    first = {index: push(env, index) for index in (42, 7, 3, 8)}
    for index in (7, 8, 42, 3):
        assert np.array_equal(first[index][0], push(env, index)[0])
    assert all(solved for _, solved in first.values())
    env.close()


@pytest.mark.parametrize(
    "mode", ["pd_ee_delta_pos", "pd_ee_delta_pose", "pd_joint_pos", "pd_ee_pose"]
)
def test_shortcuts_change_no_bit_of_a_controller(mode: str, plain: None) -> None:
    env = make("PickCube-v1", control_mode=mode)
    slow = play(env, 0, 15)
    assert lean.shorten() == []
    assert np.array_equal(slow, play(env, 0, 15))
    env.close()


def test_another_version_of_maniskill_runs_its_own_code(
    plain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, _, replacement = lean._SHORTCUTS[0]
    before = inspect.getattr_static(owner, name)
    monkeypatch.setattr(lean, "_SHORTCUTS", [(owner, name, "another", replacement)])
    assert lean.shorten() == [name]
    assert inspect.getattr_static(owner, name) is before


def test_shortcuts_leave_other_cases_to_maniskill() -> None:
    lean.shorten()
    multiply = rotation_conversions.quaternion_raw_multiply
    many = torch.randn(5, 4)
    one_by_one = torch.cat([multiply(row[None], row[None]) for row in many])
    assert torch.equal(multiply(many, many), one_by_one)
    assert common.to_tensor(np.array([1.5])).dtype == torch.float32
    assert common.to_tensor({"a": [1, 2]})["a"].tolist() == [1, 2]
    array = np.ones(2, np.float32)
    tensor = common.to_tensor(array)
    array[0] = 7  # a tensor of its own
    assert tensor.tolist() == [1, 1]


@pytest.mark.parametrize("name", FEW)
def test_a_restored_episode_goes_on_bit_for_bit(name: str) -> None:
    env, other = make(name), make(name)
    play(env, 5, 15)
    saved = env.state_dict()

    def go_on(one: ManiSkillEnvironment) -> np.ndarray:
        shown = []
        for action in actions(one, 9, 15):
            seen, *outcome = one.step(action)
            shown.append(np.concatenate((seen["state"], outcome)))
        return np.concatenate(shown)

    straight = go_on(env)
    play(env, 2, 7)
    for one in (env, other):
        one.load_state_dict(saved)
        assert np.array_equal(straight, go_on(one))
    env.close()
    other.close()


def test_case_e04_an_end_is_by_the_time_limit_or_by_the_task() -> None:
    task = tasks.known("PushCube-v1")
    assert task is not None
    state = {"obs_mode": "state", "control_mode": "pd_joint_delta_pos"}

    def outcomes(end_on_success: bool) -> list[tuple[bool, bool, bool]]:
        env = ManiSkillEnvironment("PushCube-v1", state, 3, end_on_success)
        env.reset(StateId("train", 0))
        ends = []
        for step in range(3):
            if step == 1:  # the cube jumps to its goal
                env._task.obj.set_pose(env._task.goal_region.pose.sp)
                lifted = env._task.obj.pose.raw_pose.clone()
                lifted[:, 2] = 0.02
                env._task.obj.set_pose(type(env._task.obj.pose).create(lifted))
            ends.append(env.step(np.zeros(8, np.float32))[2:])
        env.close()
        return ends

    assert outcomes(True)[:2] == [(False, False, False), (True, False, True)]
    assert outcomes(False) == [(False, False, False), (False, False, True), (False, True, True)]


def test_other_states_begin_elsewhere() -> None:
    env = make("PushCube-v1")
    starts = [env.reset(StateId("train", index))["state"][-7:-4].copy() for index in range(40)]
    spread = np.ptp(starts, axis=0)[:2]
    assert ((spread > 0.15) & (spread <= 0.2)).all()  # of the cube, over all of its region
    env.close()
