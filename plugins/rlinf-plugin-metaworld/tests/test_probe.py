"""What ``rlinf doctor`` is told, in a process of its own as the doctor asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rlinf_plugin_metaworld import rendering

ASK = (
    "import dataclasses, json; from rlinf_plugin_metaworld.probe import probe; "
    "print(json.dumps([dataclasses.asdict(item) for item in probe()]))"
)


def ask(**variables: str) -> list[dict[str, object]]:
    asked = {k: v for k, v in os.environ.items() if k != "MUJOCO_GL"}
    told = subprocess.run(
        [sys.executable, "-c", ASK],
        capture_output=True,
        check=True,
        text=True,
        env={**asked, **variables},
        timeout=120,
    )
    return list(json.loads(told.stdout))


def test_physics_and_drawing_are_tried() -> None:
    engine, drawing = ask()
    assert engine["ready"]
    assert str(engine["found"]).startswith("MuJoCo 3.3")
    library, _ = rendering.find_library("")
    assert drawing["ready"] is bool(library)
    assert drawing["found"] == f"{library} draws" if library else drawing["remedy"]


def test_a_library_that_does_not_draw_costs_video_and_no_more() -> None:
    _, drawing = ask(MUJOCO_GL="nonsense")
    assert drawing == {
        "what": "OpenGL off screen",
        "ready": False,
        "found": "no frames: MUJOCO_GL=nonsense cannot draw on this machine",
        "gives": "video",
        "remedy": "unset MUJOCO_GL",
    }


def test_without_any_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlinf_plugin_metaworld.probe import _drawing

    monkeypatch.setattr(rendering, "_TRY", "raise ImportError('no {0}')")
    rendering.find_library.cache_clear()
    try:
        told = _drawing("")
    finally:
        rendering.find_library.cache_clear()
    assert (told.ready, told.gives) == (False, "video")
    assert "apt-get install libosmesa6" in told.remedy


def test_a_broken_mujoco_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "mujoco.py").write_text("raise ImportError('mj_nothing')\n")
    paths = [str(tmp_path), *sys.path]
    (engine,) = ask(PYTHONPATH=os.pathsep.join(paths))
    assert not engine["ready"]
    assert engine["found"] == "cannot be imported: ImportError: mj_nothing"
    assert "in a new environment" in str(engine["remedy"])
