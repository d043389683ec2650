"""One version of everything: where it stands, that all agree, and the script that sets it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import rlinf_core

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Any:
    path = ROOT / "scripts" / "set_version.py"
    spec = importlib.util.spec_from_file_location("set_version", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["set_version"] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def about(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_all_versions_are_of_one_series(script):
    core, *plugins = script.projects()
    assert str(core.version) == rlinf_core.__version__
    assert "version" not in about(ROOT), "it stands in rlinf_core/__init__.py alone"
    wanted = SpecifierSet(script.series(core.version))
    for plugin in plugins:
        assert plugin.version in wanted, plugin.name
        assert str(plugin.version) == about(plugin.folder)["version"]
        requirements = [Requirement(line) for line in about(plugin.folder)["dependencies"]]
        (on_core,) = (r.specifier for r in requirements if r.name == script.CORE)
        assert script.belongs(on_core, core.version), plugin.name


def test_every_plugin_has_an_extra_of_the_core_and_is_in_all(script):
    core, *plugins = script.projects()
    extras = about(ROOT)["optional-dependencies"]
    short = {p.name.removeprefix("rlinf-plugin-"): p.name for p in plugins}
    for extra, name in short.items():
        assert extras.get(extra) == [f"{name}{script.series(core.version)}"]
    assert set(extras) == {"all", "quickstart", *short}
    everything = [Requirement(line) for line in extras["all"]]
    assert {line.name for line in everything} == {script.CORE}
    assert set().union(*(line.extras for line in everything)) == set(short)
    (some,) = (Requirement(line) for line in extras["quickstart"])
    assert some.extras < set(short)


def test_every_plugin_goes_with_the_license(script):
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    for project in script.projects():
        assert (project.folder / "LICENSE").read_text(encoding="utf-8") == text, project.name
        assert about(project.folder)["license-files"] == ["LICENSE"], project.name


@pytest.mark.parametrize(
    ("version", "series"),
    [
        ("0.1.0", ">=0.1,<0.2"),
        ("0.1.7", ">=0.1,<0.2"),
        ("0.12.0", ">=0.12,<0.13"),
        ("1.0.0", ">=1.0,<1.1"),
        ("0.2.0rc1", ">=0.2.0rc1,<0.3"),
        ("0.2.1rc1", ">=0.2,<0.3"),
    ],
)
def test_the_series_of_a_version(script, version, series):
    assert script.series(Version(version)) == series
    assert SpecifierSet(series).contains(version, prereleases=True)


@pytest.mark.parametrize(
    ("text", "belongs"),
    [
        (">=0.1,<0.2", True),
        (">=0.1.3,<0.2", True),
        (">=0.1", False),
        (">=0.2,<0.2", False),
        (">=0.1,<0.3", False),
        ("<0.2", False),
        (">=0.1,<0.2,!=0.1.4", False),
    ],
)
def test_which_ranges_belong_to_a_series(script, text, belongs):
    assert script.belongs(SpecifierSet(text), Version("0.1.5")) is belongs


@pytest.fixture
def tree(script, tmp_path):
    """Return a copy of what of the repository a version may stand in."""
    for file in [*script._texts(ROOT), ROOT / "CHANGELOG.md"]:
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    return tmp_path


def test_a_new_series_is_set_everywhere(script, tree):
    core = script.projects(tree)[0].version
    new = Version(f"{core.major}.{core.minor + 1}.0")
    old_range, new_range = script.series(core), script.series(new)
    ppo = tree / "plugins" / "rlinf-plugin-ppo" / "pyproject.toml"
    patched = f"rlinf-core>={core.major}.{core.minor}.7,<{new.major}.{new.minor}"
    text = ppo.read_text(encoding="utf-8").replace(f"rlinf-core{old_range}", patched)
    assert patched in text
    ppo.write_text(text, encoding="utf-8")
    changed = script.set_version(new, root=tree)
    assert {project.version for project in script.projects(tree)} == {new}
    left = [
        str(file)
        for file in script._texts(tree)
        for line in file.read_text(encoding="utf-8").splitlines()
        if f"rlinf-core{old_range}" in line
    ]
    assert left == []
    assert f"rlinf-core{new_range}" in about(ppo.parent)["dependencies"]
    extras = about(tree)["optional-dependencies"]
    assert extras["ppo"] == [f"rlinf-plugin-ppo{new_range}"]
    tutorial = tree / "docs" / "tutorial" / "first-run.md"
    assert tutorial in changed
    assert f"\nrlinf {new}\n" in tutorial.read_text(encoding="utf-8")
    assert (tree / "CHANGELOG.md") not in changed
    assert script.set_version(Version(f"{new.major}.{new.minor}.1"), root=tree)
    assert about(tree)["optional-dependencies"] == extras, "a patch is of the same series"


def test_one_plugin_is_released_alone(script, tree):
    core = script.projects(tree)[0].version
    new = Version(f"{core.major}.{core.minor}.{core.micro + 3}")
    changed = script.set_version(new, "rlinf-plugin-ppo", tree)
    assert changed == [tree / "plugins" / "rlinf-plugin-ppo" / "pyproject.toml"]
    versions = {project.name: project.version for project in script.projects(tree)}
    assert versions.pop("rlinf-plugin-ppo") == new
    assert set(versions.values()) == {core}


@pytest.mark.parametrize(
    ("version", "only", "text"),
    [
        ("0.0.1", "", "wanted a version above that"),
        (rlinf_core.__version__, "", "wanted a version above that"),
        ("99.0.0", "rlinf-plugin-ppo", "is not of the series of the core"),
        ("99.0.0", "rlinf-plugin-pop", "wanted one of rlinf-plugin-"),
        ("99.0.0", "rlinf-core", "wanted one of rlinf-plugin-"),
    ],
)
def test_what_is_refused_changes_nothing(script, tree, version, only, text):
    before = {file: file.read_bytes() for file in script._texts(tree)}
    with pytest.raises(ValueError, match=text):
        script.set_version(Version(version), only, tree)
    assert {file: file.read_bytes() for file in before} == before
