"""What is wrong with a run is said with place, path, what was wanted, and whose option it is."""

from __future__ import annotations

import pytest

from rlinf_core.errors import (
    CapabilityError,
    ConfigError,
    PluginError,
    RequestError,
    UnknownComponentError,
)

RUN = """\
simulator: zoo-world
model: zoo-critic
algorithm:
  name: zoo-a2c
  gamma: 0.9
training: zoo-sgd
"""

A2C = "the algorithm 'zoo-a2c' (from rlinf-plugin-zoo)"
SGD = "the training-backend 'zoo-sgd' (from rlinf-plugin-zoo)"


@pytest.fixture(autouse=True)
def _run(write):
    write(run=RUN)


def test_a_run_that_is_right(load):
    run = load()
    assert run.config.algorithm.name == "zoo-a2c"
    assert run.components["algorithm"].config.gamma == 0.9
    assert run.components["rollout"].component.spec.name == "direct"
    assert sorted(run.components) == [
        "algorithm",
        "model",
        "rollout",
        "runtime",
        "simulator",
        "training",
        "weights",
    ]
    assert [logger.component.spec.name for logger in run.loggers] == ["console", "jsonl"]
    component, config = run.components["simulator"]
    assert (component.distribution, config.horizon) == ("rlinf-plugin-zoo", 10)
    assert run.registry.component(component.kind, "zoo-world") == component


def test_case_k02_a_misspelt_option_on_the_command_line(refuse):
    assert refuse("algorithm.clip_ratoi=0.1") == [
        f"command line: algorithm.clip_ratoi: no such option of {A2C}. "
        "Did you mean 'clip_ratio'? It takes: clip_ratio, gamma, level"
    ]


def test_case_k02_a_misspelt_option_in_the_file(write, refuse):
    write(run=RUN.replace("gamma", "gama"))
    assert refuse() == [
        f"run.yaml:5: algorithm.gama: no such option of {A2C}. Did you mean 'gamma'? "
        "It takes: clip_ratio, gamma, level"
    ]


def test_case_k02_a_key_nobody_reads(write, refuse):
    write(run=RUN + "colect:\n  envs: 3\n")
    (line,) = refuse()
    assert line.startswith(
        "run.yaml:7: colect: no such option of a run (from rlinf-core). Did you mean 'collect'? "
    )


@pytest.mark.parametrize(
    ("override", "finding"),
    [
        ("collect.evns=3", "collect.evns: no such option of a run (from rlinf-core). Did you mean"),
        ("collect.envs='3'", "collect.envs: found '3', wanted a valid integer, for a run"),
        ("collect.envs=1.5", "collect.envs: found 1.5, wanted a valid integer"),
        ("collect.envs=true", "collect.envs: found True, wanted a valid integer"),
        ("collect.envs=0", "found 0, wanted a number greater than or equal to 1"),
        ("seed=-1", "found -1, wanted a number greater than or equal to 0"),
        ("evaluation.video=1", "found 1, wanted a valid boolean"),
        ("evaluation.video=yes", "found 'yes', wanted a valid boolean"),
        ("collect=3", "collect: found 3, wanted a mapping"),
        ("loggers=console", "loggers: found 'console', wanted a list"),
        (
            "run=embdied",
            "run: found 'embdied', wanted 'embodied', for a run (from rlinf-core). Did",
        ),
        ("name=a/b", "name: found 'a/b', wanted a string to match pattern"),
        (
            "algorithm.gamma=high",
            f"algorithm.gamma: found 'high', wanted a valid number, for {A2C}",
        ),
        ("algorithm.clip_ratio=1", f"found 1, wanted a number less than 1, for {A2C}"),
        (
            "algorithm.level=tokn",
            "wanted 'token' or 'chunk', for " + A2C + ". Did you mean 'token'?",
        ),
        ("algorithm.gamma=0.5", f"algorithm.gamma: for {A2C}: gamma 0.5 is of no use; try 0.9"),
        ("model.hidden=8", "model.hidden: found 8, wanted a list"),
        ("model.hidden=[8,'x']", "model.hidden.1: found 'x', wanted a valid integer"),
        ("model.precision=hihg", "found 'hihg', wanted 'low' or 'high'"),
        (
            "training.schedule.kind=3",
            "training.schedule.kind: found 3, wanted 'constant' or 'linear'",
        ),
        (
            "training.schedule.iteratons=3",
            f"no such option of {SGD}. Did you mean 'iterations'? It",
        ),
        (
            "training.threads=1.5",
            "found 1.5, wanted a valid integer or 'auto' or 'all', for " + SGD,
        ),
        ("training.threads=autom", "training.threads: found 'autom', wanted a valid integer or"),
        ("training.threads=autom", ". Did you mean 'auto'?"),
        ("training.groups=[{}]", f"training.groups.0.match: is missing; {SGD} needs it"),
        ("training.groups=[{match: a, x: 1}]", "training.groups.0.x: no such option of " + SGD),
        (
            "loggers=[{name: zoo-log, evry: 3}]",
            "loggers.0.evry: no such option of the logger 'zoo-",
        ),
        ("loggers=[3]", "loggers.0: found 3, wanted the name of a logger, or a mapping"),
        ("loggers=[{every: 3}]", "loggers.0.name: found None, wanted the name of a logger"),
        (
            "weights.x=1",
            "weights.x: no such option of the weight-transport 'full' (from rlinf-core)",
        ),
        ("cluster.runtime.x=1", "no such option of the runtime 'inline' (from rlinf-core). It"),
        ("algorithm=[a]", "algorithm: found ['a'], wanted the name of an algorithm, or a mapping"),
        ("algorithm.name=3", "algorithm.name: found 3, wanted the name of an algorithm"),
        ("model=null", "model: is missing; wanted the name of a model"),
        ("plugins.enable=[rlinf-plugin-gone]", "rlinf-plugin-gone is not installed: pip install"),
    ],
)
def test_case_k02_findings_of_every_type(refuse, override, finding):
    line, *_ = refuse(override)
    assert line.startswith("command line: ") or override == "model=null"
    assert finding in line


