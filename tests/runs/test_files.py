from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlinf_core.errors import RequestError
from rlinf_core.files import choose_folder, locked, write_json, write_text


def test_a_file_is_replaced_whole_and_nothing_is_left_beside(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": math.nan, "y": [1, math.inf, {"z": 2.5}]})
    assert json.loads(path.read_text()) == {"x": None, "y": [1, None, {"z": 2.5}]}
    write_text(path, "new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_folders_are_numbered_and_resume_takes_the_newest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert choose_folder("q", None, resume=False) == Path("runs/q")
    assert choose_folder("q", None, resume=True) == Path("runs/q")
    for name in ("q", "q-2"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "run.json").touch()
    Path("runs/q-3").mkdir()
    Path("runs/q-3/.lock").touch()  # of a run that was refused: neither in use nor worth resuming
    assert choose_folder("q", None, resume=False) == Path("runs/q-3")
    assert choose_folder("q", None, resume=True) == Path("runs/q-2")


def test_a_folder_with_something_in_it_is_never_overwritten(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(RequestError, match="nothing is overwritten.*--resume"):
        choose_folder("q", tmp_path, resume=False)
    assert choose_folder("q", tmp_path, resume=True) == tmp_path
    with pytest.raises(RequestError, match="is a file"):
        choose_folder("q", tmp_path / "metrics.jsonl", resume=True)


def test_two_runs_cannot_share_a_folder(tmp_path):
    with locked(tmp_path), pytest.raises(RequestError, match="another run"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_place_that_cannot_be_written_is_a_wrong_request(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="cannot write"), locked(tmp_path / "file" / "run"):
        pass
    with pytest.raises(RequestError, match="choose another --output"):
        choose_folder("q", tmp_path / ("x" * 300), resume=False)
