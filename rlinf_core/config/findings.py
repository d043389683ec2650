"""Sentences about what is wrong with a run: where, what was found, what was wanted.

Findings are gathered, not raised one by one, so that a person corrects a file once.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlinf_core.config.origins import DEFAULT, Origins, has, join, leaves
from rlinf_core.errors import ConfigError, Problem, RequestError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


class Findings:
    """What is wrong so far, at most one finding for each dotted path.

    Args:
        file: the run's own file, named where a value has no place of its own.
        origins: where each value came from.
    """

    def __init__(self, file: str, origins: Origins) -> None:
        self.file, self.origins = file, origins
        self._problems: dict[str, Problem] = {}
        self._errors: dict[str, RequestError] = {}

    def add(self, path: str, sentence: str) -> None:
        """Add a finding about the value at a dotted path: ``found X, wanted Y`` or otherwise."""
        found, comma, wanted = sentence.partition(", wanted ")
        self.add_problem(Problem(path, found, f"wanted {wanted}" if comma else ""))

    def add_problem(self, problem: Problem) -> None:
        """Add a finding that is data already."""
        path = problem.path
        self._problems.setdefault(path, replace(problem, origin=self._place(path)))

    def add_error(self, path: str, error: RequestError) -> None:
        """Add a typed error about a component; where it stays alone, it is raised as its type."""
        if path not in self._problems:
            self.add(path, str(error))
            self._errors[path] = error

    def about(self, path: str) -> bool:
        """Return whether something was found at a path or below it."""
        return any(p == path or p.startswith(f"{path}.") for p in self._problems)

    def raise_any(self) -> None:
        """Raise what was found, if anything.

        Raises:
            ConfigError: several findings, or one about a value.
            RequestError: the only finding, where it is an error of another type.
        """
        if not self._problems:
            return
        error = next(iter(self._errors.values()), None)
        cause = error.__cause__ if error else None
        ordered = [self._problems[path] for path in sorted(self._problems, key=self._line)]
        if error is not None and len(ordered) == 1:
            raise type(error)(str(ordered[0])) from cause
        raise ConfigError(ordered) from cause

    def _line(self, path: str) -> int:
        """Return the line of a value: what is missing first, the command line last."""
        place = self.origins.of(path)
        line = place.rpartition(":")[2]
        if line.isdecimal():
            return int(line)
        return 0 if place == DEFAULT else sys.maxsize

    def _place(self, path: str) -> str:
        place = self.origins.of(path)
        return self.file if place == DEFAULT else place


def check(model: type[Model], data: Any, path: str, what: str, findings: Findings) -> Model | None:
    """Validate plain data; add a finding for each error and return None if there are any.

    Args:
        model: the class of options.
        data: what was given at ``path``.
        path: dotted path of the data; empty for a whole run.
        what: whose options they are, such as ``the algorithm 'ppo' (from rlinf-plugin-ppo)``.
        findings: takes what is wrong.
    """
    odd = [(where, text) for where, value in leaves(data) if (text := unsayable(where, value))]
    if odd:  # JSON cannot say it, and pydantic would not say where it stands
        for where, text in odd:
            findings.add(join(path, where) if where else path, text)
        return None
    try:
        # As JSON: there, strict still takes a list for a tuple and text for an enum or a path.
        return model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        items: dict[str, list[ErrorDetails]] = {}
        for item in error.errors(include_url=False):
            items.setdefault(".".join(_parts(data, item)), []).append(item)
        for where, found in items.items():
            findings.add(join(path, where) if where else path, _sentence(model, where, found, what))
        return None


def unsayable(path: str, value: Any) -> str:
    """Return what is wrong with a value, or its name, that no option could take; else ``""``."""
    if isinstance(value, int) and value.bit_length() > 1024:  # more than a float can hold
        return f"found an integer of about {value.bit_length() * 3 // 10} digits, wanted fewer"
    for text in (value, path):
        if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
            return f"found {text!r}, wanted text of whole characters (it holds half of a pair)"
    return ""


def options(model: type[BaseModel] | None) -> str:
    """Return ``It takes: a, b`` for a class of options, or that it takes none."""
    names = list(model.model_fields) if model else []
    return f"It takes: {', '.join(names)}" if names else "It takes no options"


def _sentence(model: type[BaseModel], path: str, items: Sequence[ErrorDetails], what: str) -> str:
    """Return a sentence for pydantic's errors at one path; a union gives one for each member."""
    first = items[0]
    if first["type"] == "extra_forbidden":
        *above, name = path.split(".")
        inside = _model_at(model, above)
        near = did_you_mean(name, inside.model_fields if inside else ())
        return f"no such option of {what}.{near} {options(inside)}"
    if first["type"] == "missing":
        return f"is missing; {what} needs it"
    if first["type"] == "value_error":  # a plugin's own sentence
        return f"for {what}: {first['msg'].removeprefix('Value error, ')}"
    expected = [str(item.get("ctx", {}).get("expected", "")) for item in items]
    choices = [choice for text in expected for choice in text.split("'")[1::2]]
    near = did_you_mean(str(first["input"]), choices)
    wanted = " or ".join(_wanted(item["msg"]) for item in items)
    return f"found {first['input']!r}, wanted {wanted}, for {what}" + (f".{near}" if near else "")


def _wanted(message: str) -> str:
    """Return what pydantic wanted, in words of YAML rather than JSON."""
    subject, _, text = message.partition(" should ")
    text = text.removeprefix("be ").replace("an object", "a mapping").replace("valid array", "list")
    if subject == "Input":
        return f"a number {text}" if text.startswith(("greater", "less")) else text
    return f"a {subject.lower()} to {text}" if text else message


def _parts(data: Any, item: ErrorDetails) -> list[str]:
    """Return the path of an error, without the names that pydantic adds for members of unions."""
    location = [str(part) for part in item["loc"]]
    if item["type"] in ("missing", "extra_forbidden"):
        head, tail = location[:-1], location[-1:]
    else:
        head, tail = location, []
    kept: list[str] = []
    for part in head:
        if has(data, ".".join([*kept, part])):
            kept.append(part)
    return kept + tail


def _model_at(model: type[BaseModel], parts: list[str]) -> type[BaseModel] | None:
    """Return the class of options that a path below a model leads to, if one does."""
    current: Any = model
    for part in parts:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(part)
            current = field.annotation if field else None
        else:  # an item of a list, or the value of a key
            current = next(iter(typing.get_args(current)[-1:]), None)
        current = next(_models(current), current)
    return next(_models(current), None)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the classes of options in an annotation such as ``Annotated[X, ...] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for argument in typing.get_args(annotation):
            yield from _models(argument)
