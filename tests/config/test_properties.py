"""Whatever stands in a run file or on a command line: it is loaded or refused, never a crash."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlinf_core.config.validate import load_plain, load_run, to_plain
from rlinf_core.errors import RequestError

WORDS = """name seed steps model algorithm training loggers cluster runtime collect envs stages
plugins disable defaults devices placement simulation node_groups sharing x a.b"""
KEYS = st.sampled_from(["", *WORDS.split()])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats()
    | st.sampled_from(
        [
            "zoo-critic",
            "zoo-a2c",
            "cpu",
            "2 x cpu",
            "0-1:2",
            "${seed}",
            "${",
            "???",
            "console",
            "*",
            "",
        ]
    )
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SETTINGS = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SOUND = {
    "simulator": "zoo-world",
    "model": "zoo-critic",
    "algorithm": "zoo-a2c",
    "training": "zoo-sgd",
}


def load_or_refuse(*overrides: str) -> None:
    try:
        run = load_run("run.yaml", list(overrides))
    except RequestError:
        return
    assert to_plain(load_plain(to_plain(run))) == to_plain(run)


@SETTINGS
@given(data=st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_file(zoo, data):
    Path("run.yaml").write_text(json.dumps({**SOUND, **data}), encoding="utf-8")
    load_or_refuse()


@SETTINGS
@given(key=KEYS, deeper=KEYS, value=VALUES, sign=st.sampled_from(["", "+", "++", "~"]))
def test_any_override(zoo, key, deeper, value, sign):
    Path("run.yaml").write_text(json.dumps(SOUND), encoding="utf-8")
    load_or_refuse(f"{sign}{key}={value}", f"{key}.{deeper}={value}")


@SETTINGS
@given(text=st.text(max_size=12))
def test_any_text_as_an_override(zoo, text):
    Path("run.yaml").write_text(json.dumps(SOUND), encoding="utf-8")
    load_or_refuse(text)
