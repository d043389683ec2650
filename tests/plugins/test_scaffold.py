"""A new plugin works as it is made: it installs, its tests pass, and it passes every check."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rlinf_core
from rlinf_core.errors import RequestError
from rlinf_core.plugins.scaffold import kinds, make_plugin
from rlinf_core.specs import Kind


@pytest.mark.parametrize("kind", kinds())
def test_a_new_plugin_works(kind, environment, python, tmp_path):
    made = make_plugin(kind, "zoo-own", tmp_path / "made")
    assert made.distribution == "rlinf-plugin-zoo-own"
    words = [f for f in made.folder.rglob("*") if f.is_file() and "sketch" in f.read_text().lower()]
    assert words == []
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target"]
    installed = tmp_path / "installed"
    done = subprocess.run(
        [*pip, "install", *options, str(installed), str(made.folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    tests = (
        "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]]))"
    )
    done = python(tests, str(made.folder), path=installed, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout
    check = "import sys; sys.argv[0] = 'rlinf'; from rlinf_core.cli import main; main()"
    command = ["plugins", "check", "zoo-own", "--import", "--probe"]
    done = python(check, *command, path=installed, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    assert "warning" not in done.stdout
    assert f"{kind} zoo-own" in done.stdout


def test_kinds_with_a_template_are_those_that_are_made_often():
    assert {Kind.SIMULATOR, Kind.MODEL, Kind.ALGORITHM, Kind.LOGGER} <= set(kinds())


def test_its_range_of_cores_holds_this_one(tmp_path):
    made = make_plugin(Kind.LOGGER, "x", tmp_path / "made")
    major, minor = rlinf_core.__version__.split(".")[:2]
    wanted = f"rlinf-core>={major}.{minor},<{major}.{int(minor) + 1}"
    assert wanted in (made.folder / "pyproject.toml").read_text()


def test_nothing_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = make_plugin(Kind.LOGGER, "x")
    assert made.folder.name == "rlinf-plugin-x"
    before = {f: f.read_bytes() for f in made.folder.rglob("*") if f.is_file()}
    for folder in (None, made.folder, made.folder / "README.md"):
        with pytest.raises(RequestError, match="is there already and nothing is overwritten"):
            make_plugin(Kind.MODEL, "x", folder)
    assert {f: f.read_bytes() for f in made.folder.rglob("*") if f.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["rlinf-plugin-x"]
    (tmp_path / "empty").mkdir()
    assert make_plugin(Kind.MODEL, "x", tmp_path / "empty").files


def test_what_cannot_be_written_as_a_whole_is_not_there(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copymode", full)
    with pytest.raises(RequestError, match="No space left on device"):
        make_plugin(Kind.LOGGER, "x", tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", "X", "my_sim", "-x", "x-", "3d", "class", "a/b", "../x", "a.b"]
)
def test_names_that_cannot_be_a_packages_are_refused(name, tmp_path):
    with pytest.raises(RequestError, match="wanted lower-case letters and digits"):
        make_plugin(Kind.LOGGER, name, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_kind_without_a_template_is_refused_with_those_that_have_one(tmp_path):
    missing = next(kind for kind in Kind if kind not in kinds())
    with pytest.raises(
        RequestError, match=f"no template for {missing}; there is one for simulator"
    ):
        make_plugin(missing, "x", tmp_path / "made")
