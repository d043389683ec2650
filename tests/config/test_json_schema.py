"""The JSON Schema for editors: it takes what a run may be made of, and marks what is misspelt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlinf_core
from rlinf_core.cli import main
from rlinf_core.config.json_schema import DIALECT, json_schema, names_in
from rlinf_core.config.schema import SECTIONS
from rlinf_core.config.validate import compose_named, load_run
from rlinf_core.errors import RequestError
from rlinf_core.plugins.manager import PluginManager

RUN = "simulator: zoo-world\nmodel: zoo-critic\nalgorithm: zoo-a2c\ntraining: zoo-sgd\n"
CONFIGS = sorted((Path(rlinf_core.__file__).parents[1] / "configs").glob("*.yaml"))


def validator(document: dict[str, Any]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["$schema"] == DIALECT
    return jsonschema.Draft202012Validator(document)


@pytest.fixture
def schema(zoo) -> jsonschema.Draft202012Validator:
    made = json_schema(PluginManager().registry)
    assert made.faults == []
    return validator(made.document)


@pytest.fixture
def rlinf(capsys, monkeypatch):
    def rlinf(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["rlinf", *arguments])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        return code, *capsys.readouterr()

    return rlinf


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_run_passes(path):
    whole = validator(json_schema(PluginManager().registry).document)
    composed, manager = compose_named(str(path))
    own = validator(json_schema(manager.registry, names_in(composed.data)).document)
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for one in (whole, own):
        assert [error.message for error in one.iter_errors(data)] == []
        for section in data:
            misspelt = {("x" + key if key == section else key): v for key, v in data.items()}
            assert not one.is_valid(misspelt), section


RIGHT = [
    "",
    "collect: {envs: 8, stages: '${collect.envs}'}",
    "steps: ???",
    "collect: ${other}",
    "model: {name: zoo-critic, hidden: [3, '${steps}']}",
    "model: {name: rlinf-plugin-zoo/zoo-critic, hidden: [3]}",
    "model: {name: '${oc.env:MODEL}', whatever: 3}",
    "model: ${oc.env:MODEL}",
    "model: {name: zoo-critic, precision: high, weights: a/b}",
    "simulator: {name: zoo-world, value: null, any: {a: [1]}, secret: 'text'}",
    "training: {name: zoo-sgd, schedule: {kind: '${kind}', iterations: '${steps}'}}",
    "training: {name: zoo-sgd, threads: auto}",
    "training: {name: zoo-sgd, threads: 3, groups: [{match: a}, '${group}']}",
    "rollout: {batch_size: 3}",
    "rollout: direct",
    "loggers: [console, {name: zoo-log, every: 3}]",
    "cluster: {devices: cpu, runtime: inline}",
    "cluster: {devices: auto, runtime: {name: inline}}",
    "plugins: {disable: ['*'], enable: [rlinf-plugin-zoo], prefer: {model/a: b}}",
    "evaluation: {envs: null}",
    "reward: null",
    "defaults: [{model: small}, _self_]\nmodel: {hidden: [1]}",
    "model: null",
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_a_file_may_hold(schema, text):
    data = {**yaml.safe_load(RUN), **(yaml.safe_load(text) or {})}
    assert [error.message for error in schema.iter_errors(data)] == []


WRONG = [
    "modle: zoo-critic",
    "collect: {evns: 8}",
    "collect: {envs: '8'}",
    "collect: {envs: true}",
    "collect: {envs: 1.5}",
    "collect: {envs: 0}",
    "collect: 3",
    "run: embdied",
    "name: a/b",
    "evaluation: {video: 1}",
    "model: zoo-crtic",
    "model: zoo-world",
    "model: {name: zoo-crtic}",
    "model: {hidden: [3]}",
    "model: {name: zoo-critic, hiden: [3]}",
    "model: {name: zoo-critic, hidden: 3}",
    "model: {name: zoo-critic, hidden: [0]}",
    "model: {name: zoo-critic, precision: hihg}",
    "model: {name: zoo-actor, hidden: [3]}",
    "algorithm: {name: zoo-a2c, clip_ratio: 1}",
    "algorithm: {name: zoo-a2c, level: tokn}",
    "training: {name: zoo-sgd, schedule: {knid: linear}}",
    "training: {name: zoo-sgd, threads: autom}",
    "training: {name: zoo-sgd, groups: [{match: a, x: 1}]}",
    "rollout: {batch_siz: 3}",
    "loggers: console",
    "loggers: [{every: 3}]",
    "loggers: [{name: zoo-log, evry: 3}]",
    "cluster: {devices: gpu}",
    "reward: zoo-world",
    "plugins: {enable: rlinf-plugin-zoo}",
    "hydra: {}",
]


@pytest.mark.parametrize("text", WRONG)
def test_case_k02_what_is_misspelt_or_of_the_wrong_type_is_marked(schema, text, write):
    data = {**yaml.safe_load(RUN), **yaml.safe_load(text)}
    assert not schema.is_valid(data)
    Path("run.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(RequestError):
        load_run("run.yaml")


KEYS = st.sampled_from(
    ["name", "seed", "steps", "model", "training", "collect", "envs", "stages", "loggers", "x"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 100)
    | st.floats()
    | st.sampled_from(["zoo-critic", "zoo-sgd", "cpu", "${seed}", "???", "console", "linear"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)
PLACES = """
seed name steps collect collect.envs evaluation.envs evaluation.video model.hidden model
model.precision simulator.any simulator.size training.schedule training.schedule.kind
training.threads loggers rollout rollout.batch_size cluster.devices
"""


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.sampled_from(PLACES.split()), value=VALUES)
def test_every_file_that_loads_passes(schema, place, value):
    data: Any = {
        **{section: {"name": name} for section, name in yaml.safe_load(RUN).items()},
        "collect": {},
        "evaluation": {},
        "rollout": {},
        "cluster": {},
    }
    data["training"]["schedule"] = {}
    *above, last = place.split(".")
    holder = data
    for part in above:
        holder = holder[part]
    holder[last] = value
    Path("run.yaml").write_text(json.dumps(data), encoding="utf-8")
    try:
        load_run("run.yaml")
    except RequestError:
        return
    assert [error.message for error in schema.iter_errors(data)] == []


def test_help_defaults_and_names_are_there(schema):
    root = schema.schema
    assert (
        root["properties"]["collect"]["description"]
        == "How much experience one iteration collects."
    )
    envs = root["$defs"]["run.CollectConfig"]["properties"]["envs"]
    assert (envs["description"], envs["default"]) == ("Number of environments.", 16)
    assert set(SECTIONS) <= {*root["properties"], "cluster.runtime"}
    assert {"zoo-critic", "zoo-actor"} <= set(root["properties"]["model"]["examples"])
    options = root["$defs"]["model.rlinf-plugin-zoo.zoo-critic"]["properties"]
    assert options["hidden"]["default"] == [8, 8]


def test_the_component_that_a_group_chose_is_known(write, rlinf):
    write(
        run="defaults: [{model: small}]\nsimulator: zoo-world\nalgorithm: zoo-a2c\n"
        "training: zoo-sgd\nmodel: {hidden: [3]}\n",
        model__small="name: zoo-critic\n",
    )
    own = validator(json.loads(rlinf("config", "schema", "run.yaml")[1]))
    whole = validator(json.loads(rlinf("config", "schema")[1]))
    data = yaml.safe_load(Path("run.yaml").read_text(encoding="utf-8"))
    assert own.is_valid(data)
    assert whole.is_valid(data)
    data["model"] = {"learning_rate": 0.1}
    assert not own.is_valid(data)
    assert not whole.is_valid(data)
    data["model"] = {}
    assert own.is_valid(data)
    write(run="defaults: [{model: small}]\nstpes: ${nothing}\nsimulator: 3\n")
    half = validator(json.loads(rlinf("config", "schema", "run.yaml")[1]))
    model, same = (one.schema["properties"]["model"] for one in (half, own))
    assert model == same, "a run that is not right yet has a schema, too"


def test_a_name_that_two_provide_must_be_qualified(site, zoo):
    site.add(
        "rlinf-plugin-zoo-b",
        "from rlinf_core.api import ComponentSpec, hookimpl\n\n@hookimpl\ndef rlinf_models():\n"
        "    return [ComponentSpec('zoo-critic', 'x', 'zoo:Other')]\n",
    )
    one = validator(json_schema(PluginManager().registry).document)
    run = yaml.safe_load(RUN)
    assert not one.is_valid(run)
    assert one.is_valid({**run, "model": "rlinf-plugin-zoo/zoo-critic"})
    assert one.is_valid({**run, "model": {"name": "rlinf-plugin-zoo-b/zoo-critic"}})
    assert not one.is_valid(
        {**run, "model": {"name": "rlinf-plugin-zoo-b/zoo-critic", "hidden": []}}
    )


def test_options_that_cannot_be_read_are_taken_unchecked_and_told(site, zoo, rlinf):
    site.add(
        "rlinf-plugin-zoo-b",
        "from rlinf_core.api import ComponentSpec, hookimpl\n\n@hookimpl\ndef rlinf_models():\n"
        "    return [ComponentSpec('zoo-lost', 'x', 'zoo:Other', config='nowhere:X')]\n",
    )
    code, out, err = rlinf("config", "schema")
    assert code == 0
    assert "warning: any option of the model 'zoo-lost' (from rlinf-plugin-zoo-b) is taken" in err
    run = {**yaml.safe_load(RUN), "model": {"name": "zoo-lost", "x": 1}}
    assert validator(json.loads(out)).is_valid(run)


def test_a_schema_is_written_over_an_older_one_and_nothing_else(zoo, rlinf, tmp_path):
    file = tmp_path / "rlinf.schema.json"
    assert rlinf("config", "schema", "--output", str(file)) == (0, "", "")
    validator(json.loads(file.read_text(encoding="utf-8")))
    assert rlinf("config", "schema", "--output", str(file))[0] == 0
    file.write_text("notes", encoding="utf-8")
    code, _, err = rlinf("config", "schema", "--output", str(file))
    assert (code, file.read_text(encoding="utf-8")) == (2, "notes")
    assert "is not overwritten" in err
    assert rlinf("config", "schema", "--output", str(tmp_path / "no" / "x.json"))[0] == 2
    assert rlinf("config", "schema", "nowhere")[0] == 2
