"""Arranging a run on a machine: what is suggested works, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlinf_core.config.overrides import parse
from rlinf_core.config.validate import load_run
from rlinf_core.errors import PluginError
from rlinf_core.flow import arrange as arrange_module
from rlinf_core.flow.arrange import arrange
from rlinf_core.placement import COMPONENTS

LINES = st.builds(
    lambda first, last, processes: f"{first}-{last}{processes}",
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from(["", ":1", ":2", ":3", ":4", ":8"]),
)
PLACEMENTS = st.fixed_dictionaries(dict.fromkeys(COMPONENTS, LINES))
TOGETHER = st.fixed_dictionaries({"simulation,rollout": LINES, "training": LINES})


def changed(run, suggestion):
    """Return a run with a suggestion followed."""
    if suggestion.startswith("placement."):  # a key may hold a comma, which no override takes
        key, _, value = suggestion.removeprefix("placement.").partition("=")
        return with_placement(run, {**run.config.placement, key: value.strip("'")})
    (typed,) = parse([suggestion])
    section, _, key = typed.key.partition(".")
    old = getattr(run.config, section)
    new = type(old)(**{**old.model_dump(), key: typed.value})
    return replace(run, config=run.config.model_copy(update={section: new}))


def with_placement(run, placement):
    return replace(run, config=run.config.model_copy(update={"placement": placement}))


@pytest.mark.parametrize("placements", [PLACEMENTS, TOGETHER], ids=["apart", "together"])
def test_case_k01_whatever_is_suggested_for_a_placement_makes_the_finding_go_away(load, placements):
    run = load("cluster.devices='4 x cpu'", "collect.envs=12")

    @settings(
        max_examples=150,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(placement=placements, envs=st.integers(1, 12))
    def check(placement, envs):
        collect = run.config.collect.model_copy(update={"envs": envs})
        update = run.config.update.model_copy(update={"minibatch_size": envs * collect.steps})
        config = run.config.model_copy(update={"collect": collect, "update": update})
        tried = with_placement(replace(run, config=config), placement)
        arrangement, problems = arrange(tried)
        assert arrangement is not None or problems
        for problem in problems:
            for suggestion in problem.suggestions:
                after = [(p.path, p.found) for p in arrange(changed(tried, suggestion))[1]]
                assert (problem.path, problem.found) not in after, (problem, suggestion)

    check()


def test_training_in_several_processes_needs_a_backend_that_can(load):
    placement = {"simulation,rollout": "0", "training": "1-2"}
    assert not arrange(load(placement=placement))[1]
    _, (problem,) = arrange(load(training="solo", placement=placement))
    assert "needs the capability 'distributed'" in problem.text
    assert problem.suggestions == ("placement.training=1-2:1",)


def test_the_best_devices_there_are(load):
    for text, shown in (("auto", 3), ("2 x auto", 2)):
        arrangement, problems = arrange(load(cluster={"devices": text}))
        assert not problems
        assert [d.torch_name for d in arrangement.devices] == [f"tiny:{n}" for n in range(shown)]


def test_a_kind_whose_plugin_cannot_be_loaded_is_not_there_for_auto(load, monkeypatch):
    run = load(cluster={"devices": "auto"})
    named = load(cluster={"devices": "tiny"})

    def broken(component):
        if component.spec.name == "tiny":
            raise PluginError("it is broken")
        return plugin_load(component)

    plugin_load = arrange_module.load
    monkeypatch.setattr(arrange_module, "load", broken)
    arrangement, problems = arrange(run)
    assert not problems
    assert {device.kind for device in arrangement.devices} == {"cpu"}
    with pytest.raises(PluginError, match="it is broken"):
        arrange(named)


def test_an_override_is_a_line_of_a_placement(load):
    run = load("placement.rollout=1:2", "placement.simulation='0,2'", "placement.training=all:1")
    placement = {"rollout": "1:2", "simulation": "0,2", "training": "all:1"}
    assert run.config.placement == placement


def test_an_evaluation_does_not_mind_how_environments_would_be_collected(load):
    load(placement={"simulation": "0-2", "rollout": "0-1", "training": "0-1"})
    sections = {"simulator", "model", "rollout", "weights"}
    run = load_run("flow.yaml", ["collect.envs=7", "collect.stages=2"], sections=sections)
    arrangement, problems = arrange(run)
    assert not problems
    assert set(arrangement.groups) == {"simulation", "rollout"}