def test_all_findings_come_at_once_in_the_order_of_the_file(write, refuse):
    write(
        run="""\
        seed: -1
        model: {name: zoo-critic, hiden: [3]}
        algorithm: zoo-a3c
        training: {name: zoo-sgd, learning_rate: fast}
        collect: {envs: 0, chunk: x}
        checkpoint: {best: 3, kepe: 1}
        """
    )
    lines = refuse("loggers=[zoo-lgo]")
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines] == [
        "simulator",
        "seed",
        "model.hiden",
        "algorithm.name",
        "training.learning_rate",
        "collect.envs",
        "collect.chunk",
        "checkpoint.best",
        "checkpoint.kepe",
        "loggers.0.name",
    ]
    assert lines[0].startswith("run.yaml: simulator: is missing; wanted the name of a simulator")
    assert "zoo-world" in lines[0], "what there is to choose from"
    assert lines[1].startswith("run.yaml:1: ")
    assert lines[-1].startswith("command line: ")


def test_a_component_nobody_provides(load, refuse):
    (line,) = refuse("algorithm.name=zoo-a3c", "~algorithm.gamma")
    assert line.startswith(
        "command line: algorithm.name: no plugin provides an algorithm named 'zoo-a3c'. "
        "Did you mean 'zoo-a2c'"
    )
    with pytest.raises(UnknownComponentError):
        load("algorithm=zoo-a3c")


def test_several_wrong_things_are_one_error_of_configuration(load):
    with pytest.raises(ConfigError) as caught:
        load("algorithm=zoo-a3c", "seed=x")
    assert len(caught.value.findings) == 2


def test_a_kind_of_device_that_nobody_provides(load, refuse):
    (line,) = refuse("cluster.devices=cudd")
    assert line.startswith("command line: cluster.devices: no plugin provides an accelerator named")
    assert "Did you mean 'cuda'" in line
    assert load("cluster.devices=cpu").components["devices"].component.spec.name == "cpu"


def test_case_p01_a_broken_plugin_that_is_chosen(site, load):
    site.add("rlinf-plugin-zoo-bad", "import zoo_missing")
    with pytest.raises(PluginError) as caught:
        load("algorithm=zoo-bad")
    text = str(caught.value)
    assert text.startswith("command line: algorithm.name: the algorithm 'zoo-bad' cannot be used")
    assert "No module named 'zoo_missing'" in text
    assert str(site.folder / "rlinf_plugin_zoo_bad" / "plugin.py") in text
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert load().config.seed == 0, "beside a plugin that is chosen, a broken one does no harm"


