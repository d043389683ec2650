"""What the plugin says about itself, its options and its facts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
import torch
from rlinf_plugin_gymnasium import plugin
from rlinf_plugin_gymnasium.config import GymnasiumConfig
from rlinf_plugin_gymnasium.facts import LIGHT, facts
from rlinf_plugin_gymnasium.simulator import make_simulator

from rlinf_core.api import Capability, EnvSlots, Level, Unknown

IDS = [name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(LIGHT)]


def test_listing_and_configuring_import_no_torch():
    code = (
        "import sys; from rlinf_plugin_gymnasium import plugin; (s,) = plugin.rlinf_simulators(); "
        "assert s.name == 'gymnasium'; assert 'gymnasium' not in sys.modules; "
        "from rlinf_plugin_gymnasium import config, facts; "
        "facts.facts(config.GymnasiumConfig(id='Pendulum-v1'), {}); "
        "assert not {'torch', 'pygame'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_core_is_known_by_its_api_alone():
    for path in Path(plugin.__file__).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r"\s*(from|import)\s+rlinf_core", line):
                assert line.startswith("from rlinf_core.api import"), f"{path.name}: {line}"


def test_every_option_has_help():
    assert [n for n, f in GymnasiumConfig.model_fields.items() if not f.description] == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give an id"),
        ({"id": "Pendulum-v1", "factory": "a:b"}, "one, not both"),
        ({"id": "Pendulam-v1"}, "Did you mean: `Pendulum`?"),
        ({"id": "Pendulum-v9"}, "versioned environments: [ `v1` ]"),
        ({"factory": "nothing"}, "wanted 'package.module:function'"),
        ({"factory": "a:b", "max_episode_steps": 3}, "max_episode_steps would not be read"),
        ({"factory": "a:b", "vectorization": "sync"}, "vectorization would not be read"),
        ({"factory": "a:b", "render": False}, "render would not be read"),
        ({"id": "Pendulum-v1", "success": "a", "success_reward": 1.0}, "give one"),
        ({"id": "Pendulum-v1", "vectorization": "fast"}, "vectorization"),
        ({"id": "Pendulum-v1", "max_episode_steps": 0}, "max_episode_steps"),
        ({"id": "Pendulum-v1", "ids": 1}, "ids"),
    ],
)
def test_wrong_options_are_refused_in_words(options, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        GymnasiumConfig(**options)


@pytest.mark.parametrize(
    "options", [{"id": "Pendulum-v1", "success_reward": 0.0}, {"factory": "a:b"}]
)
def test_options_that_were_stored_can_be_read_again(options):
    config = GymnasiumConfig(**options)
    assert GymnasiumConfig(**config.model_dump(mode="json")) == config


# --- facts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IDS)
def test_facts_are_those_of_the_real_environment(name):
    config = GymnasiumConfig(id=name, render=False)
    simulator = make_simulator(config, EnvSlots((0, 1), seed=0))
    assert facts(config, {}).spaces == simulator.spaces
    states = simulator.initial_states("train")
    obs = simulator.reset(torch.ones(2, dtype=torch.bool), [states[0], states[1]])
    assert simulator.spaces.observation["state"].contains(obs["state"][0].numpy())
    simulator.close()


def test_what_needs_a_library_is_unknown_until_it_is_made():
    for options in ({"id": "gymnasium_toys:ToyWalk-v0"}, {"factory": "gymnasium_toys:make_world"},
                    {"id": "HalfCheetah-v5"}):  # fmt: skip
        spaces = facts(GymnasiumConfig(**options), {}).spaces
        assert isinstance(spaces, Unknown)
        assert "only when it is made" in spaces.reason


def test_success_is_declared_where_the_options_say_what_it_is():
    (spec,) = plugin.rlinf_simulators()
    assert spec.capabilities[Capability.SUCCESS] is Level.UNKNOWN
    told = {Capability.SUCCESS: Level.FULL}
    for options, wanted in (({}, {}), ({"success": "a"}, told), ({"success_reward": 0.0}, told)):
        assert facts(GymnasiumConfig(id="Pendulum-v1", **options), {}).capabilities == wanted
