"""What the plugin says about itself, its options and its facts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rlinf_plugin_maniskill import plugin, tasks
from rlinf_plugin_maniskill.config import ManiSkillConfig
from rlinf_plugin_maniskill.facts import facts, instruction

from rlinf_core.api import Capability, Level, Unknown

SOURCES = Path(plugin.__file__).parent
KNOWN = [name for name in tasks.names() if tasks.known(name)]


def test_listing_and_configuring_import_nothing_heavy() -> None:
    code = (
        "import sys; from rlinf_plugin_maniskill import plugin, config, facts, probe; "
        "(spec,) = plugin.rlinf_simulators(); facts.facts(config.ManiSkillConfig(), {}); "
        "print(sorted({'torch', 'mani_skill', 'sapien', 'h5py'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert told.stdout.strip() == "[]"


def test_the_core_is_known_by_its_api_alone() -> None:
    for path in SOURCES.glob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r"\s*(from|import)\s+rlinf_core", line):
                assert line.startswith("from rlinf_core.api import"), f"{path.name}: {line}"


def test_the_entry_point_names_the_plugin_module() -> None:
    project = tomllib.loads((SOURCES.parents[1] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["rlinf.plugins"] == {"maniskill": plugin.__name__}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"task": "PushCub-v1"}, "no task 'PushCub-v1'. Did you mean 'PushCube-v1'"),
        ({"control_mode": "pd_ee_delta"}, "panda in PushCube-v1 has no control_mode"),
        ({"control_mode": "pd_ee_delta_pso"}, "Did you mean 'pd_ee_delta_pos'"),
        ({"task": "StackPyramid-v1", "reward_mode": "dense"}, "it has none, sparse"),
        ({"task": "UnitreeG1Stand-v1", "observation": "rgb"}, "has no camera"),
        ({"observation": "rgb", "render_backend": "none"}, "needs a renderer"),
        ({"max_episode_steps": 0}, "greater than or equal to 1"),
        ({"proceses": 2}, "proceses"),
    ],
)
def test_wrong_options_are_refused_in_words(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(told)):
        ManiSkillConfig(**options)


def test_every_option_has_a_help_text() -> None:
    for name, field in ManiSkillConfig.model_fields.items():
        assert field.description, name


def test_45_tasks_are_known_without_making_them() -> None:
    assert len(KNOWN) == 45
    for name in KNOWN:
        known = facts(ManiSkillConfig(task=name), {})
        assert known.spaces.observation["state"].shape[0] >= 10
        assert known.spaces.action.shape[0] >= 1


def test_spaces_follow_the_options() -> None:
    def spaces(**options: Any) -> Any:
        return facts(ManiSkillConfig(**options), {}).spaces

    plain = spaces()
    assert plain.observation["state"].shape == (35,)
    assert plain.action.shape == (8,)
    assert spaces(control_mode="pd_ee_delta_pos").action.shape == (4,)
    aimed = spaces(
        control_mode="pd_joint_target_delta_pos"
    )  # its controller remembers seven joints
    assert aimed.observation["state"].shape[0] > 35
    absolute = spaces(control_mode="pd_joint_pos").action
    assert absolute.high[0] == pytest.approx(2.8973)
    assert spaces(task="TwoRobotPickCube-v1").action.shape == (16,)
    seen = spaces(observation="rgb", image_height=96, image_width=64).observation
    assert seen["images"]["base_camera"].shape == (96, 64, 3)
    assert seen["state"].shape == (25,)


def test_capabilities_follow_the_options() -> None:
    def level(capability: Capability, **options: Any) -> Level:
        return facts(ManiSkillConfig(**options), {}).capabilities[capability]

    assert level(Capability.SUCCESS) is Level.FULL
    assert level(Capability.SUCCESS, task="MS-AntRun-v1") is Level.UNSUPPORTED
    assert level(Capability.IMAGES) is Level.UNSUPPORTED
    assert level(Capability.IMAGES, observation="rgb") is Level.FULL
    assert level(Capability.RENDER, render_backend="none") is Level.UNSUPPORTED


@pytest.mark.parametrize(
    "options", [{"task": "my_tasks:MyTask-v1"}, {"robot": "fetch"}, {"task": "PickSingleYCB-v1"}]
)
def test_what_the_table_lacks_is_unknown(options: dict[str, Any]) -> None:
    spaces = facts(ManiSkillConfig(**options), {}).spaces
    assert isinstance(spaces, Unknown)
    assert "found when it is made" in spaces.reason


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "push cube"),
        ({"task": "TwoRobotStackCube-v1"}, "two robot stack cube"),
        ({"task": "mine:FMBAssembly1Easy-v1"}, "fmb assembly 1 easy"),
        ({"instruction": "Push it."}, "Push it."),
    ],
)
def test_the_instruction_is_the_task_in_words(options: dict[str, Any], told: str) -> None:
    assert instruction(ManiSkillConfig(**options)) == told
