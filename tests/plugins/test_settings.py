"""Which plugins to load: the user's file and a run's section, read and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf_core.errors import ConfigError
from rlinf_core.plugins.settings import PluginSettings, read_layer, user_file, user_settings


def test_where_the_users_file_lies(tmp_path, monkeypatch):
    assert user_file() == tmp_path / "xdg" / "rlinf" / "config.yaml"
    monkeypatch.setenv("RLINF_CONFIG", str(tmp_path / "mine.yaml"))
    assert user_file() == tmp_path / "mine.yaml"
    monkeypatch.delenv("RLINF_CONFIG")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_file() == Path(tmp_path) / ".config" / "rlinf" / "config.yaml"


def test_without_a_file_everything_is_enabled():
    assert user_settings() == PluginSettings()
    assert PluginSettings().why_disabled("rlinf-plugin-zoo") == ""


def test_names_in_a_file_are_canonical(tmp_path, monkeypatch):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "plugins:\n  disable: [Rlinf_Plugin_A]\n  prefer: {algorithm/ppo: Rlinf.Plugin.B}\n"
    )
    monkeypatch.setenv("RLINF_CONFIG", str(file))
    settings = user_settings()
    assert f"plugins.disable of {file} names rlinf-plugin-a" in settings.why_disabled(
        "rlinf-plugin-a"
    )
    assert settings.preferred("algorithm", "ppo") == ("rlinf-plugin-b", str(file))
    assert settings.preferred("algorithm", "grpo") == ("", "")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("plugin: {}\n", "plugin: no such key. Did you mean 'plugins'? It takes: plugins"),
        ("- a\n", "found ['a'], wanted a mapping with the key 'plugins'"),
        ("plugins: [a]\n", "plugins: found ['a'], wanted a mapping of enable, disable, prefer"),
        ("plugins: {disabel: [a]}\n", "plugins.disabel: no such key. Did you mean 'disable'"),
        ("plugins: {disable: a}\n", "plugins.disable: found 'a', wanted a list of distributions"),
        ("plugins: {disable: [1]}\n", "plugins.disable: found [1], wanted a list"),
        ("plugins: {enable: ['*']}\n", "plugins.enable: '*' is understood in plugins.disable"),
        ("plugins: {disable: [rlinf-core]}\n", "rlinf-core itself cannot be disabled"),
        ("plugins: {enable: [a], disable: [A]}\n", "a is both enabled and disabled"),
        ("plugins: {prefer: [a]}\n", "plugins.prefer: found ['a'], wanted kind/name"),
        ("plugins: {prefer: {ppo: a}}\n", "plugins.prefer.ppo: there is no kind 'ppo'"),
        (
            "plugins: {prefer: {algoritm/ppo: a}}\n",
            "there is no kind 'algoritm'. Did you mean 'algorithm'?",
        ),
        ("plugins: {prefer: {algorithm/ppo: 3}}\n", "found {algorithm/ppo: 3}, wanted kind/name"),
        ("plugins: [\n", "cannot be read"),
        ("a: 1\na: 2\n", "cannot be read"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, monkeypatch, text, finding):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    monkeypatch.setenv("RLINF_CONFIG", str(file))
    with pytest.raises(ConfigError) as caught:
        user_settings()
    assert finding in str(caught.value)
    assert str(file) in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_empty_file_says_nothing(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("")
    monkeypatch.setenv("RLINF_CONFIG", str(tmp_path / "mine.yaml"))
    assert user_settings().why_disabled("rlinf-plugin-zoo") == ""


def test_a_file_that_was_named_must_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("RLINF_CONFIG", str(tmp_path / "gone.yaml"))
    with pytest.raises(ConfigError, match="there is no such file"):
        user_settings()


def test_all_findings_of_a_section_come_at_once():
    with pytest.raises(ConfigError) as caught:
        read_layer("run.yaml", {"x": 1, "enable": 2, "prefer": 3})
    assert len(caught.value.findings) == 3


def test_a_home_that_nobody_has(monkeypatch):
    monkeypatch.setenv("RLINF_CONFIG", "~nosuchuser/x.yaml")
    with pytest.raises(ConfigError, match="names ~nosuchuser/x.yaml, and there is no such file"):
        user_settings()
