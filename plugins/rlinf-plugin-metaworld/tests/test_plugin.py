"""What the plugin says about itself, its options and its facts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from pydantic import ValidationError
from rlinf_plugin_metaworld import plugin
from rlinf_plugin_metaworld.config import CAMERAS, TASKS, MetaWorldConfig
from rlinf_plugin_metaworld.facts import facts

from rlinf_core.api import Capability, Level, StateId

SOURCES = Path(plugin.__file__).parent


def test_listing_and_configuring_import_nothing_heavy() -> None:
    code = (
        "import sys; from rlinf_plugin_metaworld import plugin, config, facts; "
        "(spec,) = plugin.rlinf_simulators(); facts.facts(config.MetaWorldConfig(), {}); "
        "print(sorted({'torch', 'metaworld', 'mujoco', 'scipy'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert told.stdout.strip() == "[]"


def test_the_spec_declares_what_the_tests_here_show() -> None:
    (spec,) = plugin.rlinf_simulators()
    assert spec.name == "metaworld"
    assert {Capability.STATE, Capability.SUCCESS, Capability.RESTORE} <= set(spec.capabilities)
    assert {Capability.IMAGES, Capability.INSTRUCTION} <= set(spec.capabilities)


@pytest.mark.parametrize("images", [(), ("corner2", "gripperPOV")])
def test_facts_say_whether_images_are_shown(images: tuple[str, ...]) -> None:
    said = facts(MetaWorldConfig(images=images, image_size=64), {})
    level = Level.FULL if images else Level.UNSUPPORTED
    assert said.capabilities == {Capability.IMAGES: level, Capability.INSTRUCTION: level}
    shown = said.spaces.observation.spaces
    assert set(shown) == ({"state", "images", "task"} if images else {"state"})
    if images:
        assert {name: box.shape for name, box in shown["images"].items()} == dict.fromkeys(
            images, (64, 64, 3)
        )


def test_the_core_is_known_by_its_api_alone() -> None:
    for path in SOURCES.glob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r"\s*(from|import)\s+rlinf_core", line):
                assert line.startswith("from rlinf_core.api import"), f"{path.name}: {line}"


def test_the_entry_point_names_the_plugin_module() -> None:
    project = tomllib.loads((SOURCES.parents[1] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["rlinf.plugins"] == {"metaworld": plugin.__name__}


def test_all_tasks_are_offered() -> None:
    assert set(TASKS) == set(ALL_V3_ENVIRONMENTS)
    assert len(TASKS) == 50


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"task": "reech-v3"}, "no task 'reech-v3'. Did you mean 'reach-v3'"),
        ({"camera": "corner5"}, "no camera 'corner5'; there are corner, corner2"),
        ({"images": ("corner", "griperPOV")}, "Did you mean 'gripperPOV'"),
        ({"max_episode_steps": 501}, "less than or equal to 500"),
        ({"processes": 0}, "greater than or equal to 1"),
        ({"proceses": 2}, "proceses"),
    ],
)
def test_wrong_options_are_refused_in_words(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MetaWorldConfig(**options)  # type: ignore[arg-type]
    assert told in str(caught.value)


@pytest.mark.parametrize("task", TASKS)
def test_facts_are_those_of_the_real_task(task: str) -> None:
    spaces = facts(MetaWorldConfig(task=task), {}).spaces
    env = ALL_V3_ENVIRONMENTS[task]()
    assert spaces.action == env.action_space
    assert spaces.observation["state"].shape == env.observation_space.shape
    assert env.max_path_length == 500
    assert {env.model.camera(i).name for i in range(env.model.ncam)} >= set(CAMERAS)
    env.close()


def test_every_option_has_a_help_text() -> None:
    for name, field in MetaWorldConfig.model_fields.items():
        assert field.description, name


def test_states_of_splits_differ() -> None:
    assert StateId("train", 0) != StateId("test", 0)
    assert np.isfinite(MetaWorldConfig().train_states)