ODD = """
from rlinf_core.api import ComponentSpec, hookimpl

@hookimpl
def rlinf_algorithms():
    return [ComponentSpec("zoo-odd", "x", "a:B", {arguments})]
"""


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("config='rlinf_plugin_zoo_odd.config:C'", "1 / 0", "ZeroDivisionError: division by zero"),
        ("config='rlinf_plugin_zoo_odd.config:C'", "class C: pass", "wanted a subclass of"),
        ("config='rlinf_plugin_zoo_odd.config:C'", "class D: pass", "there is no 'C' in it"),
        ("facts='rlinf_plugin_zoo_odd.config:f'", "def f(c, u): return 3", "returned 3, wanted"),
        (
            "facts='rlinf_plugin_zoo_odd.config:f'",
            "def f(c, u): return u[0]",
            "failed: KeyError: 0",
        ),
    ],
)
def test_a_plugin_whose_options_or_facts_are_broken(site, load, arguments, code, text):
    source = ODD.format(arguments=arguments)
    site.add("rlinf-plugin-zoo-odd", source, files={"config.py": code})
    with pytest.raises(PluginError) as caught:
        load("algorithm=zoo-odd")
    assert text in str(caught.value)
    assert "the algorithm 'zoo-odd' (from rlinf-plugin-zoo-odd)" in str(caught.value)
    assert str(caught.value).startswith("command line: algorithm: ")


def test_facts_that_fail_show_the_plugins_own_traceback(load):
    with pytest.raises(PluginError) as caught:
        load("simulator.crash=true")
    assert "ZeroDivisionError: no such size" in str(caught.value)
    assert "facts.py" in str(caught.value)
    assert "model" not in str(caught.value), "facts that lack those before them are not asked for"


def test_what_facts_refuse_is_told_without_a_traceback(site, load):
    code = (
        "from rlinf_core.api import RequestError\n"
        "def f(c, u): raise RequestError('the file is of another robot')"
    )
    source = ODD.format(arguments="facts='rlinf_plugin_zoo_odd.config:f'")
    site.add("rlinf-plugin-zoo-odd", source, files={"config.py": code})
    with pytest.raises(RequestError) as caught:
        load("algorithm=zoo-odd")
    assert str(caught.value) == "command line: algorithm: the file is of another robot"


def test_capabilities_that_are_needed_and_not_declared(load, refuse):
    (line,) = refuse("model=zoo-actor")
    assert line.startswith(
        f"run.yaml:3: algorithm: {A2C} needs 'value' of the model, and the model 'zoo-actor' (from "
        "rlinf-plugin-zoo) does not declare it. Installed with it: "
    )
    assert "zoo-critic" in line.rpartition(":")[2]
    (line,) = refuse("model=zoo-soon")
    assert "declares it as planned, which is not yet" in line
    with pytest.raises(CapabilityError):
        load("model=zoo-actor")
    assert load("model=zoo-actor", "algorithm=zoo-plain").components["model"].config is None


def test_facts_override_the_capabilities_of_a_spec(load, refuse):
    (line,) = refuse("model.critic=false")
    assert "the model 'zoo-critic' (from rlinf-plugin-zoo) declares that it will not work" in line
    assert load("model.critic=true").facts["model"].parameters == 10
    assert load("model=zoo-claims").components["model"].component.spec.capabilities == {}


def test_what_facts_would_say_is_not_held_against_a_model(refuse):
    """Facts are not asked for where those before them are missing."""
    (line,) = refuse("model=zoo-claims", "simulator=gone")
    assert "simulator.name: no plugin provides a simulator named 'gone'" in line


def test_facts_see_those_of_the_sections_before(load):
    run = load("simulator.horizon=7")
    assert run.facts["model"].parameters == 7
    assert load("simulator=zoo-chunky", "model=zoo-soon", "algorithm=zoo-plain").facts


def test_chunks_need_components_that_take_them(refuse):
    (line,) = refuse("collect.chunk=2")
    assert line.startswith("command line: collect.chunk: collect.chunk=2 needs 'action-chunk' of ")
    assert "the simulator 'zoo-world'" in line


def test_case_k03_evaluation_needs_no_training_section(write, load, refuse):
    write(run="simulator: zoo-world\nmodel: zoo-critic\n")
    needed = {"simulator", "model", "rollout", "weights"}
    run = load(sections=needed)
    assert sorted(run.components) == ["model", "rollout", "runtime", "simulator", "weights"]
    assert run.loggers == ()
    assert [line.split(": ")[1] for line in refuse()] == ["algorithm", "training"]


def test_case_k03_sections_that_are_not_needed_may_be_of_plugins_that_are_not_there(write, load):
    write(run=RUN.replace("zoo-a2c", "gone").replace("zoo-sgd", "gone") + "loggers: [gone]\n")
    run = load(sections={"simulator", "model"})
    assert sorted(run.components) == ["model", "runtime", "simulator"]
    assert run.config.training.name == "gone"


@pytest.mark.parametrize("section", ["reward", "data"])
def test_case_k02_a_section_that_nobody_reads_is_refused(load, refuse, section):
    assert section not in load().components
    (line,) = refuse(f"{section}=zoo-scores")
    assert line.startswith(f"command line: {section}: an embodied run reads no section")


