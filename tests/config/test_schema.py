"""The base class of all options, and the core's own sections."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from rlinf_core.config import schema
from rlinf_core.config.options import list_options, type_text
from rlinf_core.config.schema import SECTIONS, Config, RunConfig, Section
from rlinf_core.specs import Kind


class Options(Config):
    """Some options."""

    rate: float = 0.5
    """A rate.

    In units."""
    count: int = Field(default=1, ge=1)
    """A count."""
    names: tuple[str, ...] = ()
    """Names."""


def read(**data):
    return Options.model_validate_json(json.dumps(data))


def test_help_comes_from_the_docstrings_of_options():
    assert Options.model_fields["rate"].description == "A rate.\n\nIn units."


def test_an_integer_is_a_number_and_a_list_a_tuple():
    assert read(rate=1, names=["a"]) == Options(rate=1.0, names=("a",))
    assert isinstance(read(rate=1).rate, float)


@pytest.mark.parametrize(
    "data",
    [{"rate": "1"}, {"rate": True}, {"count": 1.0}, {"count": "1"}, {"names": "a"}, {"nmaes": []}],
)
def test_nothing_is_converted_silently(data):
    with pytest.raises(ValidationError):
        read(**data)


def test_options_are_frozen_and_travel():
    options = Options(count=3)
    with pytest.raises(ValidationError):
        options.count = 4
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_default_out_of_range_is_a_mistake_of_the_plugin():
    class Wrong(Config):
        count: int = Field(default=0, ge=1)

    with pytest.raises(ValidationError):
        Wrong()


def models(model: type[BaseModel]):
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from models(field.annotation)


def test_every_option_of_a_run_has_its_help_and_all_but_components_a_default():
    for model in models(RunConfig):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            assert not field.is_required() or model is Section


def test_the_documented_defaults():
    plain = RunConfig().model_dump(mode="json")
    assert plain["collect"] == {
        "envs": 16,
        "steps": 100,
        "stages": None,
        "chunk": 1,
        "max_staleness": 0,
    }
    assert plain["update"] == {
        "epochs": 10,
        "minibatch_size": 400,
        "microbatch_size": None,
        "streaming": False,
    }
    assert plain["checkpoint"] == {"every": 10, "keep": 3, "best": "episode/success_once"}
    assert plain["evaluation"] == {
        "every": 0,
        "episodes": 100,
        "split": "test",
        "envs": None,
        "video": True,
    }
    assert plain["rollout"] == {"name": "direct"}
    assert plain["weights"] == {"name": "memory"}
    assert plain["loggers"] == [{"name": "console"}, {"name": "jsonl"}]
    assert plain["placement"] is None
    assert plain["cluster"] == {
        "runtime": {"name": "inline"},
        "devices": "auto",
        "node_groups": {},
        "sharing": "auto",
        "deadlines": {
            "start": 300.0,
            "call": 3600.0,
            "simulation": {},
            "rollout": {},
            "training": {},
        },
        "restarts": {"simulation": 0, "rollout": 0, "lost": "redo"},
    }


def test_a_section_may_be_a_bare_name():
    short = RunConfig.model_validate_json('{"model": "mlp", "loggers": ["console", {"name": "x"}]}')
    assert short.model == Section(name="mlp")
    assert [logger.name for logger in short.loggers] == ["console", "x"]
    long = RunConfig.model_validate_json('{"model": {"name": "mlp", "hidden": [3]}}')
    assert long.model.options == {"hidden": [3]}


def test_every_section_is_of_a_kind_that_the_schema_has():
    for path in SECTIONS:
        head, _, tail = path.partition(".")
        model = RunConfig.model_fields[head]
        assert not tail or tail in model.annotation.model_fields
    assert set(SECTIONS.values()) <= set(Kind)
    assert set(SECTIONS) >= schema.REQUIRED
    assert set(schema.DEFAULTS) <= set(SECTIONS)


def test_options_are_listed_as_a_person_would_write_them():
    rows = {option.name: option for option in list_options(Options)}
    assert (rows["count"].type, rows["count"].default) == ("int >= 1", 1)
    assert rows["names"].type == "tuple[str, ...]"
    assert rows["rate"].help.startswith("A rate.")
    nested = {option.name: option.default for option in list_options(RunConfig)}
    assert nested["collect.envs"] == 16
    assert nested["loggers"] == [{"name": "console"}, {"name": "jsonl"}]
    assert type_text(dict[str, int | None]) == "dict[str, int | null]"
    assert type_text(Literal["a", 1]) == "'a' | 1"
    assert type_text(Path) == "Path"
