"""Every value of a run with where it came from, as data and as a run file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlinf_core
from rlinf_core.cli import main
from rlinf_core.config.explain import Source, explain, yaml_lines
from rlinf_core.config.origins import leaves
from rlinf_core.config.validate import load_plain, load_run, to_plain

CORE = f"rlinf-core {rlinf_core.__version__}"
ZOO = "rlinf-plugin-zoo 1.0"


@pytest.fixture(autouse=True)
def _run(write):
    write(
        run="""\
        defaults: [{model: small}]
        simulator: zoo-world
        algorithm: {name: zoo-a2c, gamma: 0.9}
        training:
          name: zoo-sgd
          schedule: {iterations: "${steps}"}
        rollout: {batch_size: 4}
        evaluation: "${oc.create:{episodes: 7}}"
        """,
        model__small="name: zoo-critic\nhidden:\n  - 1\n  - 2\n",
    )


@pytest.fixture
def rlinf(capsys, monkeypatch):
    """Return a function that types a command: exit code, standard output, standard error."""

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


def test_case_k04_every_value_has_its_origin(load):
    run = load("seed=3", "algorithm.clip_ratio=0.1", "loggers.0.every=2")
    values = explain(run).values
    assert set(values) == {path for path, _ in leaves(to_plain(run))}
    assert {path: value.value for path, value in values.items()} == dict(leaves(to_plain(run)))
    origins = {path: value.origin for path, value in values.items()}
    assert origins["name"] == "name of the file"
    assert origins["seed"] == "command line"
    assert origins["steps"] == f"default of {CORE}"
    assert origins["simulator.name"] == "run.yaml:2"
    assert origins["simulator.horizon"] == f"default of {ZOO}"
    assert origins["model.name"] == "model/small.yaml:1"
    assert origins["model.hidden.1"] == "model/small.yaml:4"
    assert origins["algorithm.gamma"] == "run.yaml:3"
    assert origins["algorithm.clip_ratio"] == "command line"
    assert origins["training.schedule.iterations"] == "run.yaml:6, from ${steps}"
    assert origins["training.schedule.kind"] == f"default of {ZOO}"
    assert origins["rollout.name"] == f"default of {CORE}", "the file gives an option, not the name"
    assert origins["rollout.batch_size"] == "run.yaml:7"
    assert origins["evaluation.episodes"] == "run.yaml:8, from ${oc.create:{episodes: 7}}"
    assert origins["evaluation.split"] == f"default of {CORE}"
    assert origins["loggers.0.every"] == "command line"
    assert origins["loggers.0.name"] == f"default of {CORE}"
    assert values["seed"].source is Source.COMMAND_LINE
    small = values["model.hidden.0"]
    assert (small.source, small.file, small.line) == (Source.GROUP_FILE, "model/small.yaml", 3)
    assert values["simulator.name"].source is Source.RUN_FILE
    assert (values["simulator.name"].owner, values["simulator.size"].owner) == (CORE, ZOO)


def test_a_stored_run_says_so(load):
    again = load_plain(to_plain(load()))
    found = explain(again)
    assert {value.source for value in found.values.values()} == {Source.STORED}
    assert found.path is None


def test_components_and_what_is_known_of_them(load):
    found = explain(load()).as_json()
    rows = {row["section"]: row for row in found["components"]}
    assert list(rows) == [
        "simulator",
        "model",
        "rollout",
        "algorithm",
        "training",
        "weights",
        "cluster.runtime",
        "loggers.0",
        "loggers.1",
    ]
    assert rows["model"] == {
        "section": "model",
        "kind": "model",
        "name": "zoo-critic",
        "distribution": "rlinf-plugin-zoo",
        "version": "1.0",
        "facts": {
            "parameters": 10,
            "bytes": {"unknown": "not stated"},
            "spaces": {"unknown": "not stated"},
            "group_size": 1,
            "capabilities": {"value": "full"},
            "conventions": {},
        },
    }
    assert rows["training"]["facts"]["parameters"] == {"unknown": "not stated"}
    rows = {row["section"] for row in explain(load("cluster.devices=cpu")).as_json()["components"]}
    assert "cluster.devices" in rows


def test_the_page_is_a_run_of_the_same_values(load, rlinf):
    run = load("seed=3", "training.groups=[{match: a}, {match: 'b c'}]", "simulator.size=inf")
    page = rlinf("config", "show", "run.yaml", "seed=3", "simulator.size=inf")[1]
    assert load_run_of(page).config.seed == 3
    lines = [text for text, _ in yaml_lines(explain(run))]
    assert to_plain(load_run_of("\n".join(lines))) == to_plain(run)


def load_run_of(text: str):
    Path("saved.yaml").write_text(text, encoding="utf-8")
    return load_run("saved.yaml")


ODD = ["${steps}", "\\${steps}", "\\\\${a}", "1e5", "1e-05", "yes", "~", "null", "0x10", "a: b"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab1 :#'", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(value=st.lists(VALUES, min_size=4, max_size=12))
def test_any_value_survives_the_page(load, value):
    plain = {**to_plain(load()), "simulator": {"name": "zoo-world", "any": value}}
    stored = load_plain(plain)
    page = "\n".join(text for text, _ in yaml_lines(explain(stored)))
    assert yaml.safe_load(page) is not None
    assert to_plain(load_run_of(page)) == to_plain(stored)


def test_case_k04_show_prints_value_and_origin(rlinf):
    code, out, err = rlinf("config", "show", "run.yaml", "collect.envs=8")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "envs: 8 # command line" in lines
    assert f"horizon: 10 # default of {ZOO}" in lines
    assert "hidden:" in lines, "its items come from lines of their own"
    assert "- 2 # model/small.yaml:4" in lines
    assert "# rows per iteration: 800 (envs x steps)" in lines
    assert "\x1b" not in out
    assert any("zoo-sgd" in line and "parameters unknown" in line for line in lines)


def test_show_as_json(rlinf):
    report = json.loads(rlinf("config", "show", "run.yaml", "simulator.size=inf", "--json")[1])
    assert report["schema_version"] == 1
    values = {value["path"]: value for value in report["values"]}
    assert values["simulator.size"] == {
        "path": "simulator.size",
        "value": "inf",
        "origin": "command line",
        "source": "command line",
        "file": None,
        "line": None,
        "owner": ZOO,
        "written": None,
    }
    arithmetic = {item["name"]: item["value"] for item in report["arithmetic"]}
    assert arithmetic["rows per iteration"] == 1600


def test_what_the_users_file_says_of_plugins(rlinf, tmp_path, monkeypatch):
    file = tmp_path / "user.yaml"
    file.write_text("plugins: {prefer: {model/zoo-critic: rlinf-plugin-zoo}}\n")
    monkeypatch.setenv("RLINF_CONFIG", str(file))
    (said,) = explain(load_run("run.yaml")).as_json()["plugins"]
    assert said["origin"] == str(file)
    assert said["prefer"] == {"model/zoo-critic": "rlinf-plugin-zoo"}
    assert f"# plugins, by {file}: prefer" in rlinf("config", "show", "run.yaml")[1]


def test_a_run_with_findings_is_refused_as_train_refuses_it(rlinf):
    shown, trained = (rlinf(*c, "run.yaml", "stpes=1") for c in (["config", "show"], ["train"]))
    assert shown[:2] == (2, "")
    assert shown == trained


def test_case_k03_what_eval_reads_needs_no_training(write, rlinf):
    write(run="simulator: zoo-world\nmodel: zoo-critic\ntraining: {name: nobody, x: 1}\n")
    assert rlinf("config", "show", "run.yaml")[0] == 2
    code, out, err = rlinf("config", "show", "run.yaml", "--for", "eval", "--json")
    assert code == 0, err
    report = json.loads(out)
    owners = {value["path"]: value["owner"] for value in report["values"]}
    assert owners["training.x"] is None, "nothing reads it"
    assert owners["simulator.size"] == ZOO
    assert [row["name"] for row in report["arithmetic"]] == ["environments of an evaluation"]
