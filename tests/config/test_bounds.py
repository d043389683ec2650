"""The options of this repository's plugins take finite numbers and integers that can be held."""

from __future__ import annotations

import json

from pydantic import BaseModel, ValidationError

from rlinf_core.config.components import config_class
from rlinf_core.config.options import list_options
from rlinf_core.config.schema import Config, RunConfig
from rlinf_core.plugins.manager import PluginManager

HERE = (
    "rlinf-plugin-ascend",
    "rlinf-plugin-gymnasium",
    "rlinf-plugin-grpo",
    "rlinf-plugin-maniskill",
    "rlinf-plugin-metaworld",
    "rlinf-plugin-mlp",
    "rlinf-plugin-openvla",
    "rlinf-plugin-openvla-oft",
    "rlinf-plugin-pi0",
    "rlinf-plugin-ppo",
    "rlinf-plugin-ray",
    "rlinf-plugin-rocm",
    "rlinf-plugin-tensorboard",
    "rlinf-plugin-torch",
)


def _models() -> list[tuple[str, type[BaseModel]]]:
    found: list[tuple[str, type[BaseModel]]] = [("a run", RunConfig)]
    for component in PluginManager().registry.components():
        model = config_class(component) if component.distribution in HERE else None
        if model is not None:
            found.append((component.qualified_name, model))
    return found


def _wrong(model: type[Config], path: str, value: object) -> bool:
    """Return whether a class of options refuses a value as out of range, at its own path."""
    data = value
    for part in reversed(path.split(".")):
        data = {part: data}
    try:
        model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        kinds = {item["type"] for item in error.errors() if item["loc"][0] == path.split(".")[0]}
        return bool(kinds & {"less_than", "less_than_equal", "finite_number"})
    return False


def test_every_integer_has_an_upper_bound_and_every_number_is_finite():
    unbounded = []
    for who, model in _models():
        for option in list_options(model):
            words = option.type.replace("[", " ").replace("]", " ").replace(",", " ").split()
            several = "tuple" in words
            for word, value in (("int", 10**23), ("float", float("inf"))):
                given = [value, value] if several else value
                if word in words and not _wrong(model, option.name, given):
                    unbounded.append(f"{who}: {option.name}")
    assert unbounded == []