def test_plugins_of_one_run(site, write, load, refuse, tmp_path):
    marker = tmp_path / "imported"
    site.add("rlinf-plugin-zoo-side", f"open({str(marker)!r}, 'w').close()")
    write(run=RUN + "plugins: {disable: [rlinf-plugin-zoo-side]}\n")
    load()
    assert not marker.exists()
    load("plugins.disable=[]")
    assert marker.exists()
    text = "\n".join(refuse("plugins.disable=[rlinf-plugin-zoo]"))
    assert "rlinf-plugin-zoo 1.0 is disabled: plugins.disable of run.yaml and the command" in text


def test_a_run_wins_over_the_users_file(write, load, refuse, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("plugins: {disable: [rlinf-plugin-zoo]}\n")
    monkeypatch.setenv("RLINF_CONFIG", str(tmp_path / "mine.yaml"))
    assert "is disabled" in "\n".join(refuse())
    assert load("plugins.enable=[rlinf-plugin-zoo]").config.plugins.enable == ("rlinf-plugin-zoo",)


def test_plugins_may_only_be_chosen_where_that_is_known_in_time(write, refuse):
    write(run="defaults: [{training: quiet}]\n" + RUN.replace("training: zoo-sgd\n", ""))
    write(training__quiet="# @package _global_\ntraining: zoo-sgd\nplugins: {disable: [x]}\n")
    (line,) = refuse()
    assert line.startswith("training/quiet.yaml:3: plugins: stands in training/quiet.yaml:3; only")


def test_two_plugins_with_one_name_and_a_preference(site, load, refuse):
    site.add("rlinf-plugin-zoo-twin", provides="zoo-plain")
    line = "\n".join(refuse("algorithm=zoo-plain"))
    assert "2 plugins provide an algorithm named 'zoo-plain'" in line
    run = load("algorithm=rlinf-plugin-zoo-twin/zoo-plain")
    assert run.components["algorithm"].component.distribution == "rlinf-plugin-zoo-twin"
    run = load("algorithm=zoo-plain", "plugins.prefer={algorithm/zoo-plain: rlinf-plugin-zoo}")
    assert run.components["algorithm"].component.distribution == "rlinf-plugin-zoo"
    (line,) = refuse("plugins.prefer={algorithm/zoo-a2c: rlinf-plugin-zoo-twin}", "seed=1")[:1]
    assert "rlinf-plugin-zoo-twin (plugins.prefer of run.yaml and the command line)" in line


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_numbers_are_finite_unless_an_option_says_otherwise(load, refuse, value):
    (line,) = refuse(f"training.learning_rate={value}")
    assert line == (
        f"command line: training.learning_rate: found {value}, wanted a finite number, for {SGD}"
    )
    assert load(f"simulator.any={value}", f"simulator.size={value}")


@pytest.mark.parametrize(
    "option",
    [
        "steps",
        "seed",
        "collect.envs",
        "collect.steps",
        "collect.stages",
        "collect.chunk",
        "update.epochs",
        "update.minibatch_size",
        "update.microbatch_size",
        "evaluation.every",
        "evaluation.episodes",
        "evaluation.envs",
        "checkpoint.every",
        "checkpoint.keep",
    ],
)
def test_integers_have_an_upper_bound(refuse, option):
    (line,) = refuse(f"{option}={10**23}")
    assert f"{option}: found {10**23}, wanted a number less than" in line


def test_names_have_a_length(load, refuse, write):
    assert "wanted a string to have at most 100" in refuse(f"name={'x' * 101}")[0]
    write(**{"x" * 150: RUN})
    assert load(run=f"{'x' * 150}.yaml").config.name == "x" * 100


HEX = "0x" + "f" * 9000


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("seed: " + "9" * 5000, "run.yaml:7: seed: found a number of more digits than can be read"),
        ("collect: {envs: 0x_}", "run.yaml:7: collect.envs: found '0x_', which looks like a num"),
        (f"seed: {HEX}", "run.yaml:7: seed: found an integer of about 10800 digits, wanted fewer"),
        (f"loggers: [{HEX}]", "run.yaml:7: loggers.0: found an integer of about 10800 digits"),
        (f"collect: {{chunk: {HEX}}}", "run.yaml:7: collect.chunk: found an integer of about"),
    ],
)
def test_numbers_in_a_file_that_are_too_long(write, refuse, text, finding):
    write(run=RUN + text + "\n")
    line, *_ = refuse()
    assert line.startswith(finding)
    assert len(line) < 400


