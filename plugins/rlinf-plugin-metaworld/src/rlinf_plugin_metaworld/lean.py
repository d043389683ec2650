"""A Meta-World task with its goal in sight and without the work that changes no result.

Two thirds of a plain step are NumPy's and SciPy's wrappers around vectors of three numbers, and
nearly all of a plain reset moves the hand to where it went the last time. :class:`LeanTask` does
the same arithmetic in the same order, so every observation and reward is equal bit for bit; the
tests compare all 50 tasks. Where the installed Meta-World's own code is not the code that was
compared, :func:`make_task` leaves it as it is.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, ClassVar

import mujoco
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.sawyer_xyz_env import SawyerXYZEnv

INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)
"""Everything that the next ``mj_step`` depends on, warm start and mocap bodies included."""

_COMPARED = {
    "4282580b80befc557f67d25acffffec737ad0dae2c440601be76fc09139f351d",  # 3.1.1
}
"""SHA-256 of the versions of Meta-World's base class that :class:`LeanTask` was compared with."""


def make_task(name: str) -> Any:
    """Return the task as MT1 sets it up: goal in the observation, start drawn at each reset."""
    plain = ALL_V3_ENVIRONMENTS[name]
    cls = plain
    if _digest() in _COMPARED:
        # Between the task and its base: what a task overrides stays its own.
        cls = type(plain.__name__, (plain, LeanTask), {})
        setattr(sys.modules[plain.__module__], "Rotation", _Rotation)  # noqa: B010
    task = cls()
    task._partially_observable = False
    del task.sawyer_observation_space  # cached with the goal hidden
    task._set_task_called = True
    task.seeded_rand_vec = True
    return task


def physics(task: Any) -> np.ndarray:
    """Return the physics state, float64 [S]."""
    state = np.empty(mujoco.mj_stateSize(task.model, INTEGRATION))
    mujoco.mj_getState(task.model, task.data, state, INTEGRATION)
    return state


class LeanTask(SawyerXYZEnv):
    """The methods of Meta-World's base class that are worth shortening."""

    _models: ClassVar[dict[str, Any]] = {}
    _hand_memory: ClassVar[OrderedDict[tuple[Any, ...], np.ndarray]] = OrderedDict()

    def _initialize_simulation(self) -> tuple[Any, Any]:
        """Compile a scene once in a process; a copy takes a hundredth of the time."""
        if self.fullpath not in self._models:
            self._models[self.fullpath], _ = super()._initialize_simulation()
        model = copy.copy(self._models[self.fullpath])
        return model, mujoco.MjData(model)

    def _reset_hand(self, steps: int = 50) -> None:
        """Move the hand to its start; remembered, as it is a function of where everything is.

        What is remembered is the state before the last of the substeps, which is then done in
        earnest: that fills all that MuJoCo derives from a state.
        """
        model, data, memory = self.model, self.data, self._hand_memory
        key = (
            self.model_name,
            steps,
            np.asarray(self.hand_init_pos).tobytes(),
            model.body_pos.tobytes(),
            physics(self).tobytes(),
        )
        if key in memory:
            memory.move_to_end(key)
            mujoco.mj_setState(model, data, memory[key], INTEGRATION)
        else:
            hand = model.body_mocapid[data.body("mocap").id]
            data.mocap_pos[hand] = self.hand_init_pos
            data.mocap_quat[hand] = (1, 0, 1, 0)
            data.ctrl[:] = (-1, 1)
            mujoco.mj_step(model, data, nstep=steps * self.frame_skip - 1)
            memory[key] = physics(self)
            if len(memory) > 16:
                memory.popitem(last=False)
        mujoco.mj_step(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        self.init_tcp = self.tcp_center

    def _get_curr_obs_combined_no_goal(self) -> np.ndarray:
        data = self.data
        observation = np.zeros(4 + self._obs_obj_max_len)
        observation[:3] = data.body("hand").xpos
        gap = data.body("rightclaw").xpos - data.body("leftclaw").xpos
        observation[3] = min(max(math.sqrt(gap.dot(gap)) / 0.1, 0.0), 1.0)
        positions, turns = self._get_pos_objects(), self._get_quat_objects()
        for i in range(len(positions) // 3):
            observation[4 + 7 * i : 7 + 7 * i] = positions[3 * i : 3 * i + 3]
            observation[7 + 7 * i : 11 + 7 * i] = turns[4 * i : 4 * i + 4]
        return observation

    def _get_obs(self) -> np.ndarray:
        current = self._get_curr_obs_combined_no_goal()
        observation = np.concatenate((current, self._prev_obs, self._get_pos_goal()))
        self._prev_obs = current
        return observation

    def touching_object(self, object_geom_id: int) -> bool:
        """Return whether both pads press on the object."""
        data = self.data
        pairs, rows = data.contact.geom.tolist(), data.contact.efc_address.tolist()

        def pressed(pad: str) -> bool:
            both = {data.geom(pad).id, object_geom_id}
            forces = [
                data.efc_force[row]
                for pair, row in zip(pairs, rows, strict=True)
                if set(pair) == both
            ]
            return bool(sum(forces) > 0)

        return pressed("leftpad_geom") and pressed("rightpad_geom")

    def set_xyz_action(self, action: np.ndarray) -> None:
        """Shift the hand's target by ``action`` [3], within its bounds."""
        data = self.data
        target = data.mocap_pos + action.clip(-1, 1) * self.action_scale
        target[0] = target[0].clip(self.mocap_low, self.mocap_high)
        data.mocap_pos = target
        data.mocap_quat = (1, 0, 1, 0)

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Do one step of ``action``, float32 [4]."""
        model, data = self.model, self.data
        self.set_xyz_action(action[:3])
        data.ctrl[:] = (action[-1], -action[-1])
        mujoco.mj_step(model, data, nstep=self.frame_skip)
        mujoco.mj_rnePostConstraint(model, data)
        self.curr_path_length += 1
        for site in self._target_site_config:
            self._set_pos_site(*site)
        mujoco.mj_forward(model, data)
        space = self.sawyer_observation_space
        observation = self._get_obs().clip(space.low, space.high)
        self._last_stable_obs = observation
        reward, info = self.evaluate_state(observation, action)
        return observation, reward, False, self.curr_path_length == self.max_path_length, info


class _Rotation:
    """SciPy's ``Rotation.from_matrix(matrix).as_quat()`` for one matrix that is a rotation."""

    @staticmethod
    def from_matrix(matrix: np.ndarray) -> SimpleNamespace:
        m = matrix.tolist()
        trace = m[0][0] + m[1][1] + m[2][2]
        largest = max(range(4), key=(m[0][0], m[1][1], m[2][2], trace).__getitem__)
        if largest == 3:
            q = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1], 1 + trace]
        else:
            i, j, k = largest, (largest + 1) % 3, (largest + 2) % 3
            q = [0.0, 0.0, 0.0, m[k][j] - m[j][k]]
            q[i] = 1 - trace + 2 * m[i][i]
            q[j] = m[j][i] + m[i][j]
            q[k] = m[k][i] + m[i][k]
        norm = math.sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
        return SimpleNamespace(as_quat=lambda: np.array([part / norm for part in q]))


def _digest() -> str:
    """Fingerprint the code that :class:`LeanTask` replaces."""
    source = inspect.getsource(sys.modules[SawyerXYZEnv.__module__])
    return hashlib.sha256(source.encode()).hexdigest()
