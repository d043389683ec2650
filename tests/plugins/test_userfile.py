"""Enabling and disabling in the user's own file, which keeps everything else that it says."""

from __future__ import annotations

import json
import os

import pytest
import yaml

from rlinf_core.errors import RequestError
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.settings import user_settings
from rlinf_core.plugins.userfile import switch

A, B, C = "rlinf-plugin-zoo-a", "rlinf-plugin-zoo-b", "rlinf-plugin-zoo-c"


@pytest.fixture
def file(site, tmp_path, monkeypatch):
    """Return the user's file, which does not exist, beside three installed plugins."""
    for name in (A, B, C):
        site.add(name, provides=name.removeprefix("rlinf-plugin-"))
    path = tmp_path / "mine.yaml"
    monkeypatch.setenv("RLINF_CONFIG", str(path))
    return path


def disabled() -> set[str]:
    settings = user_settings()
    return {name for name in (A, B, C) if settings.why_disabled(name)}


EMPTY = ["", "# mine\n", "plugins:\n", "plugins: # c\n", "plugins: null\n", "{}\n",
         "plugins: {}\n", "plugins: {disable: []}\n", "plugins:\n  disable:\n",
         "plugins:\n  disable: ~ # x\n", "plugins:\n  prefer: {algorithm/x: y}\n",
         "plugins:\n  # nothing\n", "---\nplugins: {}\n",
         "plugins:\r\n  disable: []\r\n"]  # fmt: skip


@pytest.mark.parametrize("text", EMPTY)
def test_any_way_of_saying_nothing_can_be_added_to(file, text):
    file.write_bytes(text.encode())
    changes = switch([B, A, B], on=False)
    assert (changes.changed, changes.unchanged, changes.path) == ((B, A), (), file)
    assert disabled() == {A, B}
    for line in text.splitlines():
        if "#" in line:
            assert line[line.index("#") :] in file.read_text(), "comments stay"
    if "prefer" in text:
        assert yaml.safe_load(file.read_text())["plugins"]["prefer"] == {"algorithm/x": "y"}
    assert switch([A, C], on=True).unchanged == (C,)
    assert disabled() == {B}
    switch([B], on=True)
    assert disabled() == set()


FULL = f"""\
# plugins of mine
plugins:
    # slow ones
    disable:
        - {A} # takes a minute
        # and this
        - Rlinf_Plugin.Zoo_B   # quoted otherwise

    prefer: {{algorithm/ppo: "{C}"}}   # not that one
# the end"""


def test_lines_and_comments_of_others_stay(file):
    file.write_text(FULL)
    assert switch([C, B], on=False).unchanged == (B,)
    added = FULL.replace("otherwise\n", f"otherwise\n        - {C}\n")
    assert file.read_text() == added
    switch([A], on=True)
    assert file.read_text() == added.replace(f"        - {A} # takes a minute\n", "")
    switch([B, C], on=True)
    left = file.read_text()
    assert disabled() == set()
    assert "# slow ones" in left
    assert "# and this" in left
    assert left.endswith("# not that one\n# the end")


@pytest.mark.parametrize(
    ("before", "on", "name", "after"),
    [
        (f"plugins: {{disable: [{A}, {B}]}}\n", True, A, f"plugins: {{disable: [{B}]}}\n"),
        (f"plugins: {{disable: [{A}, {B}]}}\n", True, B, f"plugins: {{disable: [{A}]}}\n"),
        (f"plugins: {{disable: [{A}]}}\n", False, B, f"plugins: {{disable: [{A}, {B}]}}\n"),
        (f"plugins:\n  disable:\n  - {A}", False, B, f"plugins:\n  disable:\n  - {A}\n  - {B}\n"),
        (
            "plugins: {disable: ['*'], enable: []}\n",
            True,
            A,
            f"plugins: {{disable: ['*'], enable: [{A}]}}\n",
        ),
        (
            f"plugins: {{disable: ['*'], enable: [{A}]}}\n",
            False,
            A,
            "plugins: {disable: ['*'], enable: []}\n",
        ),
        (
            f"plugins: {{disable: [\n  {A}, # one\n  {B}, # two\n]}}\n",
            True,
            B,
            f"plugins: {{disable: [\n  {A}, # two\n]}}\n",
        ),
    ],
)
def test_one_change_in_every_style(file, before, on, name, after):
    file.write_text(before)
    assert switch([name], on).changed == (name,)
    if "# one" not in before:
        assert file.read_text() == after
    assert (name in disabled()) is not on