def test_numbers_in_a_group_that_are_too_long(write, refuse):
    write(run="defaults: [{model: large}]\n" + RUN.replace("model: zoo-critic\n", ""))
    write(model__large=f"name: zoo-critic\nhidden: [{'9' * 5000}]\n")
    assert refuse() == ["run.yaml: one of its groups holds a number that cannot be read"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('simulator: {name: zoo-world, secret: "a\\ud800"}', "simulator.secret"),
        ('simulator: {name: zoo-world, any: {x: ["a\\ud800"]}}', "simulator.any.x.0"),
        ('simulator: zoo-world\ncheckpoint: {best: "a\\ud800"}', "checkpoint.best"),
        ('simulator: zoo-world\nloggers: ["a\\ud800"]', "loggers.0"),
    ],
)
def test_half_a_character_is_named_by_its_path(write, refuse, text, path):
    write(run=RUN.replace("simulator: zoo-world", text))
    line, *_ = refuse()
    assert f": {path}: found 'a\\ud800', wanted text of whole characters" in line
    assert "zoo-critic" not in line


def test_half_a_character_in_a_key_is_named_by_its_path(write, refuse):
    write(run=RUN.replace("zoo-world", '{name: zoo-world, any: {"a\\ud800": 3}}'))
    (line,) = refuse()
    assert "found 'any.a\\ud800', wanted text of whole characters" in line


def test_a_check_of_options_that_fails_shows_the_plugins_own_traceback(load):
    with pytest.raises(PluginError, match="Stop: zoo") as caught:
        load("simulator.breaks=1")
    assert "checking the options of the simulator 'zoo-world'" in str(caught.value)


@pytest.mark.parametrize("run", ["~nosuchuser", "~nosuchuser/x.yaml", "~seed=1"])
def test_a_run_in_a_home_that_nobody_has(refuse, run):
    assert refuse(run=run)[0].startswith(f"there is no run {run!r}: no such file")


def test_what_is_no_name_is_nothing_to_install(refuse):
    (line,) = refuse("plugins.enable=['/etc']")
    assert line.endswith("plugins.enable.0: /etc is not installed")
    for name in ("/etc/passwd", "../x"):
        (line,) = refuse(f"model={name}")
        assert f"no plugin provides a model named {name!r}" in line
        assert "pip install" not in line


# --- placement ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "finding"),
    [
        (
            "placement.rollout=3-1",
            "placement.rollout: the range 3-1 is reversed and holds no device, wanted 1-3",
        ),
        ("placement.simulator=0", "there is no component 'simulator' to place. Did you mean"),
        ("placement.rollout=true", "rollout is True; wanted devices, such as rollout: 0-3"),
        ("placement.rollout=-1", "placement.rollout: found '-1', wanted devices such as '0'"),
        ("placement=atuo", "placement: found 'atuo', wanted 'auto' or a mapping"),
        ("placement=auto", "a scheduler would work out, and none is installed; leave placement"),
        ("cluster.devices='4 cpu'", "cluster.devices: found '4 cpu', wanted 'auto', the name of"),
        ("cluster.devices='4 x cpv'", "no plugin provides an accelerator named 'cpv'. Did you"),
        (
            "cluster.node_groups={a: {devices: 2 x cpv}}",
            "cluster.node_groups.a.devices: no plugin provides an accelerator named 'cpv'",
        ),
        ("cluster.node_groups={a/b: {}}", "cluster.node_groups.a/b"),
        ("cluster.sharing=turn", "found 'turn', wanted 'auto', 'resident' or 'turns'"),
    ],
)
def test_a_placement_that_is_wrong_whatever_the_machine_has(refuse, override, finding):
    (line,) = refuse(override)
    assert finding in line


def test_a_placement_that_is_right(write, load):
    write(run=RUN + "placement: {simulation: 0, rollout: 0-1, training: 'all:1'}\n")
    run = load("cluster.devices='4 x cpu'")
    assert run.config.placement == {"simulation": "0", "rollout": "0-1", "training": "all:1"}
    assert run.components["devices"].component.spec.name == "cpu"
    assert run.origins["placement.rollout"] == "run.yaml:7"


def test_devices_in_two_places(refuse):
    (line,) = refuse("cluster.devices=cpu", "cluster.node_groups={left: {devices: cpu}}")
    assert "found 'cpu' and node groups, wanted the devices in one place" in line


def test_a_line_that_yaml_takes_for_a_number_of_base_sixty(write, refuse):
    write(run=RUN + "placement:\n  simulation: 0-1\n  rollout: 2:2\n")
    assert refuse() == [
        "run.yaml:9: placement.rollout: found 2:2, which YAML reads as 122; put quotes around it: "
        '"2:2"'
    ]
