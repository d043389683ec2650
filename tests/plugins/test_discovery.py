"""Which distributions are found, and which are only reported."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

from rlinf_core.plugins.discovery import discover, installed_version
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.records import Phase, Status
from rlinf_core.specs import Kind
from rlinf_core.testing import install_plugin

LIST = """
import json
from rlinf_core.plugins.manager import PluginManager
manager = PluginManager()
print(json.dumps([(r.distribution, r.version, str(r.status), r.origin) for r in manager.records]))
"""


def test_case_p03_editable_and_ordinary_installs_are_both_found(python):
    code = LIST + (
        "from rlinf_core.specs import Kind\n"
        "registry = manager.registry\n"
        "for name in ('zoo-wheel', 'zoo-editable'):\n"
        "    print(registry.load(registry.component(Kind.ALGORITHM, name)).__module__)\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    listed, *loaded = done.stdout.splitlines()
    found = {name: status for name, _, status, _ in json.loads(listed)}
    assert found["rlinf-plugin-zoo-wheel"] == "ok"
    assert found["rlinf-plugin-zoo-editable"] == "ok"
    assert loaded == ["rlinf_plugin_zoo_wheel.code", "rlinf_plugin_zoo_editable.code"]


def test_case_p03_a_stale_egg_info_beside_an_installation_is_shadowed(python, tmp_path):
    """What a build left behind comes first on the path and names a module that is gone."""
    from_build = tmp_path / "old" / "rlinf_plugin_zoo_wheel.egg-info"
    from_build.mkdir(parents=True)
    (from_build / "PKG-INFO").write_text("Name: rlinf-plugin-zoo-wheel\nVersion: 0.5\n")
    (from_build / "entry_points.txt").write_text("[rlinf.plugins]\nzoo-wheel = gone.plugin\n")
    done = python(LIST, path=tmp_path / "old")
    rows = [row for row in json.loads(done.stdout) if row[0] == "rlinf-plugin-zoo-wheel"]
    assert [(version, status) for _, version, status, _ in rows] == [
        ("1.0", "ok"),
        ("0.5", "shadowed"),
    ]
    assert rows[1][3] == str(from_build)


def test_case_p03_an_egg_info_without_an_installation_is_reported_not_obeyed(site):
    site.add("rlinf-plugin-zoo-left", provides="zoo-left", built_only=True)
    manager = PluginManager()
    (record,) = [r for r in manager.records if r.distribution == "rlinf-plugin-zoo-left"]
    assert (record.status, record.phase) == (Status.BROKEN, Phase.METADATA)
    assert "no installation of it was found" in record.error
    assert record.origin in record.error
    assert "zoo-left" not in {c.spec.name for c in manager.registry.components(Kind.ALGORITHM)}
    assert installed_version("rlinf-plugin-zoo-left") is None


def test_an_egg_info_that_says_the_same_is_not_worth_a_word(site):
    """An installation in place by setuptools leaves both; nothing is stale."""
    site.add("rlinf-plugin-zoo-both", provides="zoo-both")
    site.add("rlinf-plugin-zoo-both", built_only=True)
    found, rejected = discover([str(site.folder)])
    assert "rlinf-plugin-zoo-both" in {item.distribution for item in found}
    assert rejected == []


def test_the_first_copy_on_the_path_wins_and_the_other_is_reported(site, tmp_path, monkeypatch):
    site.add("rlinf-plugin-zoo-twice", provides="zoo-old", version="1.0")
    other = type(site)(tmp_path / "first")
    other.add("rlinf-plugin-zoo-twice", provides="zoo-new", version="2.0")
    found, rejected = discover([str(other.folder), str(site.folder)])
    assert ("rlinf-plugin-zoo-twice", "2.0") in {(f.distribution, f.version) for f in found}
    (record,) = rejected
    assert (record.version, record.status) == ("1.0", Status.SHADOWED)
    assert "version 2.0 comes first" in record.error
    monkeypatch.syspath_prepend(str(other.folder))
    assert installed_version("rlinf-plugin-zoo-twice") == "2.0"


def test_a_folder_that_stands_twice_on_the_path_is_read_once(site, tmp_path):
    site.add("rlinf-plugin-zoo-once", provides="zoo-once")
    link = tmp_path / "link"
    link.symlink_to(site.folder)
    found, rejected = discover([str(site.folder), str(site.folder), str(link)])
    assert [f.distribution for f in found if "zoo-once" in f.distribution] == [
        "rlinf-plugin-zoo-once"
    ]
    assert rejected == []


def test_names_are_canonical(site):
    site.add("Rlinf_Plugin.Zoo--Name", provides="zoo-name")
    found, _ = discover([str(site.folder)])
    assert "rlinf-plugin-zoo-name" in {item.distribution for item in found}


def test_distributions_that_offer_no_plugin_are_not_listed(site):
    site.add("zoo-nothing", entry_points="[console_scripts]\nx = y:z\n")
    found, rejected = discover([str(site.folder)])
    assert [item.distribution for item in found] == ["rlinf-core"]
    assert rejected == []


def test_metadata_that_cannot_be_used_is_reported(site):
    for text, reason in [
        ("[rlinf.plugins]\na = zoo.one\nb = zoo.two\n", "name zoo.one, zoo.two; wanted one module"),
        ("[rlinf.plugins]\na = zoo.one:Plugin\n", "name zoo.one:Plugin; wanted one module"),
        ("[rlinf.plugins]\n", "name nothing; wanted one module"),
    ]:
        site.add("rlinf-plugin-zoo-meta", entry_points=text)
        _, (record,) = discover([str(site.folder)])
        assert (record.status, record.phase) == (Status.BROKEN, Phase.METADATA)
        assert reason in record.error


def test_metadata_that_cannot_be_read_is_reported(site):
    metadata = site.add("rlinf-plugin-zoo-bytes")
    (metadata / "entry_points.txt").write_bytes(b"[rlinf.plugins]\na = \xff\xfe\n")
    _, (record,) = discover([str(site.folder)])
    assert record.distribution == "rlinf-plugin-zoo-bytes"
    assert "entry_points.txt cannot be read" in record.error


def test_an_installation_that_was_half_removed_is_reported(site):
    metadata = site.add("rlinf-plugin-zoo-half")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\n")
    _, (record,) = discover([str(site.folder)])
    assert record.distribution == "rlinf-plugin-zoo-half"
    assert "no name or no version" in record.error


def test_the_core_registers_itself_also_where_nobody_installed_it(site):
    """A checkout on the path has no metadata, and its components are there all the same."""
    found, _ = discover([str(site.folder)])
    assert [(f.distribution, f.entries[0][1]) for f in found] == [
        ("rlinf-core", "rlinf_core.builtin.plugin")
    ]


def test_a_plugin_of_one_test_goes_with_it(tmp_path, monkeypatch):
    """Also where other processes look."""
    code = "from rlinf_core.api import hookimpl\n"
    look = [sys.executable, "-c", LIST]

    def found() -> list[list[str]]:
        told = json.loads(subprocess.run(look, capture_output=True, text=True, check=True).stdout)
        return [record for record in told if record[0] == "rlinf-plugin-fleeting"]

    with monkeypatch.context() as within:
        install_plugin(tmp_path, "rlinf_plugin_fleeting", code, within)
        assert version("rlinf-plugin-fleeting") == "1.0"
        assert [record[2] for record in found()] == ["ok"]
    assert str(tmp_path) not in sys.path
    assert found() == []