def test_without_a_file_one_is_made_only_where_it_is_needed(file, monkeypatch, tmp_path):
    monkeypatch.delenv("RLINF_CONFIG")
    path = tmp_path / "xdg" / "rlinf" / "config.yaml"
    assert switch([A], on=True).unchanged == (A,)
    assert not path.exists()
    assert switch([A], on=False).path == path
    assert disabled() == {A}
    statuses = {r.distribution: r.status for r in PluginManager().records}
    assert statuses[A] == "disabled"
    assert statuses[B] == "ok"


def test_nothing_is_written_where_nothing_changes(file):
    file.write_text(FULL)
    os.utime(file, (1, 1))
    assert switch([A], on=False).changed == ()
    assert file.stat().st_mtime == 1


@pytest.mark.parametrize(
    "text",
    ["plugins: [\n", "plugin: {}\n", "plugins: {disable: a}\n", "a: 1\na: 2\n", "- a\n",
     "plugins: {disable: [a], enable: [a]}\n"],
)  # fmt: skip
def test_a_malformed_file_is_left_alone(file, text):
    file.write_text(text)
    with pytest.raises(RequestError):
        switch([A], on=False)
    assert file.read_text() == text


def test_a_change_that_would_change_something_else_is_refused(file):
    """One list stands in two places, so adding to one would add to the other."""
    text = f"plugins:\n  enable: &names [{A}]\n  disable: []\n"
    file.write_text(text)
    switch([A], on=False)  # is understood
    assert disabled() == {A}
    text = f"plugins:\n  prefer: {{algorithm/x: y}}\n  disable: !!set {{{A}}}\n"
    file.write_text(text)
    with pytest.raises(RequestError):
        switch([B], on=False)
    assert file.read_text() == text


def test_a_link_stays_a_link_and_a_failed_write_changes_nothing(file, tmp_path, monkeypatch):
    real = tmp_path / "dotfiles" / "rlinf.yaml"
    real.parent.mkdir()
    real.write_text(f"plugins: {{disable: [{A}]}}\n")
    file.symlink_to(real)
    switch([B], on=False)
    assert file.is_symlink()
    assert disabled() == {A, B}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlinf_core.plugins.userfile.write_text", full)
    with pytest.raises(RequestError, match="No space left on device; nothing was changed"):
        switch([C], on=False)
    assert disabled() == {A, B}


def test_whom_it_refuses(file):
    with pytest.raises(RequestError, match="'rlinf-plugin-zoo-x' is installed. Did you mean"):
        switch([A, "rlinf-plugin-zoo-x"], on=False)
    with pytest.raises(RequestError, match="rlinf-core itself cannot be disabled"):
        switch([A, "rlinf-core"], on=False)
    assert not file.exists(), "all or nothing"
    file.write_text("plugins: {disable: [rlinf-plugin-zoo-gone]}\n")
    assert switch(["zoo-gone"], on=True).changed == ("rlinf-plugin-zoo-gone",)


def test_the_commands(file, rlinf, site):
    done = rlinf("plugins", "disable", "zoo-a", path=site.folder, RLINF_CONFIG=str(file))
    assert (done.returncode, done.stdout) == (0, f"{A} is now disabled, by {file}\n")
    done = rlinf(
        "plugins", "disable", A, "zoo-b", "--json", path=site.folder, RLINF_CONFIG=str(file)
    )
    assert json.loads(done.stdout) == {
        "schema_version": 1,
        "file": str(file),
        "changed": [B],
        "unchanged": [A],
    }
    done = rlinf("plugins", "list", path=site.folder, RLINF_CONFIG=str(file))
    assert f"{A} 1.0 is disabled: plugins.disable of {file} names {A}; " in done.stdout
    done = rlinf("plugins", "enable", "zoo-a", "zoo-c", path=site.folder, RLINF_CONFIG=str(file))
    assert done.stdout == f"{A} is now enabled, by {file}\n{C} is enabled already\n"


def test_a_plugin_that_ends_every_command_is_found_and_disabled(file, rlinf, site):
    site.add("rlinf-plugin-zoo-end", "import os\nos._exit(9)\n")
    options = {"path": site.folder, "RLINF_CONFIG": str(file)}
    file.touch()
    assert rlinf("plugins", "list", **options).returncode == 9
    assert "rlinf-plugin-zoo-end" in rlinf("plugins", "list", "--no-import", **options).stdout
    done = rlinf("plugins", "check", "zoo-a", "zoo-end", **options)
    assert done.returncode == 1
    assert "its plugin module ended its process with exit code 9" in done.stdout
    assert rlinf("plugins", "disable", "zoo-end", **options).returncode == 0
    done = rlinf("plugins", "list", **options)
    assert done.returncode == 0
    assert "rlinf-plugin-zoo-end 1.0 is disabled" in done.stdout
