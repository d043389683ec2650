"""The timeline of a run: written as it goes, read back, measured and drawn."""

from __future__ import annotations

import json

import pytest

from rlinf_core.cli import trace
from rlinf_core.errors import RequestError
from rlinf_core.flow import timeline
from rlinf_core.flow.timeline import NAME, TimelineWriter, measure, read_timeline
from rlinf_core.protocols.runtime import Span

SECOND = 1_000_000_000


def span(worker, kind, name, began, ended, **details):
    return Span(worker, kind, name, int(began * SECOND), int(ended * SECOND), details)


SPANS = [
    span("rollout[0]", "wait", "observations", 1, 3),
    span("rollout[0]", "transfer", "observations", 3, 3.5),
    span("rollout[0]", "call", "serve", 0, 5, version=7),
    span("training[0]", "wait", "trajectories", 1, 4),
    span("training[0]", "call", "update", 1, 8),
    span("simulation[0]", "call", "collect", 0, 4),
    span("simulation[0]", "switch", "offload", 3, 4),
]
DEVICES = {"rollout[0]": ["cpu:0"], "simulation[0]": ["cpu:0"], "training[0]": ["cpu:0", "cpu:1"]}


@pytest.fixture
def written(tmp_path):
    path = tmp_path / NAME
    TimelineWriter(path, lambda: DEVICES).write(SPANS)
    return path


def test_what_was_written_is_read_back(written):
    found = read_timeline(written)
    assert [(c.worker, c.name) for c in found.calls] == [
        ("rollout[0]", "serve"), ("simulation[0]", "collect"), ("training[0]", "update"),
    ]  # fmt: skip
    serve = found.calls[0]
    assert serve.details["version"] == 7
    assert (serve.began, serve.ended) == (0.0, 5.0)
    assert serve.busy() == [(0.0, pytest.approx(1.0)), (pytest.approx(3.0), 5.0)]
    assert found.devices == {
        "cpu:0": ["rollout[0]", "simulation[0]", "training[0]"], "cpu:1": ["training[0]"],
    }  # fmt: skip


def test_seconds_of_each_kind_and_idle_time_of_each_device(written):
    found = measure(read_timeline(written))
    assert found["seconds"] == pytest.approx(8)
    assert found["workers"]["rollout[0]"] == pytest.approx(
        {"compute": 2.5, "wait": 2, "transfer": 0.5, "switch": 0, "idle": 3}
    )
    assert found["workers"]["simulation[0]"]["switch"] == pytest.approx(1)
    assert found["devices"]["cpu:1"]["idle"] == pytest.approx(4)  # waits from 1 to 4, then computes
    assert found["devices"]["cpu:0"]["idle"] == pytest.approx(0)


def test_it_is_in_the_trace_event_format(written):
    text = written.read_text().rstrip().rstrip(",") + "]"
    events = json.loads(text)
    for event in events:
        assert event["ph"] in ("X", "M")
        assert {"name", "pid", "tid"} <= event.keys()
    calls = [event for event in events if event.get("cat") == "call"]
    inner = [event for event in events if event.get("cat") in timeline.INNER]
    assert len(calls) == 3
    for event in inner:  # viewers nest what lies within, on one thread
        outer = next(c for c in calls if (c["pid"], c["tid"]) == (event["pid"], event["tid"]))
        assert outer["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + 0.2


def test_a_later_try_is_appended_and_a_torn_last_line_is_left_out(written):
    TimelineWriter(written, lambda: DEVICES).write(SPANS)
    assert len(read_timeline(written).calls) == 6
    with written.open("a") as file:
        file.write('{"name": "serve", "cat": "ca')
    assert len(read_timeline(written).calls) == 6


def test_a_line_in_the_middle_that_is_no_event_is_refused(written):
    lines = written.read_text().splitlines(keepends=True)
    written.write_text("".join([*lines[:3], "what?\n", *lines[3:]]))
    with pytest.raises(RequestError, match=r"timeline.json:4: found 'what\?'"):
        read_timeline(written)


def test_after_so_many_events_only_whole_calls_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "MOST_EVENTS", 1)
    writer = TimelineWriter(tmp_path / NAME, lambda: DEVICES)
    writer.write(SPANS)
    writer.write(SPANS)
    calls = read_timeline(tmp_path / NAME).calls
    assert [len(call.within) for call in calls if call.name == "serve"] == [2, 0]
    assert all(call.spent("wait") == pytest.approx(2) for call in calls if call.name == "serve")


def test_trace_prints_a_table_and_draws(written, capsys, tmp_path):
    assert trace.main(tmp_path, None, None, None, json=False) == 0
    told = capsys.readouterr().out
    assert "rollout[0]" in told
    assert "50.0%" in told, "cpu:1 is idle for half of the time"
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert trace.main(written, tmp_path / "part.png", 1.0, 2.0, json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert report["picture"] == str(tmp_path / "part.png")


@pytest.mark.parametrize(("began", "seconds"), [(100.0, None), (None, -1.0), (2.0, 0.0)])
def test_a_window_without_anything_in_it_is_refused(written, began, seconds):
    with pytest.raises(RequestError, match="nothing was recorded"):
        trace.main(written, None, began, seconds, json=False)


def test_a_folder_without_a_timeline_is_refused(tmp_path):
    with pytest.raises(RequestError, match="wanted the folder of a run"):
        trace.main(tmp_path, None, None, None, json=False)
