"""Plans: what a run would do, what it would need, and what is refused before it starts."""

from __future__ import annotations

import json

import pytest

from rlinf_core.errors import ConfigError
from rlinf_core.flow.sizes import Size, in_words
from rlinf_core.flow.trace import Method, TracingRuntime
from rlinf_core.protocols.runtime import WorkerSpec
from rlinf_core.runs.plan import make_plan, trace
from rlinf_core.runs.train import train

TINY = {"devices": "3 x tiny"}
APART = {"simulation": "0", "rollout": "1", "training": "2"}


def plan(run):
    return make_plan(run).as_json()


# --- the flow -------------------------------------------------------------------------------------


def test_the_flow_of_an_iteration(load):
    graph = trace(load())
    calls = [(c.group, c.method) for c in graph.calls if c.phase == "iteration"]
    assert calls == [
        ("simulation", "collect"),
        ("rollout", "serve"),
        ("training", "update"),
        ("training", "send_weights"),
        ("rollout", "receive_weights"),
    ]
    streams = [(s.channel, s.source.group, s.target.group) for s in graph.streams("iteration")]
    assert sorted(streams) == [
        ("actions", "rollout", "simulation"),
        ("observations", "simulation", "rollout"),
        ("trajectories", "rollout", "training"),
        ("weights", "training", "rollout"),
        ("weights_replies", "rollout", "training"),
    ]
    assert [s.channel for s in graph.streams("evaluation")] == [
        "evaluation.observations",
        "evaluation.actions",
    ]


def test_a_call_that_no_interface_declares_is_refused():
    runtime = TracingRuntime({"x:Y": {"go": Method(("a",))}})
    group = runtime.launch(WorkerSpec("one", "x:Y"))
    with pytest.raises(Exception, match=r"no method 'gone'. Did you mean 'go'"):
        group.call("gone")
    with pytest.raises(Exception, match="its interface has"):
        group.call("go", 1, 2)
    with pytest.raises(Exception, match="wanted workers to"):
        runtime.channel("c").put(1)


@pytest.mark.parametrize(
    ("placement", "mode"),
    [
        (None, "collocated"),
        ({"simulation,rollout,training": "0"}, "collocated"),
        (APART, "disaggregated"),
        ({"simulation": "0", "rollout": "1-2", "training": "all:1"}, "hybrid"),
        ({"simulation": "0", "rollout": "0", "training": "1"}, "mixed"),
        ({"simulation": "0", "rollout": "1", "training": "0"}, "mixed"),
    ],
)
def test_modes(load, placement, mode):
    assert plan(load(placement=placement))["mode"] == mode


# --- what moves -----------------------------------------------------------------------------------


def test_what_moves_by_which_way(load):
    def ways(**changes):
        return {t["channel"]: t["transport"] for t in plan(load(**changes))["transfers"]}

    assert set(ways(placement=APART).values()) == {"reference"}
    apart = {"runtime": "apart", "devices": "3 x cpu"}
    assert set(ways(placement=APART, cluster=apart).values()) == {"shared memory"}
    tiny = {**apart, "devices": "3 x tiny"}
    assert ways(placement=APART, cluster=tiny) == {
        "observations": "shared memory",
        "actions": "shared memory",
        "trajectories": "shared memory",
        "weights": "ring",
    }
    assert ways(cluster=tiny)["weights"] == "device handle"
    hybrid = {"simulation": "0", "rollout": "1-2", "training": "2"}
    assert ways(placement=hybrid, cluster=tiny)["weights"] == "ring or device handle"
    groups = {"left": {"devices": "tiny"}, "right": {"devices": "cpu"}}
    mixed = {"simulation": "right/0", "rollout": "right/0", "training": "left/0"}
    cluster = {"runtime": "apart", "node_groups": groups}
    assert ways(placement=mixed, cluster=cluster)["weights"] == "shared memory"
    asked = {"name": "full", "way": "gloo"}
    assert ways(placement=APART, cluster=apart, weights=asked)["weights"] == "gloo"


def test_a_way_that_cannot_be_taken_is_refused_before_anything_starts(load):
    found = plan(load(weights={"name": "full", "way": "gloo"}))["problems"]
    assert [problem["path"] for problem in found] == ["weights.way"]
    assert "training[0] and rollout[0]: they are in one process" in found[0]["found"]
    assert found[0]["suggestions"] == ["weights.way=auto"]


