"""Times of an iteration: predicted from what things cost, and compared with real runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from rlinf_core.cli import trace
from rlinf_core.config.validate import load_run
from rlinf_core.errors import RequestError
from rlinf_core.flow.timeline import read_timeline
from rlinf_core.runs.measured import layout_in, measured, profile
from rlinf_core.runs.plan import make_plan
from rlinf_core.runs.predict import METHODS, Layout, layout_of, predict
from rlinf_core.runs.session import arranged
from rlinf_core.runs.train import train
from rlinf_core.scheduling.costs import Cost

FREE = dict.fromkeys(METHODS, Cost(0.0))
COSTS = FREE | {"collect": Cost(1.0, 8), "serve": Cost(1.0, 8), "update": Cost(30.0, 8 * 10)}

COLLOCATED = Layout(
    simulation=(("cpu:0",),), rollout=(("cpu:0",),), training=(("cpu:0",),),
    stages=1, envs=8, steps=10, epochs=1,
)  # fmt: skip
APART = replace(COLLOCATED, rollout=(("cpu:1",),), training=(("cpu:2",),))


def seconds(layout, known=COSTS):
    times = predict(layout, known, "here").times
    return times.collect, times.update, times.iteration


# --- worked out by hand ---------------------------------------------------------------------------


def test_on_one_device_everything_adds_up():
    """Ten steps and eleven acts, the last for the values, then an update."""
    assert seconds(COLLOCATED) == (21, 30, 51)
    assert predict(COLLOCATED, COSTS, "").times.idle == {"cpu:0": 0}


def test_one_process_at_a_time_adds_up_wherever_it_is_placed():
    assert seconds(replace(APART, alone=True)) == (21, 30, 51)
    assert set(predict(replace(APART, alone=True), COSTS, "").times.idle) == {
        "cpu:0", "cpu:1", "cpu:2",
    }  # fmt: skip


def test_two_stages_on_devices_of_their_own_overlap():
    """Each of two stages costs half; after the first act, both devices are always busy."""
    assert seconds(APART) == (21, 30, 51), "with one stage there is nothing to overlap"
    collect, _, iteration = seconds(replace(APART, stages=2))
    assert collect == pytest.approx(11.0)  # 2 x 11 acts of a half, and no wait between them
    assert iteration == pytest.approx(41.0)
    idle = predict(replace(APART, stages=2), COSTS, "").times.idle
    assert idle["cpu:1"] == pytest.approx(30 / 41)
    assert idle["cpu:0"] == pytest.approx(31 / 41)


def test_training_on_all_devices_waits_for_all():
    hybrid = replace(APART, stages=2, training=(("cpu:0", "cpu:1"),))
    assert seconds(hybrid) == (pytest.approx(11), 30, pytest.approx(41))


def test_several_processes_share_the_work():
    """Two that simulate and two that learn halve both; the one that acts serves all streams."""
    more = replace(APART, simulation=(("cpu:0",), ("cpu:3",)), training=(("cpu:2",), ("cpu:4",)))
    collect, update, _ = seconds(more)
    assert update == 15
    assert collect == pytest.approx(11)  # its acts take half each, two of them in every step


def test_collecting_ahead_hides_the_shorter_of_the_two():
    ahead = replace(APART, ahead=1)
    assert seconds(ahead)[2] == pytest.approx(30), "learning takes longer than collecting"
    long = replace(ahead, steps=100)
    assert seconds(long, {**COSTS, "update": Cost(30.0)})[2] == pytest.approx(201)


def test_what_the_driver_does_between_iterations_counts():
    assert seconds(COLLOCATED, {**COSTS, "between": Cost(5.0)})[2] == 56


def test_streaming_begins_to_learn_before_all_is_there():
    streamed = replace(APART, stages=2, epochs=2, streaming=True)
    assert seconds(streamed)[2] < seconds(replace(streamed, streaming=False))[2]


def test_taking_turns_costs_what_changing_hands_costs():
    known = {**COSTS, "serve": Cost(1.0, 8, switch=0.25), "collect": Cost(1.0, 8, switch=0.5)}
    turns = replace(COLLOCATED, turns=True)
    # Simulation comes back once more than it steps, for the first observations.
    assert seconds(turns, known)[2] == pytest.approx(51 + 11 * 0.25 + 11 * 0.5)
    assert "turns: nobody changed devices" in predict(turns, COSTS, "").notes[0]


def test_other_numbers_of_rows_cost_in_proportion_and_that_is_said():
    twice = replace(COLLOCATED, envs=16)
    assert seconds(twice) == (42, 60, 102)
    notes = predict(twice, COSTS, "").notes
    assert "collect: measured with 8 rows at a time, here 16, in proportion" in notes
    assert not predict(COLLOCATED, COSTS, "").notes


def test_a_long_iteration_is_continued_in_proportion(monkeypatch):
    long = replace(APART, stages=2, steps=400, ahead=0)
    exact = predict(long, COSTS, "").times
    monkeypatch.setattr("rlinf_core.runs.predict.MOST_TASKS", 80)
    short = predict(long, COSTS, "").times
    assert short.iteration == pytest.approx(exact.iteration)
    assert short.collect == pytest.approx(exact.collect)
    assert short.idle == pytest.approx(exact.idle)


# --- real runs ------------------------------------------------------------------------------------

RUN = {
    "name": "timed", "seed": 5, "steps": 4,
    "simulator": {"name": "toy-slow", "horizon": 5},
    "model": {"name": "toy"},
    "algorithm": {"name": "ppo"},
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 4, "steps": 6},
    "update": {"epochs": 1, "minibatch_size": 24},
    "checkpoint": {"every": 0},
    "evaluation": {"episodes": 1, "video": False},
    "cluster": {"devices": "3 x cpu"},
}  # fmt: skip


@pytest.fixture
def load(tmp_path, toys):
    def load(*overrides):
        path = tmp_path / "timed.yaml"
        path.write_text(yaml.safe_dump(RUN, sort_keys=False))
        return load_run(str(path), overrides)

    return load


APART_LINES = ("placement={simulation: 0, rollout: 1, training: 2}", "collect.stages=2")


@pytest.fixture
def earlier(load, tmp_path):
    """Return the folder of a finished run, collocated in one process; a step takes 10 ms."""
    train(load(), tmp_path / "earlier", resume=False)
    return tmp_path / "earlier"


def test_costs_are_read_from_a_timeline(earlier):
    found = profile(earlier)
    assert set(METHODS) <= set(found)
    assert found["collect"].rows == 4
    assert found["serve"].rows == 4
    assert found["update"].rows == 4 * 6
    assert 0.010 <= found["collect"].seconds < 0.100
    assert found["serve"].seconds < found["collect"].seconds


def test_a_plan_predicts_from_an_earlier_run_and_a_run_comes_near(load, earlier, tmp_path):
    options = (*APART_LINES, "cluster.runtime=processes")
    run = load(*options)
    plan = make_plan(run, earlier).as_json()["prediction"]
    train(run, tmp_path / "later", resume=False)
    times = measured(read_timeline(tmp_path / "later" / "timeline.json"))
    # Six steps of two stages, 10 ms each whatever the rows: the toy does not keep to proportions,
    # which the plan says, so it predicts half.
    assert any("in proportion" in note for note in plan["notes"])
    assert plan["collect_s"] < 1.5 * times.collect
    again = predict(layout_of(run, arranged(run)), profile(tmp_path / "later"), "").times
    # No less than the work that one process has to do, and no more than what was seen, or little.
    assert 6 * 2 * 0.010 <= again.collect <= 1.5 * times.collect
    assert again.collect <= again.iteration <= 1.5 * times.iteration


def test_a_run_of_one_process_is_predicted_from_its_own_costs(load, earlier):
    timeline = read_timeline(earlier / "timeline.json")
    layout = layout_in(earlier, timeline)
    run = load()
    assert layout == layout_of(run, arranged(run))
    predicted, found = predict(layout, profile(earlier), "").times, measured(timeline)
    assert 6 * 0.010 <= predicted.collect <= 1.5 * found.collect
    assert predicted.collect <= predicted.iteration <= 1.5 * found.iteration


def test_trace_shows_both(earlier, capsys):
    assert trace.main(earlier, None, None, None, json=False) == 0
    told = capsys.readouterr().out
    assert "ITERATION" in told
    assert "PREDICTED" in told
    assert "cpu:0 idle" in told
    assert trace.main(earlier, None, None, None, json=True, profile=earlier) == 0
    found = json.loads(capsys.readouterr().out)["iteration"]
    assert found["measured"].keys() | {"profile", "notes"} == found["predicted"].keys()
    assert found["predicted"]["iteration_s"] >= 6 * 0.010
    assert found["predicted"]["iteration_s"] <= 1.5 * found["measured"]["iteration_s"]


def test_what_an_older_timeline_does_not_say_is_unknown(earlier, capsys):
    path = earlier / "timeline.json"
    events = [json.loads(line.rstrip(",")) for line in path.read_text().splitlines()[1:]]
    for event in events:
        event.get("args", {}).pop("items", None)
        event.get("args", {}).pop("rows", None)
    path.write_text("[\n" + "".join(json.dumps(event) + ",\n" for event in events))
    with pytest.raises(RequestError, match="how much work its calls were"):
        profile(earlier)
    assert trace.main(earlier, None, None, None, json=False) == 0
    assert "unknown" in capsys.readouterr().out


def test_a_folder_that_is_no_run_is_refused(load, tmp_path):
    with pytest.raises(RequestError, match=r"there is no .*timeline.json"):
        make_plan(load(), tmp_path)
