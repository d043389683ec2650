"""Each check of a plugin: it passes what is right and names what is wrong, with a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import pytest

import rlinf_core
from rlinf_core.diagnosis.check import Report, check_plugins
from rlinf_core.diagnosis.findings import Finding, Outcome, Stage
from rlinf_core.diagnosis.forbidden import HEAVY, LISTING, Refuse
from rlinf_core.diagnosis.targets import CONTRACTS
from rlinf_core.errors import RequestError
from rlinf_core.plugins.resolve import import_target
from rlinf_core.plugins.settings import PluginSettings
from rlinf_core.specs import Kind

API = "from rlinf_core.api import ComponentSpec, EngineAdapterSpec, Readiness, hookimpl\n"
SPEC = (
    API + "@hookimpl\ndef {hook}():\n"
    "    return [ComponentSpec('zoo', 'A thing.', 'rlinf_plugin_zoo.code:Code'{more})]\n"
)
ALGORITHM = SPEC.replace("{hook}", "rlinf_algorithms")
CODE = """
class Code:
    def __init__(self, config): ...
    def advantages(self, batch, reduce): ...
    def loss(self, minibatch, evaluation, counts): ...
    def stop(self, metrics): ...
"""
CONFIG = '''
from rlinf_core.api import Config

class Inner(Config):
    """Within."""
    depth: int = 1
    {inner}

class Zoo(Config):
    """Options."""
    width: int = 1
    """How wide."""
    parts: tuple[Inner, ...] = ()
    """What it is made of."""
'''
EVERYTHING = (Stage.IMPORT, Stage.PROBE)


def check(stages: Iterable[Stage] = (), name: str = "zoo") -> Report:
    (report,) = check_plugins([name], stages, PluginSettings())
    return report


def finding(report: Report, check: str) -> Finding:
    (found,) = [f for f in report.findings if f.check == check]
    return found


def failed(report: Report) -> set[str]:
    return {f.check for f in report.findings if f.outcome is Outcome.FAILED}


@pytest.fixture
def zoo(site):
    """Return a function that installs the plugin ``rlinf-plugin-zoo``."""

    def zoo(plugin: str = "", more: str = "", code: str = CODE, **options: object) -> None:
        files = {"code.py": code, **options.pop("files", {})}  # type: ignore[dict-item]
        source = plugin or ALGORITHM.format(more=more)
        site.add("rlinf-plugin-zoo", source, files=files, **options)

    return zoo


# --- what is right --------------------------------------------------------------------------------


def test_a_plugin_that_is_well_made_passes_every_stage(zoo):
    more = (
        ", config='rlinf_plugin_zoo.config:Zoo', facts='rlinf_plugin_zoo.facts:facts', "
        "probe='rlinf_plugin_zoo.probe:probe', requires=('json',)"
    )
    files = {
        "config.py": CONFIG.format(inner='"""How deep."""'),
        "facts.py": "import numpy\ndef facts(config, upstream): ...\n",
        "probe.py": API + "def probe():\n    yield Readiness('a device', True, 'one')\n",
    }
    zoo(more=more, files=files)
    report = check(EVERYTHING)
    assert {f.outcome for f in report.findings} == {Outcome.OK}
    assert [f.check for f in report.findings if f.stage is Stage.METADATA] == [
        "installed",
        "name",
        "entry-point",
        "core-range",
        "core-version",
    ]
    assert [f.check for f in report.findings if f.stage is Stage.MANIFEST] == [
        "module",
        "components",
        "spec",
        "options",
        "facts",
        "requires",
    ]
    assert [f.check for f in report.findings if f.stage is Stage.IMPORT] == [
        "target",
        "protocol",
        "import-effects",
    ]
    assert finding(report, "probe").sentence == "a device: one"
    assert list(map(Finding.from_json, map(Finding.as_json, report.findings))) == report.findings


def test_every_plugin_of_this_environment_passes_every_stage():
    """Those of this repository, that is; case r04 is one of the checks of the import stage."""
    ours = {
        item.distribution
        for item in check_plugins([], (), PluginSettings())
        if "zoo" not in item.distribution
    }
    assert "rlinf-core" in ours
    for report in check_plugins(sorted(ours), EVERYTHING, PluginSettings()):
        assert not report.failed, report
        imported = [f.component for f in report.findings if f.check == "import-effects"]
        listed = [f.component for f in report.findings if f.check == "spec"]
        assert imported == listed


def test_contracts_are_those_that_the_protocols_state():
    assert set(CONTRACTS) == set(Kind)
    for contract in CONTRACTS.values():
        protocol = import_target(contract.protocol, "the protocol")
        text = " ".join((inspect.getmodule(protocol).__doc__ or "").split())
        assert f"``target({', '.join(contract.arguments)})``" in text, contract
        assert set(contract.optional) <= set(vars(protocol))


# --- metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requires", "wrong", "sentence"),
    [
        (["rlinf-core>=0.1"], "core-range", "there is no upper bound"),
        (["rlinf-core<0.2"], "core-range", "there is no lower bound"),
        ([], "core-range", "no version of the core in particular: there is no lower and no upper"),
        (["rlinf-core>=nonsense"], "core-range", "cannot be read"),
    ],
)
def test_a_range_of_cores_has_two_bounds(zoo, requires, wrong, sentence):
    zoo(requires=requires)
    report = check()
    assert failed(report) == {wrong}
    assert sentence in finding(report, wrong).sentence
    major, minor = rlinf_core.__version__.split(".")[:2]
    remedy = f"require rlinf-core>={major}.{minor},<{major}.{int(minor) + 1}"
    assert finding(report, wrong).remedy == remedy
    loaded = "module" in {f.check for f in report.findings}
    assert loaded is (sentence != "cannot be read"), "what can be loaded is checked all the same"


@pytest.mark.parametrize(
    ("requires", "sentence", "remedy"),
    [
        (
            "rlinf-core>=0.0.1,<0.1",
            "too old for the core",
            "pip install --upgrade rlinf-plugin-zoo",
        ),
        ("rlinf-core>=7,<8", "too new for the core", "pip install --upgrade 'rlinf-core<8,>=7'"),
    ],
)
def test_case_p04_a_plugin_for_another_core(zoo, requires, sentence, remedy):
    zoo("raise SystemError('was imported')", requires=[requires])
    report = check(EVERYTHING)
    assert failed(report) == {"core-version"}
    assert sentence in finding(report, "core-version").sentence
    assert "pip" not in finding(report, "core-version").sentence
    assert remedy in finding(report, "core-version").remedy
    skipped = [f for f in report.findings if f.stage is not Stage.METADATA]
    assert [f.sentence for f in skipped] == ["not checked: an earlier stage failed"] * 3


def test_two_entry_points_and_another_name_work_and_are_told(site):
    text = "[rlinf.plugins]\na = zoo_other.plugin\nb = zoo_other.plugin\n"
    site.add("zoo-other", ALGORITHM.format(more=""), files={"code.py": CODE}, entry_points=text)
    report = check(name="zoo-other")
    warned = {f.check for f in report.findings if f.outcome is Outcome.WARNING}
    assert warned == {"entry-point", "name"}
    assert not report.failed


def test_metadata_that_name_two_modules_are_of_no_use(site):
    site.add("rlinf-plugin-zoo", entry_points="[rlinf.plugins]\na = zoo_one\nb = zoo_two\n")
    found = finding(check(), "installed")
    assert found.outcome is Outcome.FAILED
    assert "name zoo_one, zoo_two; wanted one module" in found.sentence


def test_case_p03_what_a_build_left_behind_is_told(site):
    site.add("rlinf-plugin-zoo", ALGORITHM.format(more=""), files={"code.py": CODE})
    site.add("rlinf-plugin-zoo", built_only=True, version="0.5")
    report = check()
    assert not report.failed
    copies = finding(report, "copies")
    assert copies.outcome is Outcome.WARNING
    assert "a build left metadata there that differs" in copies.sentence
    assert "remove " in copies.remedy
    site.add("rlinf-plugin-zoo-left", built_only=True)
    left = finding(check(name="rlinf-plugin-zoo-left"), "installed")
    assert left.outcome is Outcome.FAILED
    assert "no installation of it was found" in left.sentence


# --- the manifest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugin", "sentence"),
    [
        ("import zoo_missing", "ModuleNotFoundError: No module named 'zoo_missing'"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (API + "@hookimpl\ndef rlinf_algoritms(): ...\n", "there is no such hook. Did you mean"),
        (API + "@hookimpl\ndef rlinf_models():\n    return 3\n", "returned 3, wanted a list"),
        (API + "@hookimpl\ndef rlinf_configs():\n    return ['zoo.none']\n", "wanted packages"),
        ("RLINF_PLUGIN_API = 2\n", "declares RLINF_PLUGIN_API = 2"),
    ],
)
def test_case_p01_a_module_that_cannot_be_loaded(zoo, plugin, sentence):
    zoo(plugin)
    report = check(EVERYTHING)
    assert failed(report) == {"module"}
    assert sentence in finding(report, "module").sentence
    assert finding(report, "module").remedy


@pytest.mark.parametrize(
    ("plugin", "sentence"),
    [
        ("import os; os._exit(0)", "its plugin module ended its process with exit code 0"),
        (
            "import os, signal; os.kill(os.getpid(), 9)",
            "its plugin module ended its process by SIGKILL",
        ),
        ("input('licence key: ')", "EOFError"),
    ],
)
def test_a_module_that_ends_the_process_or_asks_ends_nothing_else(zoo, plugin, sentence):
    zoo(plugin)
    report = check()
    assert failed(report) == {"module"}
    assert sentence in finding(report, "module").sentence


def test_a_module_that_hangs_is_told_with_where_it_hangs(zoo, monkeypatch):
    monkeypatch.setattr("rlinf_core.diagnosis.check.MANIFEST_SECONDS", 3.0)
    zoo("import time\ntime.sleep(60)\n")
    found = finding(check(), "module")
    assert "gave no answer within 3 s" in found.sentence
    assert "rlinf_plugin_zoo/plugin.py" in found.detail


@pytest.mark.parametrize(
    "plugin", ["import torch\n", "try:\n    import torch\nexcept Exception: 1\n"]
)
def test_a_heavy_import_is_told_with_who_imported_it(zoo, plugin):
    zoo("import rlinf_plugin_zoo.helper\n", files={"helper.py": plugin})
    found = finding(check(), "module")
    assert found.outcome is Outcome.FAILED
    assert "torch was imported by rlinf_plugin_zoo.helper, line" in found.sentence


def test_numpy_is_too_much_for_a_listing_and_not_for_facts():
    assert {"numpy", "gymnasium"} == LISTING - HEAVY


def test_asking_whether_a_heavy_module_is_there_is_allowed():
    import importlib.util

    with Refuse({"zoo_heavy", "json"}) as refuse:
        assert importlib.util.find_spec("zoo_heavy") is None
        with pytest.raises(ImportError, match=r"zoo_heavy was imported by .*test_check, line"):
            importlib.import_module("zoo_heavy.part")
        with pytest.raises(ImportError):
            import zoo_heavy  # type: ignore[import-not-found]  # noqa: F401
    assert len(refuse.seen) == 2
    assert importlib.util.find_spec("zoo_heavy") is None


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("import torch\n", "imports something heavy: torch was imported by"),
        ("import zoo_missing\n", "No module named 'zoo_missing'"),
        ("Zoo = 3\n", "is 3, wanted a subclass of api.Config"),
        ("", "there is no 'Zoo' in it"),
        (CONFIG.format(inner=""), "options without help: parts.depth"),
    ],
)
def test_options_that_are_wrong(zoo, config, sentence):
    zoo(more=", config='rlinf_plugin_zoo.config:Zoo'", files={"config.py": config})
    report = check()
    assert failed(report) == {"options"}
    found = finding(report, "options")
    assert sentence in found.sentence
    assert found.component == "algorithm zoo"
    assert found.remedy


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ("import mujoco\n", "imports something heavy: mujoco was imported by"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def facts(config): ...\n", "cannot be called with two arguments"),
        ("facts = 3\n", "cannot be called with two arguments"),
    ],
)
def test_facts_that_are_wrong(zoo, facts, sentence):
    zoo(more=", facts='rlinf_plugin_zoo.facts:facts'", files={"facts.py": facts})
    report = check()
    assert failed(report) == {"facts"}
    assert sentence in finding(report, "facts").sentence


def test_what_is_required_and_missing_is_told(zoo):
    zoo(more=", requires=('json', 'zoo_engine.core')")
    found = finding(check(), "requires")
    assert found.sentence == "not installed: zoo_engine.core"
    assert found.remedy == "pip install --upgrade rlinf-plugin-zoo"


def test_a_spec_that_is_not_well_formed(zoo):
    zoo(more=", requires='json'")
    report = check()
    assert "requires is 'json', wanted a tuple" in finding(report, "spec").sentence
    zoo(ALGORITHM.format(more="").replace("A thing.", "two\\nlines"))
    assert "wanted one line" in finding(check(), "spec").sentence
    adapter = (
        API + "@hookimpl\ndef rlinf_engine_adapters():\n    return [EngineAdapterSpec('zoo', "
        "'x', 'rlinf_plugin_zoo.code:Code', versions='6')]\n"
    )
    zoo(adapter)
    sentence = finding(check(), "spec").sentence
    assert "engine is empty" in sentence
    assert "Invalid specifier: '6'" in sentence


def test_run_files_must_compose(zoo):
    plugin = API + "@hookimpl\ndef rlinf_configs():\n    return ['rlinf_plugin_zoo.runs']\n"
    files = {
        "runs/walk.yaml": "defaults: [_self_, model: tiny]\n",
        "runs/model/tiny.yaml": "name: x\n",
    }
    zoo(plugin, files=files)
    report = check()
    assert not report.failed
    assert finding(report, "run-files").sentence == "1 run file can be composed"
    zoo(plugin, files={"runs/fall.yaml": "defaults: [model: tall]\n", "runs/bad.yaml": "a: [\n"})
    report = check()
    assert failed(report) == {"run-files"}
    sentence = finding(report, "run-files").sentence
    assert "fall.yaml" in sentence
    assert "bad.yaml" in sentence
    assert "walk.yaml" not in sentence


# --- importing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "wrong", "sentence"),
    [
        ("import zoo_missing\n", "target", "No module named 'zoo_missing'"),
        ("class Coed: ...\n", "target", "there is no 'Code' in it. Did you mean 'Coed'"),
        (
            "import os\nos._exit(4)\n",
            "target",
            "importing rlinf_plugin_zoo.code ended its process with exit code 4",
        ),
        ("Code = 3\n", "target", "is 3, wanted a class or a function of (config)"),
        (CODE.replace("self, config", "self"), "target", "cannot be called as the core calls it"),
        (
            CODE.replace("def stop", "def halt"),
            "protocol",
            "Code does not keep Algorithm: there is no stop(metrics)",
        ),
        (
            CODE.replace("self, minibatch, evaluation, counts", "self, minibatch"),
            "protocol",
            "loss cannot be called as loss(minibatch, evaluation, counts)",
        ),
    ],
)
def test_code_that_does_not_keep_its_contract(zoo, code, wrong, sentence):
    zoo(code=code)
    assert not check().failed, "nothing of it was imported yet"
    report = check([Stage.IMPORT])
    assert failed(report) == {wrong}
    assert sentence in finding(report, wrong).sentence


def test_a_function_is_judged_by_what_it_says_it_returns(zoo):
    made = CODE.replace("class Code", "class Made").replace("def stop", "def halt")
    zoo(code=made + "def Code(config) -> Made: ...\n")
    assert "Made does not keep Algorithm" in finding(check([Stage.IMPORT]), "protocol").sentence
    zoo(code=made + "def Code(config): ...\n")
    assert finding(check([Stage.IMPORT]), "protocol").outcome is Outcome.SKIPPED
    zoo(code=made + "def Code(config) -> 'Gone': ...\n")
    assert finding(check([Stage.IMPORT]), "protocol").outcome is Outcome.SKIPPED


def test_an_optional_method_is_wanted_where_its_capability_is_declared(zoo):
    methods = "".join(
        f"    def {name}(self, {arguments}): ...\n"
        for name, arguments in {
            "initial_states": "split",
            "reset": "mask, states",
            "step": "actions",
            "render": "",
            "offload": "",
            "onload": "",
            "close": "",
        }.items()
    )
    code = f"class Code:\n    def __init__(self, config, slots): ...\n{methods}"
    simulator = SPEC.replace("{hook}", "rlinf_simulators")
    zoo(simulator.format(more=""), code=code)
    assert not check([Stage.IMPORT]).failed
    zoo(simulator.format(more=", capabilities=['restore']"), code=code)
    sentence = finding(check([Stage.IMPORT]), "protocol").sentence
    assert "there is no state_dict()" in sentence
    assert "there is no load_state_dict(state)" in sentence


def test_a_reward_must_itself_be_callable(zoo):
    reward = SPEC.replace("{hook}", "rlinf_rewards").format(more="")
    zoo(reward, code="class Code:\n    def __init__(self, config): ...\n")
    assert "there is no __call__(rows)" in finding(check([Stage.IMPORT]), "protocol").sentence


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (
            "import os, torch.distributed as d\nos.environ.update(MASTER_ADDR='127.0.0.1',"
            "MASTER_PORT='0')\nd.init_process_group('gloo', store=d.HashStore(), rank=0, "
            "world_size=1)\n",
            "a process group of torch.distributed",
        ),
        ("import torch\ntorch.cuda.is_initialized = lambda: True\n", "CUDA"),
        (
            "import sys, types\nsys.modules['ray'] = types.SimpleNamespace("
            "is_initialized=lambda: True)\n",
            "Ray",
        ),
    ],
)
def test_case_r04_importing_initialises_nothing(zoo, code, what):
    zoo(code=code + CODE)
    report = check([Stage.IMPORT])
    assert failed(report) == {"import-effects"}
    assert finding(report, "import-effects").sentence == f"importing it initialised {what}"
    assert "when the component is made" in finding(report, "import-effects").remedy


# --- probing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probe", "outcome", "sentence"),
    [
        ("return [Readiness('a', True, 'one')]", Outcome.OK, "a: one"),
        (
            "return [Readiness('a', False, 'none', 'video', 'get one')]",
            Outcome.WARNING,
            "a: none; without it there is no video",
        ),
        ("return [3]", Outcome.FAILED, "returned 3, wanted rlinf_core.api.Readiness"),
        ("1 / 0", Outcome.FAILED, "ZeroDivisionError"),
        ("import os; os.abort()", Outcome.FAILED, "ended its process by SIGABRT"),
    ],
)
def test_what_a_probe_says_and_how_it_may_fail(zoo, probe, outcome, sentence):
    zoo(
        more=", probe='rlinf_plugin_zoo.probe:probe'",
        files={"probe.py": f"{API}def probe():\n    {probe}\n"},
    )
    found = finding(check([Stage.PROBE]), "probe")
    assert found.outcome is outcome
    assert sentence in found.sentence
    assert not [f for f in check().findings if f.stage is Stage.PROBE]


def test_without_a_probe_there_is_nothing_to_check(zoo):
    zoo()
    found = finding(check([Stage.PROBE]), "all")
    assert (found.outcome, found.sentence) == (
        Outcome.SKIPPED,
        "not checked: no component has a probe",
    )


# --- whom -----------------------------------------------------------------------------------------


def test_names_may_be_short_and_unknown_ones_are_refused(zoo):
    zoo()
    for name in ("zoo", "rlinf-plugin-zoo", "RLinf_Plugin.Zoo"):
        assert check(name=name).distribution == "rlinf-plugin-zoo"
    with pytest.raises(
        RequestError, match=r"no plugin named 'zo' .*Did you mean 'rlinf-plugin-zoo'"
    ):
        check(name="zo")


def test_who_is_disabled_is_checked_only_if_named(zoo):
    zoo()
    settings = PluginSettings().with_layer("my.yaml", {"disable": ["rlinf-plugin-zoo"]})
    (named,) = check_plugins(["zoo"], (), settings)
    assert finding(named, "enabled").outcome is Outcome.WARNING
    assert finding(named, "module").outcome is Outcome.OK
    (other,) = [r for r in check_plugins([], (), settings) if r.distribution == "rlinf-plugin-zoo"]
    assert finding(other, "enabled").outcome is Outcome.SKIPPED
    assert finding(other, "all").sentence == "not checked: it is disabled"
    assert not other.failed