def test_sizes_that_no_fact_gives_are_unknown_and_never_zero(load):
    found = {t["channel"]: t for t in plan(load(simulator="silent"))["transfers"]}
    for channel in ("observations", "actions", "trajectories"):
        assert found[channel]["iteration"]["bytes"] is None
        assert found[channel]["iteration"]["unknown"]
    assert found["weights"]["item"]["bytes"] == 400
    assert plan(load())["transfers"][0]["item"]["bytes"] == 8 * (8 + 8 + 8)


def test_sizes_in_words():
    assert [in_words(n) for n in (0, 999, 1000, 1234567, 25_276_514_304)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1.23 MB",
        "25.3 GB",
    ]
    assert str(Size(5)) == "5 B"
    assert str(Size(5, ("x",))) == "at least 5 B"
    assert str(Size(0, ("x",))) == "unknown"
    assert (Size(5, ("x",)) + Size(1, ("x", "y"))) * 2 == Size(12, ("x", "y"))


# --- batch ----------------------------------------------------------------------------------------


def test_batch_arithmetic(load):
    placement = {"simulation": "0-1", "rollout": "2", "training": "2"}
    found = plan(load(placement=placement))
    assert found["stages"] == 2
    assert found["batch"] == {
        "environments": 8,
        "steps": 5,
        "chunk": 1,
        "rows": 40,
        "environment_steps": 40,
        "environments_per_simulation_process": 4,
        "environments_per_stage": 2,
        "streams_per_rollout_process": [4],
        "rows_per_training_process": 40,
        "epochs": 3,
        "minibatch_size": 20,
        "minibatches_per_epoch": 2,
        "optimizer_steps": 6,
        "minibatch_per_training_process": 20,
        "microbatch_size": 8,
        "microbatches_per_minibatch": 3,
    }


# --- memory ---------------------------------------------------------------------------------------


def pools(run):
    return {pool["device"]: pool for pool in plan(run)["memory"]}


def test_what_each_group_keeps(load):
    found = pools(load(model="heavy", placement=APART, cluster=TINY))
    assert {name: list(pool["groups"]) for name, pool in found.items()} == {
        "tiny:0": ["simulation"],
        "tiny:1": ["rollout"],
        "tiny:2": ["training"],
    }
    training = found["tiny:2"]["groups"]["training"]
    assert {name: part["bytes"] for name, part in training.items()} == {
        "weights": 2_000_000,
        "gradients": 2_000_000,
        "optimizer": 4_000_000,
        "activations": None,
    }
    # two stages, each with a simulator, and one to evaluate
    assert found["tiny:0"]["needed"]["bytes"] == 3 * 500_000
    assert found["tiny:0"]["fits"] is True
    assert found["tiny:2"]["fits"] is None, "activations are not known"
    several = {"simulation": "0:4", "rollout": "1", "training": "2"}
    run = load("evaluation.envs=3", cluster=TINY, placement=several)
    # four processes with two simulators each, and three that evaluate
    assert pools(run)["tiny:0"]["needed"]["bytes"] == (4 * 2 + 3) * 500_000
    assert found["tiny:2"]["capacity"] == 10_000_000
    assert found["tiny:2"]["sharing"] == "alone"


def test_slots_of_a_processor_share_its_memory_and_what_a_simulator_keeps_there_is_unknown(load):
    (found,) = pools(load(model="heavy", placement=APART)).values()
    assert found["device"] == "cpu"
    assert found["devices"] == [0, 1, 2]
    assert found["needed"]["at_least"] == 10_000_000
    assert any("host memory of a simulator" in why for why in found["needed"]["unknown"])
    assert found["sharing"] == "resident"
    turns = pools(load("cluster.sharing=turns", model="heavy", placement=APART))["cpu"]
    assert turns["sharing"] == "turns"
    assert turns["needed"]["at_least"] == 10_000_000, "what is offloaded from there goes there"


def test_groups_take_turns_where_they_do_not_fit_together(load):
    """Two megabytes to act, eight to train and one to simulate: eleven of ten."""
    run = load(simulator="nimble", model="heavy", cluster=TINY)
    found = pools(run)["tiny:0"]
    assert found["sharing"] == "turns"
    assert found["needed"]["at_least"] == 8_000_000
    assert make_plan(run).problems == ()
    light = load(simulator="nimble", cluster=TINY)
    assert pools(light)["tiny:0"]["sharing"] == "resident"
    assert pools(load("cluster.sharing=turns", simulator="nimble", cluster=TINY))["tiny:0"][
        "sharing"
    ] == ("turns")


