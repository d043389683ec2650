"""Overrides: read with hydra's grammar, applied whether or not the file has the key."""

from __future__ import annotations

import pytest

from rlinf_core.config.origins import COMMAND_LINE, Origins
from rlinf_core.config.overrides import apply, parse
from rlinf_core.errors import ConfigError


def applied(data, *texts):
    origins = Origins()
    assert apply(data, parse(texts), origins) == []
    return data, origins


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("+a=1", 1),
        ("++a=1", 1),
        ("a=1.5", 1.5),
        ("a=1e-3", 0.001),
        ("a=true", True),
        ("a=null", None),
        ("a=", ""),
        ("a='1'", "1"),
        ("a='x,y=z'", "x,y=z"),
        ("a=push-v3", "push-v3"),
        ("a=[1,two,[3]]", [1, "two", [3]]),
        ("a={b: 1, c: [x]}", {"b": 1, "c": ["x"]}),
        ("a=${steps}", "${steps}"),
        ("a=/some/path.txt", "/some/path.txt"),
    ],
)
def test_values(text, value):
    data, origins = applied({}, text)
    assert data == {"a": value}
    assert type(data["a"]) is type(value)
    assert origins.of("a") == COMMAND_LINE


def test_keys_that_the_file_has_not():
    data, origins = applied({"a": {"b": 1}}, "a.c=2", "d.e.f=3", "~a.b")
    assert data == {"a": {"c": 2}, "d": {"e": {"f": 3}}}
    assert origins.of("d.e.f") == COMMAND_LINE
    assert origins.of("d.e") == "default"


def test_mappings_are_merged_lists_and_names_replace():
    data, _ = applied({"a": {"b": 1}, "l": [1, 2]}, "a={c: 2}", "l=[3]")
    assert data == {"a": {"b": 1, "c": 2}, "l": [3]}
    data, _ = applied({"model": {"name": "x", "w": 1}}, "model=y")
    assert data == {"model": "y"}


def test_options_beside_the_short_form_of_a_section():
    data, _ = applied({"algorithm": "ppo", "cluster": {"runtime": "ray"}}, "algorithm.gamma=0.5")
    assert data["algorithm"] == {"name": "ppo", "gamma": 0.5}
    data, _ = applied(data, "cluster.runtime.nodes=2", "algorithm={clip: 1}")
    assert data["cluster"]["runtime"] == {"name": "ray", "nodes": 2}
    assert data["algorithm"] == {"name": "ppo", "gamma": 0.5, "clip": 1}


def test_items_of_lists():
    data, _ = applied({"loggers": ["console", "jsonl"]}, "loggers.1.every=2", "loggers.0=csv")
    assert data == {"loggers": ["csv", {"name": "jsonl", "every": 2}]}
    data, _ = applied({}, "loggers.0.every=5")
    assert data == {"loggers": [{"name": "console", "every": 5}, {"name": "jsonl"}]}


def test_a_section_without_its_name_keeps_the_default_one(write, load):
    write(
        run="simulator: zoo-world\nmodel: zoo-critic\nalgorithm: zoo-a2c\ntraining: zoo-sgd\n"
        "rollout: {batch_size: 4}\n"
    )
    assert load().components["rollout"].config.batch_size == 4
    run = load("rollout.batch_size=8", "loggers.0.every=5")
    assert run.components["rollout"].config.batch_size == 8
    assert run.loggers[0].config.every == 5


def test_later_overrides_win():
    assert applied({}, "a=1", "a=2")[0] == {"a": 2}


@pytest.mark.parametrize(
    ("data", "text", "finding"),
    [
        ({"a": 3}, "a.b=1", "a is 3, which holds no 'b'"),
        ({"a": 3}, "a.b.c=1", "a is 3, which holds no 'b.c'"),
        ({}, "~a", "there is nothing to remove"),
        ({}, "~a.b", "there is nothing to remove"),
        ({"a": {}}, "~a.b", "there is nothing to remove"),
        ({"l": [1]}, "l.3=2", "l.3: there is no such item in the list"),
        ({"l": [1]}, "l.x=2", "l.x: there is no such item in the list"),
        ({"l": [1]}, "l.3.x=2", "l.3: there is no such item in the list"),
    ],
)
def test_overrides_that_fit_nothing(data, text, finding):
    assert apply(data, parse([text]), Origins()) == [f"command line: {text}: {finding}"]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("collect.envs", "cannot be read as an override; wanted key=value, such as collect.envs=8"),
        ("a.b==", "cannot be read as an override"),
        ("a..b=1", "cannot be read as an override"),
        ("a={b: 1", "cannot be read as an override"),
        ("a=x=y", "cannot be read as an override"),
        ("=1", "names no option; wanted key=value"),
        ("a=1,2", "gives several values, and a run takes one. For a list write a=[a,b]"),
        ("a=range(1,3)", "gives several values"),
        ("a=choice(1,3)", "gives several values"),
        ("hydra.run.dir=x", "a run has no settings of hydra's own"),
        ("hydra/launcher=x", "a run has no settings of hydra's own"),
    ],
)
def test_overrides_that_cannot_be_read(text, finding):
    with pytest.raises(ConfigError) as caught:
        parse([text])
    assert f"command line: {text!r}" in str(caught.value)
    assert finding in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert "http" not in str(caught.value)


def test_all_overrides_that_are_wrong_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        parse(["a", "b=1", "c==", "d=1,2"])
    assert len(caught.value.findings) == 3


@pytest.mark.parametrize("text", ["a=" + "[" * 3000 + "]" * 3000, "a=\udcff", "a=\0", "\udcff=1"])
def test_overrides_that_no_terminal_would_send(write, refuse, text):
    write(run="simulator: zoo-world\nmodel: zoo-critic\nalgorithm: zoo-a2c\ntraining: zoo-sgd\n")
    assert refuse(text)


@pytest.mark.parametrize("text", ["any.key=" + "9" * 5000, "a=[" + "9" * 5000 + "]"])
def test_numbers_of_too_many_digits(text):
    with pytest.raises(ConfigError) as caught:
        parse([text, "b=1,2"])
    assert len(caught.value.findings) == 2
    assert "holds a number of more digits than can be read" in caught.value.findings[0]
    assert len(caught.value.findings[0]) < 300


def test_an_item_of_too_many_digits_is_none_of_the_list(refuse, write):
    key = "loggers." + "9" * 5000
    (finding,) = apply({"loggers": [1]}, parse([f"{key}=x"]), Origins())
    assert finding.endswith("there is no such item in the list")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"seed": 7}, "~seed=7"),
        ({"l": [1, "x"]}, "~l=[1,x]"),
        ({"model": {"name": "mlp"}}, "~model=mlp"),
        ({"seed": 7}, "~seed"),
    ],
)
def test_what_has_the_value_that_was_given_is_removed(data, text):
    assert applied(data, text)[0] == {}


def test_what_has_another_value_is_not_removed():
    data = {"seed": 7}
    (finding,) = apply(data, parse(["~seed=1"]), Origins())
    assert finding == (
        "command line: ~seed=1: seed is 7 and not 1, so it is not removed; "
        "~seed removes it whatever it is"
    )
    assert data == {"seed": 7}
