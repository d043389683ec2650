"""What a task shows and takes, found by making it. Run as a module, it writes ``tasks.json``.

    python -m rlinf_plugin_maniskill.measure > src/rlinf_plugin_maniskill/tasks.json

needs neither a renderer nor downloads: tasks without their files are listed with what they lack.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import mani_skill
import numpy as np
from mani_skill.envs.utils.observations import parse_obs_mode_to_struct
from mani_skill.sensors.camera import parse_camera_configs
from mani_skill.utils.registration import REGISTERED_ENVS

from rlinf_core.api import SimulatorError
from rlinf_plugin_maniskill.making import MissingAssets, find_spec, flat, make_task


def measure(name: str, **options: Any) -> dict[str, Any]:
    """Return what is known of a task, as an entry of ``tasks.json``: its robots and itself."""
    task = make_task(name, obs_mode="state", **options)
    agents = getattr(task.agent, "agents", [task.agent])
    task.reset(seed=0)
    state = task.get_obs()
    sensed = _with_cameras(task)
    entry = {
        "robots": [agent.uid for agent in agents],
        "control_mode": agents[0].control_mode,
        "max_episode_steps": find_spec(name).max_episode_steps,
        "state": state.shape[-1],
        "sensed": sensed.shape[-1],
        "cameras": _cameras(task),
        "rewards": _rewards(task),
        "success": "success" in task.get_info(),
    }
    robots = {agent.uid: {"modes": _modes(agent)} for agent in agents}
    task.close()
    return {"robots": robots, "task": entry}


def _with_cameras(task: Any) -> Any:
    """Return the state that a task shows beside images: without what only a simulator knows."""
    before = task._obs_mode, task.obs_mode_struct
    task._obs_mode, task.obs_mode_struct = "rgb", parse_obs_mode_to_struct("rgb")
    sensed = flat(task._get_obs_state_dict(task.get_info()))
    task._obs_mode, task.obs_mode_struct = before
    return sensed


def _cameras(task: Any) -> list[str]:
    ours = parse_camera_configs(task._default_sensor_configs)
    return [*ours, *parse_camera_configs(task.agent._sensor_configs)]


def _rewards(task: Any) -> list[str]:
    """Return the reward modes that really give one; some tasks list more."""
    works = []
    action = task.action_space.sample()
    for mode in task.SUPPORTED_REWARD_MODES:
        task._reward_mode = mode
        try:
            task.step(action)
        except (NotImplementedError, RuntimeError):
            continue
        works.append(mode)
    return works


def _modes(agent: Any) -> dict[str, Any]:
    """Return each control mode's action bounds, and how many numbers it adds to the state."""
    modes = {}
    for mode in agent.supported_control_modes:
        agent.set_control_mode(mode)
        agent.controller.reset()
        space, shown = agent.single_action_space, agent.controller.get_state()
        modes[mode] = {
            "low": _short(space.low),
            "high": _short(space.high),
            "width": space.shape[0],
            "state": flat(shown).shape[-1] if shown else 0,
        }
    return modes


def _short(bounds: np.ndarray) -> Any:
    """Return one number where all are equal."""
    values = bounds.tolist()
    return values[0] if len(set(values)) == 1 else values


def measure_all() -> dict[str, Any]:
    """Return ``tasks.json``: all tasks that the installed ManiSkill registers."""
    table: dict[str, Any] = {"maniskill": mani_skill.__version__, "robots": {}, "tasks": {}}
    for name in sorted(REGISTERED_ENVS):
        try:
            found = measure(name)
        except MissingAssets as error:
            table["tasks"][name] = {"needs": error.command}
            continue
        except ImportError as error:
            table["tasks"][name] = {"needs": str(error)}
            continue
        table["robots"].update(found["robots"])
        table["tasks"][name] = found["task"]
    return table


def _main(arguments: list[str]) -> None:
    if arguments:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                found = measure(arguments[0], **json.loads(arguments[1]))
        except SimulatorError as error:
            sys.exit(json.dumps(str(error)))
        print(json.dumps(found))
        return
    with contextlib.redirect_stdout(sys.stderr):  # where ManiSkill tells what it misses
        table = measure_all()
    lines = [f'"maniskill": {json.dumps(table["maniskill"])}']
    for part in ("robots", "tasks"):  # an entry a line, so that a change is easy to read
        rows = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table[part].items()]
        lines.append(f'"{part}": {{\n  ' + ",\n  ".join(rows) + "\n}")
    print("{" + ",\n".join(lines) + "}")


if __name__ == "__main__":
    _main(sys.argv[1:])
