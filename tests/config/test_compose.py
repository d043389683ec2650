"""From files, groups and overrides to one plain run, with the place of every value."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rlinf_core
from rlinf_core.config import search
from rlinf_core.config.compose import compose_run
from rlinf_core.config.overrides import parse
from rlinf_core.config.validate import load_plain, to_plain
from rlinf_core.errors import RequestError

RUN = "simulator: zoo-world\nmodel: zoo-critic\nalgorithm: zoo-a2c\ntraining: zoo-sgd\n"


@pytest.fixture(autouse=True)
def _run(write):
    write(run=RUN)


def test_a_run_is_named_by_path_or_by_name(load, monkeypatch, tmp_path):
    assert load(run="run.yaml").path == Path("run.yaml").absolute()
    assert load(run=str(Path("run.yaml").absolute())).config.name == "run"
    shipped = load(run="zoo_run")
    assert shipped.config.name == "zoo_run"
    assert shipped.path.parts[-3:] == ("rlinf_plugin_zoo", "configs", "zoo_run.yaml")
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy("run.yaml", folder / "mine.yaml")
    monkeypatch.setattr("rlinf_core.config.validate.core_folders", lambda: [folder])
    assert load(run="mine").path == folder / "mine.yaml"
    assert load(run="mine.yaml").path == folder / "mine.yaml"


def test_the_cores_own_folders(monkeypatch, tmp_path):
    package = tmp_path / "rlinf_core"
    for folder in (tmp_path / "configs", package / "configs"):
        assert folder not in search.core_folders()
        folder.mkdir(parents=True)
        monkeypatch.setattr(rlinf_core, "__file__", str(package / "__init__.py"))
        assert folder in search.core_folders()


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ("zoo_rnu", "there is no run 'zoo_rnu': no such file, and no such name in "),
        ("zoo_rnu", "Did you mean 'zoo_run'? Available runs: "),
        ("nowhere/zoo_rnu.yaml", "Did you mean 'zoo_run'"),
        ("x" * 300, "there is no run 'xxx"),
        ("a\0b", "there is no run"),
        (".", "'.' is a folder; wanted a run file, such as run.yaml"),
        ("", "'' is a folder"),
        ("run.yml", "run.yml: a run file's name ends with .yaml"),
    ],
)
def test_a_run_that_is_not_there(refuse, run, text):
    Path("run.yml").write_text(RUN)
    assert text in refuse(run=run)[0]


BAD = {
    "empty": (b"", "bad.yaml: is empty"),
    "only a comment": (b"# nothing\n", "bad.yaml: is empty"),
    "a list": (b"- a\n", "bad.yaml:1: found a list, wanted a mapping of sections"),
    "a value": (b"\n\nhello\n", "bad.yaml:3: found a single value, wanted a mapping"),
    "binary": (b"\x89PNG\r\n\x1a\n\xff\xfe", "bad.yaml: is no text file in UTF-8; wanted YAML"),
    "controls": (b"a: \x00\n", "bad.yaml: is no YAML: special characters are not allowed"),
    "syntax": (b"seed: 1\nmodel: {name: [}\n", "bad.yaml:2: is no YAML: expected the node content"),
    "a tab": (b"model:\n\tname: x\n", "bad.yaml:2: is no YAML: found character '\\t'"),
    "a key twice": (
        b"seed: 1\nsteps: 2\nseed: 3\n",
        "bad.yaml:3: seed: is given again, after line 1",
    ),
    "deep twice": (b"model: {a: 1, a: 2}\n", "bad.yaml:1: model.a: is given again"),
    "two documents": (b"seed: 1\n---\nseed: 2\n", "bad.yaml:2: is no YAML: but found another doc"),
    "a tag": (
        b"seed: !!python/name:os.system x\n",
        "bad.yaml:1: is no YAML: could not determine a",
    ),
    "a loop": (b"seed: &a [*a]\n", "bad.yaml: nests too deeply, or holds itself"),
    "depth": (b"seed: " + b"[" * 5000, "bad.yaml: is nested too deeply"),
    "bytes": (b"seed: !!binary aGk=\n", "bad.yaml:1: seed: found b'hi', wanted text, a number"),
    "a null key": (b"null: 1\n", "bad.yaml: Incompatible key type"),
    "an odd key": (b"? [a, b]\n: 1\n", "bad.yaml:1: is no YAML: found unhashable key"),
    "hydra": (b"hydra: {searchpath: [x]}\n", "bad.yaml:1: hydra: a run has no settings of hydra's"),
    "half open": (b'seed: "${steps"\n', "bad.yaml: seed: "),
    "no defaults": (b"defaults: 3\n", "bad.yaml: defaults: Invalid defaults list"),
    "odd defaults": (b"defaults: [3]\n", "bad.yaml: defaults: Unsupported type in defaults : int"),
    "odder": (b"defaults: [{true: a}]\n", "; wanted a list of groups, such as [{model: mlp}]"),
    "no group": (b"defaults: [{modle: x}]\n", "no file modle/x.yaml. Did you mean 'model'?"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_cannot_be_read(refuse, case):
    content, text = BAD[case]
    Path("bad.yaml").write_bytes(content)
    found = "\n".join(refuse(run="bad.yaml"))
    assert text in found
    assert "Traceback" not in found


def test_a_file_that_must_not_be_read(refuse, monkeypatch):
    def denied(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", denied)
    assert refuse() == ["run.yaml: cannot be read: Permission denied"]


@pytest.mark.parametrize("case", ["a list", "binary", "syntax", "a key twice", "empty"])
def test_groups_that_cannot_be_read(write, refuse, case):
    content, _ = BAD[case]
    write(run="defaults: [{model: bad}]\n")
    Path("model").mkdir()
    Path("model/bad.yaml").write_bytes(content)
    (line,) = refuse()
    assert "bad.yaml" in line or case == "binary"
    assert line.startswith(("model/bad.yaml", "run.yaml"))


@pytest.fixture
def groups(write):
    write(
        run="defaults:\n  - model: small\n  - training: quick\nsimulator: zoo-world\n"
        "algorithm: zoo-a2c\ntraining:\n  learning_rate: 0.5\n",
        model__small="name: zoo-critic\nhidden: [1]\n",
        model__large="name: zoo-critic\nhidden: [9, 9]\n",
        training__quick="name: zoo-sgd\nlearning_rate: 0.3\nschedule: {kind: linear}\n",
        simulator__long="name: zoo-world\nhorizon: 99\n",
    )


def test_groups_are_merged_and_the_runs_own_values_win(groups, load):
    run = load()
    assert run.components["model"].config.hidden == (1,)
    assert run.components["training"].config.learning_rate == 0.5
    assert run.components["training"].config.schedule.kind == "linear"


def test_a_group_is_chosen_on_the_command_line(groups, load):
    assert load("model=large").components["model"].config.hidden == (9, 9)
    assert load("model=small", "model=large").components["model"].config.hidden == (9, 9)
    assert load("model=large", "model.hidden=[2]").components["model"].config.hidden == (2,)
    assert load("simulator=long").components["simulator"].config.horizon == 99
    assert load("+simulator=long").components["simulator"].config.horizon == 99


def test_a_name_that_is_no_file_of_the_group_is_a_component(groups, load, refuse):
    run = load("model=zoo-actor", "algorithm=zoo-plain")
    assert run.components["model"].component.spec.name == "zoo-actor"
    assert run.components["model"].config is None
    assert "no plugin provides a model named 'lrage'" in refuse("model=lrage")[0]


def test_a_group_that_does_not_exist_can_be_put_right_on_the_command_line(
    groups, write, load, refuse
):
    write(run=Path("run.yaml").read_text().replace("small", "smal"))
    assert refuse() == [
        "run.yaml: defaults: there is no file model/smal.yaml. Did you mean 'small'? "
        "The group 'model' has: large, small"
    ]
    assert load("model=large").components["model"].config.hidden == (9, 9)


def test_a_choice_is_taken_back(groups, refuse):
    assert refuse("~model")[0].startswith("run.yaml: model: is missing")


def test_groups_of_plugins_and_paths_with_odd_names(zoo, write, load, tmp_path, monkeypatch):
    folder = tmp_path / "it's, a=folder [1]"
    folder.mkdir()
    monkeypatch.chdir(folder)
    group = zoo.folder / "rlinf_plugin_zoo" / "configs" / "model" / "shipped.yaml"
    group.parent.mkdir()
    group.write_text("name: zoo-critic\nhidden: [7]\n")
    write(run="defaults: [{model: shipped}]\n" + RUN.replace("model: zoo-critic\n", ""))
    run = load()
    assert run.components["model"].config.hidden == (7,)
    assert run.origins["model.hidden.0"].endswith("configs/model/shipped.yaml:2")


def test_hydras_own_state_is_left_as_it_was(groups, load):
    from hydra.core.global_hydra import GlobalHydra

    assert not GlobalHydra.instance().is_initialized()
    load()
    assert not GlobalHydra.instance().is_initialized()


def test_composing_warns_of_nothing(groups, load, recwarn):
    load("model=large")
    assert list(recwarn) == []


def test_interpolations(load, monkeypatch, refuse):
    monkeypatch.setenv("ZOO_SECRET", "s3")
    run = load("simulator.secret=${oc.env:ZOO_SECRET}", "training.schedule.iterations=${steps}")
    assert run.components["simulator"].config.secret == "s3"
    assert run.components["training"].config.schedule.iterations == 100, "steps is a default"
    assert load("simulator.secret=${name}").components["simulator"].config.secret == "run"
    assert load("update.minibatch_size=5", "update.epochs=${.minibatch_size}").config.update.epochs
    monkeypatch.delenv("ZOO_SECRET")
    lines = refuse("simulator.secret=${oc.env:ZOO_SECRET}", "seed=${nothing}", "steps=${steps}")
    assert lines[0] == (
        "command line: simulator.secret: found '${oc.env:ZOO_SECRET}': "
        "Environment variable 'ZOO_SECRET' not found"
    )
    assert lines[1].endswith("found '${nothing}': Interpolation key 'nothing' not found")
    assert len(lines) == 3


def test_values_that_must_be_given(write, refuse):
    write(run=RUN + "seed: ???\n")
    assert refuse()[0] == "run.yaml:5: seed: must be given, such as seed=VALUE"


def test_interpolated_sections(write, load):
    write(run=RUN + "collect: {envs: 8, steps: 50}\nevaluation: {envs: '${collect.envs}'}\n")
    assert load().config.evaluation.envs == 8
    write(run=RUN.replace("zoo-sgd", "{name: zoo-sgd, learning_rate: 0.25}") + "reward: null\n")
    assert load().components["training"].config.learning_rate == 0.25


def test_where_every_value_came_from(groups, load):
    origins = load("seed=3", "collect.envs=4", "collect.steps=100", "loggers.0=zoo-log").origins
    assert origins["seed"] == "command line"
    assert origins["collect.envs"] == "command line"
    assert origins["collect.stages"] == "default"
    assert origins["model.name"] == "model/small.yaml:1"
    assert origins["model.hidden.0"] == "model/small.yaml:2"
    assert origins["model.critic"] == "default"
    assert origins["training.learning_rate"] == "run.yaml:7"
    assert origins["training.schedule.kind"] == "training/quick.yaml:3"
    assert origins["training.schedule.iterations"] == "default"
    assert origins["simulator.name"] == "run.yaml:4"
    assert origins["simulator.horizon"] == "default"
    assert origins["rollout.name"] == "default"
    assert origins["loggers.0.name"] == "command line"
    assert origins["loggers.0.every"] == "default"


def test_every_value_has_its_place(groups, load):
    run = load()
    from rlinf_core.config.origins import leaves

    assert set(run.origins) == {path for path, _ in leaves(to_plain(run))}


COLLECT = {"envs": 16, "steps": 100, "stages": None, "chunk": 1, "max_staleness": 0}


def test_plain_data_holds_every_default_and_can_be_loaded_again(load, refuse):
    overrides = ["loggers=[{name: zoo-log, every: 3}]", "model.precision=high", "model.weights=a/b"]
    run = load(
        *overrides, "training.groups=[{match: x}]", "cluster.devices=cpu", "simulator.size=3"
    )
    plain = json.loads(json.dumps(to_plain(run)))
    assert plain["simulator"] == {
        "name": "zoo-world",
        "horizon": 10,
        "size": 3.0,
        "secret": "",
        "crash": False,
        "value": None,
        "any": None,
        "breaks": 0,
    }
    assert plain["model"]["precision"] == "high"
    assert plain["loggers"] == [{"name": "zoo-log", "every": 3}]
    assert plain["collect"] == COLLECT
    again = load_plain(plain)
    assert again.config == load_plain(to_plain(again)).config
    assert again.components == run.components
    assert again.loggers == run.loggers
    assert to_plain(again) == plain
    assert again.path is None
    assert again.origins["collect.envs"] == "stored run"
    plain["algorithm"]["gama"] = 1
    with pytest.raises(RequestError, match=r"stored run: algorithm\.gama: no such option of"):
        load_plain(plain)
    del plain["algorithm"]
    assert load_plain(plain, sections={"simulator", "model"}).config.algorithm is None


def test_infinite_numbers_survive_plain_data(load):
    run = load("simulator.size=inf")
    assert run.components["simulator"].config.size == float("inf")
    again = load_plain(json.loads(json.dumps(to_plain(run))))
    assert again.components["simulator"].config.size == float("inf")


def test_composing_needs_no_plugin(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("a: {b: 1}\nc: ${a.b}\n")
    composed = compose_run(file, [], parse(["a.d=2", "~a.b", "e=[1,2]"]))
    assert composed.data == {"a": {"d": 2}, "c": "${a.b}", "e": [1, 2], "name": "r"}
    assert [path for path, _ in composed.findings] == ["c"]
