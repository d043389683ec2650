"""Loading: every way in which a plugin can fail ends as a record, and harms no other."""

from __future__ import annotations

import os
import shutil

import pytest

import rlinf_core
from rlinf_core.errors import PluginError
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.records import Phase, Status
from rlinf_core.plugins.settings import PluginSettings, read_layer
from rlinf_core.specs import Kind

SERIES = ".".join(rlinf_core.__version__.split(".")[:2])

GOOD = "from rlinf_core.api import ComponentSpec, EngineAdapterSpec, hookimpl\n"


def record_of(manager, name):
    (record,) = [r for r in manager.records if r.distribution == name]
    return record


def names(manager, kind=Kind.ALGORITHM):
    return {c.spec.name for c in manager.registry.components(kind)}


BROKEN = {
    "case_p01_import_error": (
        "import zoo_module_that_is_missing",
        Phase.IMPORT,
        "ModuleNotFoundError: No module named 'zoo_module_that_is_missing'",
    ),
    "case_p01_syntax_error": ("def broken(:\n", Phase.IMPORT, "SyntaxError: invalid syntax"),
    "raises": ("raise RuntimeError('no licence')", Phase.IMPORT, "RuntimeError: no licence"),
    "exits": ("import sys; sys.exit(3)", Phase.IMPORT, "SystemExit: 3"),
    "hook_raises": (
        GOOD + "@hookimpl\ndef rlinf_algorithms():\n    raise KeyError('nothing here')\n",
        Phase.HOOKS,
        "rlinf_algorithms failed: KeyError: 'nothing here'",
    ),
    "hook_exits": (
        GOOD + "@hookimpl\ndef rlinf_algorithms():\n    raise SystemExit\n",
        Phase.HOOKS,
        "rlinf_algorithms failed: SystemExit",
    ),
    "hook_raises_midway": (
        GOOD + "@hookimpl\ndef rlinf_algorithms():\n"
        "    yield ComponentSpec('zoo-half', 'x', 'a:B')\n    raise OSError('halfway')\n",
        Phase.HOOKS,
        "rlinf_algorithms failed: OSError: halfway",
    ),
    "case_p02_upper_case_name": (
        GOOD + "@hookimpl\ndef rlinf_algorithms():\n"
        "    return [ComponentSpec('PPO', 'x', 'a:B')]\n",
        Phase.HOOKS,
        "component name 'PPO': wanted lower-case letters",
    ),
    "returns_nothing": (
        GOOD + "@hookimpl\ndef rlinf_models():\n    pass\n",
        Phase.SPECS,
        "rlinf_models returned None, wanted a list",
    ),
    "returns_text": (
        GOOD + "@hookimpl\ndef rlinf_models():\n    return 'mlp'\n",
        Phase.SPECS,
        "rlinf_models returned 'mlp', wanted a list",
    ),
    "returns_garbage": (
        GOOD + "@hookimpl\ndef rlinf_models():\n    return [{'name': 'mlp'}]\n",
        Phase.SPECS,
        "rlinf_models returned {'name': 'mlp'}, wanted a list of ComponentSpec",
    ),
    "returns_spec_of_no_adapter": (
        GOOD + "@hookimpl\ndef rlinf_engine_adapters():\n"
        "    return [ComponentSpec('x', 'x', 'a:B')]\n",
        Phase.SPECS,
        "wanted a list of EngineAdapterSpec",
    ),
    "one_name_twice": (
        GOOD + "@hookimpl\ndef rlinf_models():\n"
        "    return [ComponentSpec('x', 'x', 'a:B'), ComponentSpec('x', 'x', 'c:D')]\n",
        Phase.SPECS,
        "rlinf_models returned two components named 'x'",
    ),
    "misspelt_hook": (
        GOOD + "@hookimpl\ndef rlinf_algoritms():\n    return []\n",
        Phase.HOOKS,
        "rlinf_algoritms: there is no such hook. Did you mean 'rlinf_algorithms'",
    ),
    "unmarked_hook": (
        "def rlinf_algorithms():\n    return []\n",
        Phase.HOOKS,
        "rlinf_algorithms is not marked, so it would never be called; put @hookimpl above it",
    ),
    "wrong_arguments": (
        GOOD + "@hookimpl\ndef rlinf_run_started(rum):\n    pass\n",
        Phase.HOOKS,
        "do not fit: PluginValidationError",
    ),
    "no_folder_of_configs": (
        GOOD + "@hookimpl\ndef rlinf_configs():\n    return ['rlinf_plugin_zoo_bad.nothing']\n",
        Phase.SPECS,
        "rlinf_configs returned 'rlinf_plugin_zoo_bad.nothing', wanted packages",
    ),
    "another_api": ("RLINF_PLUGIN_API = 2\n", Phase.API, "declares RLINF_PLUGIN_API = 2"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_quarantined_and_the_others_load(site, case):
    source, phase, text = BROKEN[case]
    site.add("rlinf-plugin-zoo-aaa", provides="zoo-aaa")
    site.add("rlinf-plugin-zoo-bad", source)
    site.add("rlinf-plugin-zoo-zzz", provides="zoo-zzz")
    manager = PluginManager()
    record = record_of(manager, "rlinf-plugin-zoo-bad")
    expected = Status.INCOMPATIBLE if phase is Phase.API else Status.BROKEN
    assert (record.status, record.phase) == (expected, phase)
    assert text in record.error
    assert {"zoo-aaa", "zoo-zzz"} <= names(manager)
    assert "zoo-half" not in names(manager)


@pytest.mark.parametrize("case", ["case_p01_import_error", "case_p01_syntax_error", "hook_raises"])
def test_case_p01_choosing_a_broken_plugin_shows_its_own_traceback(site, case):
    source, _, text = BROKEN[case]
    site.add("rlinf-plugin-zoo-bad", source)
    with pytest.raises(PluginError) as caught:
        PluginManager().registry.component(Kind.ALGORITHM, "zoo-bad")
    message = str(caught.value)
    assert text in message
    assert str(site.folder / "rlinf_plugin_zoo_bad" / "plugin.py") in message
    assert "importlib" not in message, "the machinery above the plugin is left out"
    assert type(caught.value.__cause__).__name__ in text
    assert caught.value.exit_code == 2


def test_case_p01_a_plugin_whose_files_are_gone(site):
    site.add("rlinf-plugin-zoo-gone", provides="zoo-gone")
    shutil.rmtree(site.folder / "rlinf_plugin_zoo_gone")
    manager = PluginManager()
    record = record_of(manager, "rlinf-plugin-zoo-gone")
    assert (record.status, record.phase) == (Status.BROKEN, Phase.IMPORT)
    with pytest.raises(PluginError, match="No module named 'rlinf_plugin_zoo_gone'"):
        manager.registry.component(Kind.ALGORITHM, "zoo-gone")


def test_a_component_named_before_its_plugin_broke_is_known_to_be_broken(site):
    """The name comes from an earlier hook, not from that of the distribution."""
    site.add(
        "rlinf-plugin-zoo-late",
        GOOD + "@hookimpl\ndef rlinf_models():\n"
        "    return [ComponentSpec('zoo-early', 'x', 'a:B')]\n"
        "@hookimpl\ndef rlinf_rewards():\n    raise OSError('late')\n",
    )
    manager = PluginManager()
    assert names(manager, Kind.MODEL).isdisjoint({"zoo-early"})
    with pytest.raises(PluginError, match="OSError: late"):
        manager.registry.component(Kind.MODEL, "zoo-early")


def test_an_interrupt_while_loading_ends_the_command(site):
    site.add("rlinf-plugin-zoo-slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        PluginManager()


def test_what_a_plugin_prints_stays_off_standard_output(site, capsys):
    site.add(
        "rlinf-plugin-zoo-loud",
        "print('at import')\n" + GOOD + "@hookimpl\ndef rlinf_models():\n    print('in a hook')\n"
        "    return []\n",
    )
    assert record_of(PluginManager(), "rlinf-plugin-zoo-loud").ok
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "at import\nin a hook\n"


def test_a_hook_said_to_be_of_a_newer_core_is_not_misspelt(site):
    site.add(
        "rlinf-plugin-zoo-new",
        GOOD + "@hookimpl(optionalhook=True)\ndef rlinf_holograms():\n    return []\n",
    )
    assert record_of(PluginManager(), "rlinf-plugin-zoo-new").ok


def test_a_disabled_plugin_is_not_imported(site, tmp_path):
    site.add("rlinf-plugin-zoo-off", f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    settings = PluginSettings().with_layer("my.yaml", {"disable": ["Rlinf_Plugin.Zoo-Off"]})
    manager = PluginManager(settings)
    record = record_of(manager, "rlinf-plugin-zoo-off")
    assert (record.status, record.phase) == (Status.DISABLED, Phase.POLICY)
    assert "plugins.disable of my.yaml names rlinf-plugin-zoo-off" in record.error
    assert not (tmp_path / "imported").exists()
    with pytest.raises(PluginError, match=r"is disabled: plugins\.disable of my\.yaml"):
        manager.registry.component(Kind.ALGORITHM, "zoo-off")
    assert record_of(PluginManager(), "rlinf-plugin-zoo-off").ok
    assert (tmp_path / "imported").exists()


def test_the_users_file_is_obeyed(site, tmp_path, monkeypatch):
    site.add("rlinf-plugin-zoo-off", provides="zoo-off")
    file = tmp_path / "xdg" / "rlinf" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("plugins: {disable: [rlinf-plugin-zoo-off]}\n")
    assert record_of(PluginManager(), "rlinf-plugin-zoo-off").status is Status.DISABLED
    monkeypatch.setenv("RLINF_CONFIG", os.devnull)
    assert record_of(PluginManager(), "rlinf-plugin-zoo-off").ok


def test_case_p04_a_plugin_that_is_too_old(site, tmp_path):
    site.add(
        "rlinf-plugin-zoo-old",
        f"open({str(tmp_path / 'imported')!r}, 'w').close()",
        requires=["rlinf-core>=0.0.1,<0.1"],
    )
    record = record_of(PluginManager(), "rlinf-plugin-zoo-old")
    assert (record.status, record.phase) == (Status.INCOMPATIBLE, Phase.VERSION)
    assert "too old for the core" in record.error
    assert f"rlinf-core {rlinf_core.__version__} is installed" in record.error
    assert "pip install --upgrade rlinf-plugin-zoo-old" in record.error
    assert "pip install 'rlinf-core<0.1,>=0.0.1'" in record.error
    assert not (tmp_path / "imported").exists()


def test_case_p04_a_plugin_that_is_too_new(site):
    site.add("rlinf-plugin-zoo-new", "", requires=["numpy", "rlinf-core>=7,<8"])
    manager = PluginManager()
    record = record_of(manager, "rlinf-plugin-zoo-new")
    assert (record.status, record.phase) == (Status.INCOMPATIBLE, Phase.VERSION)
    assert "too new for the core" in record.error
    assert "pip install --upgrade 'rlinf-core<8,>=7'" in record.error
    assert "too old" not in record.error
    with pytest.raises(PluginError, match="too new for the core"):
        manager.registry.component(Kind.ALGORITHM, "zoo-new")


@pytest.mark.parametrize(
    ("requires", "status", "text"),
    [
        ([], Status.OK, ""),
        (["rlinf-core"], Status.OK, ""),
        (["rlinf-core>=0.1,<0.2"], Status.OK, ""),
        ([f"rlinf_Core~={SERIES}.0"], Status.OK, ""),
        ([f"rlinf-core=={SERIES}.*"], Status.OK, ""),
        (["rlinf-core>=7; extra == 'next'"], Status.OK, ""),
        (["rlinf-core>=7; python_version < '3'"], Status.OK, ""),
        (["not a requirement at all ???"], Status.OK, ""),
        (["rlinf-core==0.0.9"], Status.INCOMPATIBLE, "too old"),
        (["rlinf-core~=0.0.9"], Status.INCOMPATIBLE, "too old"),
        (["rlinf-core==3.*"], Status.INCOMPATIBLE, "too new"),
        (["rlinf-core~=3.1"], Status.INCOMPATIBLE, "too new"),
        ([f"rlinf-core!={rlinf_core.__version__}"], Status.INCOMPATIBLE, "excludes exactly"),
        (["rlinf-core>=nonsense"], Status.BROKEN, "requirement on the core cannot be read"),
    ],
)
def test_declared_ranges_of_cores(site, requires, status, text):
    site.add("rlinf-plugin-zoo-range", "", requires=requires)
    record = record_of(PluginManager(), "rlinf-plugin-zoo-range")
    assert record.status is status
    assert text in record.error


def test_side_effects_reach_every_plugin_and_one_that_fails_stops_nothing(site):
    calls: list[str] = []
    rlinf_core.zoo_calls = calls  # type: ignore[attr-defined]
    body = GOOD + "import rlinf_core\n@hookimpl\ndef rlinf_run_finished(run, outcome):\n    "
    site.add("rlinf-plugin-zoo-a", body + "rlinf_core.zoo_calls.append(f'a {run} {outcome}')\n")
    site.add("rlinf-plugin-zoo-b", body + "raise OSError('full disk')\n")
    site.add("rlinf-plugin-zoo-c", body + "rlinf_core.zoo_calls.append(f'c {run} {outcome}')\n")
    try:
        failures = PluginManager().notify("rlinf_run_finished", run="r", outcome="done")
    finally:
        del rlinf_core.zoo_calls  # type: ignore[attr-defined]
    assert sorted(calls) == ["a r done", "c r done"]
    assert failures == ["rlinf-plugin-zoo-b: rlinf_run_finished failed: OSError: full disk"]


def test_folders_of_configs_are_found_without_importing_them(site):
    site.add(
        "rlinf-plugin-zoo-runs",
        GOOD + "@hookimpl\ndef rlinf_configs():\n    return ['rlinf_plugin_zoo_runs.configs']\n",
        files={"configs/walk.yaml": "seed: 1\n"},
    )
    folder = site.folder / "rlinf_plugin_zoo_runs" / "configs"
    assert ("rlinf-plugin-zoo-runs", folder) in PluginManager().config_folders()


def test_settings_of_a_later_layer_win():
    user = read_layer("user", {"disable": ["*"], "enable": ["a"]})
    run = read_layer("run", {"disable": ["a"], "enable": ["b"]})
    settings = PluginSettings((user, run))
    assert settings.why_disabled("b") == ""
    assert "plugins.disable of run names a;" in settings.why_disabled("a")
    assert "plugins.disable of user names every plugin;" in settings.why_disabled("c")
    assert settings.why_disabled("rlinf-core") == ""


OWN_INTERRUPT = "class Stop(KeyboardInterrupt): pass\nraise Stop('zoo')\n"


def test_an_interrupt_of_a_plugins_own_is_a_fault_of_the_plugin(site):
    site.add("rlinf-plugin-zoo-stop", OWN_INTERRUPT)
    record = record_of(PluginManager(), "rlinf-plugin-zoo-stop")
    assert (record.status, record.phase) == (Status.BROKEN, Phase.IMPORT)
    assert "Stop: zoo" in record.error


def test_a_package_of_configs_that_cannot_be_looked_for(site):
    hook = "@hookimpl\ndef rlinf_configs():\n    return ['rlinf_plugin_zoo_stop.sub.configs']\n"
    files = {"sub/__init__.py": OWN_INTERRUPT, "sub/configs/a.yaml": "{}"}
    site.add("rlinf-plugin-zoo-stop", GOOD + hook, files=files)
    record = record_of(PluginManager(), "rlinf-plugin-zoo-stop")
    assert (record.status, record.phase) == (Status.BROKEN, Phase.SPECS)


def test_a_side_effect_that_interrupts_itself_stops_nothing(site):
    hook = (
        "class Stop(KeyboardInterrupt): pass\n"
        "@hookimpl\ndef rlinf_run_finished(run, outcome):\n    raise Stop('zoo')\n"
    )
    site.add("rlinf-plugin-zoo-stop", GOOD + hook)
    failures = PluginManager().notify("rlinf_run_finished", run=None, outcome=None)
    assert failures == ["rlinf-plugin-zoo-stop: rlinf_run_finished failed: Stop: zoo"]
