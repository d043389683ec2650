"""What a class of options offers, as plain data: for ``rlinf plugins show`` and for pages."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        name: dotted path below its section.
        type: its type and bounds, such as ``int >= 1``.
        default: as plain data; None also where it must be given.
        required: whether it must be given.
        help: what it means.
    """

    name: str
    type: str
    default: Any
    required: bool
    help: str


def list_options(model: type[BaseModel], prefix: str = "") -> Iterator[Option]:
    """Yield the options of a class, those of nested classes under a dotted path."""
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from list_options(annotation, f"{prefix}{name}.")
            continue
        required = field.is_required()
        default = None if required else field.get_default(call_default_factory=True)
        text = f"{type_text(annotation)}{_bounds(field)}"
        yield Option(f"{prefix}{name}", text, _plain(default), required, field.description or "")


def type_text(annotation: Any) -> str:
    """Return a type as a person would write it, without what only pydantic reads."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin is typing.Literal:
        return " | ".join(repr(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_text(argument) for argument in arguments)
    if origin is not None:
        inner = ", ".join("..." if a is Ellipsis else type_text(a) for a in arguments)
        return f"{origin.__name__}[{inner}]"
    return getattr(annotation, "__name__", str(annotation))


def _bounds(field: FieldInfo) -> str:
    return "".join(
        f" {sign} {getattr(item, name)}"
        for item in field.metadata
        for name, sign in _BOUNDS.items()
        if hasattr(item, name)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