def problems(run, tmp_path):
    """Return what is wrong; training refuses in the same words and leaves nothing behind."""
    found = make_plan(run).problems
    with pytest.raises(ConfigError) as caught:
        train(run, tmp_path / "out", resume=False)
    assert caught.value.exit_code == 2
    assert caught.value.problems == found
    assert not (tmp_path / "out").exists()
    return found


def test_a_run_that_does_not_fit_says_what_would(load, tmp_path):
    together = {"simulation": "0", "rollout": "0", "training": "0"}
    changes = {"model": "heavy", "cluster": TINY, "placement": together}
    (problem,) = problems(load(**changes), tmp_path)
    assert problem.found == (
        "tiny:0 has 10 MB, and at least 11 MB are needed at once: simulation 1 MB (simulators "
        "500 kB, simulators to evaluate 500 kB); rollout at least 2 MB (weights 2 MB, activations "
        "unknown); training at least 8 MB (weights 2 MB, gradients 2 MB, optimizer 4 MB, "
        "activations unknown)"
    )
    assert problem.origin.startswith("flow.yaml:")
    assert problem.suggestions == (
        "placement.simulation=1",
        "placement.simulation=2",
        "placement.rollout=1",
    )
    for suggestion in problem.suggestions:
        assert make_plan(load(suggestion, **changes)).problems == ()


def test_a_run_that_fits_nowhere_says_what_it_needs(load, tmp_path):
    found = problems(load(model="vast", cluster=TINY, placement=APART), tmp_path)
    assert [p.found.split(",")[0] for p in found] == ["tiny:1 has 10 MB", "tiny:2 has 10 MB"]
    assert found[1].wanted == "wanted a device with more than 80 MB, or a smaller model"


def test_taking_turns_when_it_would_be_enough_is_offered(load, tmp_path):
    cluster = {**TINY, "sharing": "resident"}
    run = load(simulator="nimble", model="heavy", cluster=cluster)
    (problem,) = problems(run, tmp_path)
    assert problem.suggestions == ("cluster.sharing=turns",)


def test_turns_need_a_component_that_offloads(load, tmp_path):
    (problem,) = problems(load(cluster={**TINY, "sharing": "turns"}), tmp_path)
    assert problem.text == (
        "simulation would take turns on tiny:0, and the simulator 'world' (from rlinf-plugin-flow) "
        "does not declare 'offload', wanted cluster.sharing=resident, or another device"
    )


# --- conventions ----------------------------------------------------------------------------------


def test_case_m02_conversions_have_one_owner_and_a_mismatch_is_refused(load):
    found = plan(load(model="heavy"))["conventions"]
    world = "the simulator 'world' (from rlinf-plugin-flow)"
    assert found == [
        {"name": "gripper", "given": None, "expected": "open", "owner": None},
        {"name": "image_rotation", "given": "180", "expected": "180", "owner": world},
    ]
    with pytest.raises(ConfigError) as caught:
        load(simulator="upside", model="heavy")
    assert str(caught.value) == (
        "flow.yaml:3: model.name: found the model 'heavy' (from rlinf-plugin-flow), which expects "
        "image_rotation '180', and the simulator 'upside' (from rlinf-plugin-flow) gives '0', "
        "wanted both the same: options of one of them, or another model"
    )


# --- as a whole -----------------------------------------------------------------------------------


def test_case_k04_every_value_has_its_origin(load):
    found = plan(load("collect.envs=16"))["values"]
    assert found["collect.envs"] == {"value": 16, "origin": "command line"}
    assert found["training.threads"] == {"value": 1, "origin": "flow.yaml:7"}
    assert found["seed"] == {"value": 0, "origin": "default"}


def test_a_plan_with_a_wrong_placement_says_nothing_of_places(load, tmp_path):
    run = load(placement={"simulation": "9", "rollout": "0", "training": "0"})
    found = plan(run)
    assert found["groups"] is found["memory"] is found["transfers"] is None
    (problem,) = found["problems"]
    assert set(problem) == {"path", "found", "wanted", "suggestions", "origin"}
    assert problem["path"] == "placement.simulation"
    assert problem["suggestions"] == ["placement.simulation=0-2", "placement.simulation=all"]
    assert json.loads(json.dumps(found)) == found
    problems(run, tmp_path)
