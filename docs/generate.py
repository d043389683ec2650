"""Writes the pages of the reference that follow from the code: ``python docs/generate.py``.

``reference/run-files.md`` comes from the classes of options of the core and of the plugins in this
repository, ``reference/api.md`` from ``rlinf_core.api``, ``reference/performance.md`` from the
results of the benchmarks. A test fails where a page is not what this script would write. A new page
is a function in :data:`PAGES`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlinf_core import api
from rlinf_core.capability import Level
from rlinf_core.config.components import config_class
from rlinf_core.config.schema import DEFAULTS, REQUIRED, SECTIONS, RunConfig, Section
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.settings import PluginSettings
from rlinf_core.specs import Component

DOCS = Path(__file__).parent
ROOT = DOCS.parent

NOTICE = "<!-- Written by docs/generate.py; change the code's own help and run it again. -->\n"

CHOICES = {
    ("maniskill", "task"): "rlinf_plugin_maniskill.config:TASKS",
    ("metaworld", "task"): "rlinf_plugin_metaworld.config:TASKS",
    ("metaworld", "camera"): "rlinf_plugin_metaworld.config:CAMERAS",
    ("metaworld", "images"): "rlinf_plugin_metaworld.config:CAMERAS",
}
"""Options whose values are checked by code rather than by a type, and where those values stand."""

GROUPS: Mapping[str, str] = {
    "Declaring a plugin": "hookspecs specs capability config.schema",
    "Simulators": "protocols.simulator simulation",
    "Models": (
        "protocols.policy models.statistics models.normalize models.actions models.images "
        "models.heads models.tensor_files"
    ),
    "Algorithms": "protocols.algorithm",
    "Training backends, engines and weights": (
        "protocols.training_backend protocols.rollout_engine protocols.engine_adapter "
        "protocols.weight_transport transport.weights transport.routes"
    ),
    "Loggers, rewards and data": "protocols.logger protocols.reward protocols.dataset",
    "Runtimes and devices": (
        "protocols.runtime runtime.worker devices placement protocols.accelerator "
        "protocols.scheduler protocols.dequeue_policy"
    ),
    "What moves between them": "data.batch data.draws",
    "Errors": "errors",
}
"""Heading to the modules whose names stand below it. A name of another module stops the script."""


# --- run files ---------------------------------------------------------------------------------


def run_files() -> str:
    """Return the page of every option."""
    lines = [
        NOTICE,
        "# Run files",
        "",
        "Every option of the core and of the plugins in this repository. How to write such a file, "
        "and how files and groups are found, stands in "
        "[Write a run file](../how-to/write-a-run-file.md). `rlinf plugins show NAME` prints the "
        "same for one component, also for one of another plugin.",
        "",
        "An option that is not given has its default. A key that is no option is an error. On the "
        "command line an option is its dotted path: `collect.envs=8`, "
        "`training.learning_rate=1e-3`, `loggers.0.every=5`.",
        "",
        "## Top level",
        "",
    ]
    nested = {
        name: field.annotation
        for name, field in RunConfig.model_fields.items()
        if _is_model(field.annotation) and field.annotation is not Section
    }
    lines += _table(_rows(RunConfig, skip=set(nested) | {"rollout", "weights"} | _sections()))
    lines += ["", "## Sections that choose a component", ""]
    lines += [
        "Each takes the name of a component, or a mapping of `name` and that component's options: "
        "`model: mlp` is short for `model: {name: mlp}`. `[distribution/]name` is understood where "
        "two plugins provide the same name. `data` and `reward` are refused: a run of the kind "
        "`embodied` reads neither.",
        "",
        "| section | kind | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for path, kind in SECTIONS.items():
        default = _code(DEFAULTS[path]) if path in DEFAULTS else "none"
        default = "must be given" if path in REQUIRED and path not in DEFAULTS else default
        lines.append(f"| `{path}` | {kind} | {default} | {_help(_field(path))} |")
    lines.append(
        "| `loggers` | logger | `console`, `jsonl` | "
        f"{_help(RunConfig.model_fields['loggers'])} A list; giving it replaces the default. |"
    )
    for name, model in nested.items():
        lines += ["", f"## `{name}`", "", _first_line(model), ""]
        lines += _table(_rows(model, f"{name}.", skip={"runtime"}))
    for component in _components():
        lines += _component(component)
    return "\n".join(lines) + "\n"


def _components() -> Iterator[Component]:
    """Yield the components of this repository, whatever else is installed."""
    ours = {"rlinf-core"}
    for path in ROOT.glob("plugins/*/pyproject.toml"):
        ours.add(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"])
    manager = PluginManager(PluginSettings())
    for record in manager.records:
        if record.distribution in ours and not record.ok:
            raise SystemExit(record.sentence)
    if missing := ours - {record.distribution for record in manager.records}:
        parts = " ".join(f"-e plugins/{name}" for name in sorted(missing))
        raise SystemExit(f"the page is about these as well: pip install {parts}")
    yield from (c for c in manager.registry.components() if c.distribution in ours)


def _component(component: Component) -> list[str]:
    spec = component.spec
    lines = ["", f"## {component.kind} `{spec.name}`", "", _sentence(spec.summary), ""]
    facts = [f"* from `{component.distribution}`"]
    levels = [
        f"`{capability}`" + ("" if level is Level.FULL else f" ({level.name.lower()})")
        for capability, level in sorted(spec.capabilities.items())
    ]
    if levels:
        facts.append(f"* declares {', '.join(levels)}")
    for kind, needed in spec.needs.items():
        facts.append(f"* needs {', '.join(f'`{c}`' for c in sorted(needed))} of the {kind}")
    model = config_class(component)
    if model is None:
        return [*lines, *facts, "* takes no options"]
    return [*lines, *facts, "", *_table(_rows(model, owner=spec.name))]


Row = tuple[str, str, str, str]


def _rows(
    model: type[BaseModel], prefix: str = "", skip: set[str] | None = None, owner: str = ""
) -> Iterator[Row]:
    """Yield (option, type, default, meaning), those of nested classes after their own row."""
    for name, field in model.model_fields.items():
        if name in (skip or ()):
            continue
        path, annotation = f"{prefix}{name}", field.annotation
        if _is_model(annotation):
            yield from _rows(annotation, f"{path}.", owner=owner)
            continue
        meaning = _help(field)
        if target := CHOICES.get((owner, path)):
            module, _, attribute = target.partition(":")
            values = getattr(importlib.import_module(module), attribute)
            meaning += f" One of: {', '.join(_code(value) for value in values)}."
        yield path, _type(annotation, field.metadata), _default(field), meaning
        for inner in typing.get_args(annotation):
            if _is_model(inner) and inner is not Section:
                item = "LABEL" if typing.get_origin(annotation) is dict else "N"
                yield from _rows(inner, f"{path}.{item}.", owner=owner)


def _table(rows: Iterator[Row]) -> list[str]:
    lines = ["| option | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{path}` | {kind} | {default} | {text} |" for path, kind, default, text in rows]
    return lines


def _type(annotation: Any, metadata: Any = ()) -> str:
    """Return a type in the words of YAML, with its range."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    plain = {int: "integer", float: "number", bool: "`true` or `false`", str: "text"}
    if origin is typing.Annotated:
        return _type(arguments[0], arguments[1:])
    if origin in (typing.Union, types.UnionType):
        parts = [a for a in arguments if a is not type(None)]
        null = " or `null`" if len(parts) < len(arguments) else ""
        return " or ".join(_type(part, metadata) for part in parts) + null
    if origin is typing.Literal:
        return ", ".join(_code(value) for value in arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return f"list of {_type(arguments[0])}"
    if origin is tuple:
        parts = list(dict.fromkeys(_type(part) for part in arguments))
        each = f"each {parts[0]}" if len(parts) == 1 else ", ".join(parts)
        return f"list of {len(arguments)}, {each}"
    if origin is dict:
        return f"mapping of {_type(arguments[0])} to {_type(arguments[1])}"
    if _is_model(annotation):
        return "mapping"
    return f"{plain.get(annotation, getattr(annotation, '__name__', annotation))}{_range(metadata)}"


def _range(metadata: Any) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = []
    for item in metadata:
        for part in item.metadata if isinstance(item, FieldInfo) else [item]:
            found += [
                f"{sign} {_number(getattr(part, name))}"
                for name, sign in signs.items()
                if hasattr(part, name)
            ]
            if isinstance(part, annotated_types.MinLen):
                found.append("not empty")
            if pattern := getattr(part, "pattern", None):
                found.append(f"matching {_code(pattern)}")
    return f" {', '.join(found)}" if found else ""


def _number(value: float) -> str:
    if isinstance(value, int):
        return "2^63" if value == 2**63 else f"{value:,}"
    return f"{value:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, tuple) and value and isinstance(value[0], Section):
        value = [section.name for section in value]
    return _code(json.dumps(value))


def _help(field: FieldInfo) -> str:
    return _cell(field.description or "")


def _cell(text: str) -> str:
    """Return help as one cell of a table: ``x`` becomes `x`."""
    return _piped(re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split())))


def _code(value: Any) -> str:
    return _piped(f"`{value}`")


def _piped(text: str) -> str:
    """Write bars so that they do not end a cell, in code as well."""
    code = re.sub(r"`([^`]*\|[^`]*)`", r"<code>\1</code>", text)
    return code.replace("|", "&#124;")


def _field(path: str) -> FieldInfo:
    model: Any = RunConfig
    *above, name = path.split(".")
    for part in above:
        model = model.model_fields[part].annotation
    return model.model_fields[name]


def _sections() -> set[str]:
    return {path.partition(".")[0] for path in SECTIONS if "." not in path} | {"loggers"}


def _is_model(annotation: Any) -> typing.TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


# --- names for plugin authors ------------------------------------------------------------------


def names() -> str:
    """Return the page of ``rlinf_core.api``, its modules and ``rlinf_core.testing``."""
    homes = {module: title for title, modules in GROUPS.items() for module in modules.split()}
    found: dict[str, list[str]] = {title: [] for title in GROUPS}
    for name in sorted(api._HOME, key=str.lower):
        home = api._HOME[name].removeprefix("rlinf_core.")
        if home not in homes:
            raise SystemExit(f"api.{name}: put {home!r} below a heading, in GROUPS")
        found[homes[home]].append(name)
    lines = [
        NOTICE,
        "# Names for plugin authors",
        "",
        "A plugin imports `rlinf_core.api` and, in its tests, `rlinf_core.testing`; nothing else "
        "of the core. Importing `rlinf_core.api` imports no torch: each name is fetched when it is "
        "used. Within one `PLUGIN_API_VERSION` names are only added.",
    ]
    for title, members in found.items():
        lines += ["", f"## {title}", ""]
        lines += _names("rlinf_core.api", members)
    from rlinf_core import rl, testing
    from rlinf_core.runtime import toolkit

    lines += ["", "## Tensor functions: `rlinf_core.api.rl`", ""]
    lines += [
        "Pure functions of tensors. Masks are boolean and true where valid; log-probs, entropies "
        "and divergences are in nats; shapes stand in each docstring.",
        "",
    ]
    lines += _names("rlinf_core.rl", sorted(rl.__all__, key=str.lower))
    lines += ["", "## What runtimes are built of: `rlinf_core.api.toolkit`", ""]
    lines += _names("rlinf_core.runtime.toolkit", sorted(toolkit.__all__, key=str.lower))
    lines += ["", "## For tests: `rlinf_core.testing`", "", "Needs pytest.", ""]
    lines += _names("rlinf_core.testing", sorted(testing.__all__, key=str.lower))
    return "\n".join(lines) + "\n"


def _names(module: str, members: list[str]) -> list[str]:
    lines = ["| name | what it is |", "| --- | --- |"]
    for name in members:
        value = getattr(importlib.import_module(module), name)
        shown = f"{name}()" if inspect.isfunction(value) else name
        lines.append(f"| `{shown}` | {_one_line(module, name, value)} |")
    return lines


def _one_line(module: str, name: str, value: Any) -> str:
    """Return the first sentence of what a name's docstring says."""
    if inspect.isfunction(value) or (
        inspect.isclass(value) and "doc" not in value.__dict__ and value.__doc__
    ):
        text = inspect.getdoc(value) or ""
    else:
        text = _attribute_docstring(module, name)
    paragraph = " ".join(text.split("\n\n")[0].split())
    if not paragraph and (inspect.isfunction(value) or inspect.isclass(value)):
        raise SystemExit(f"{module}.{name} has no docstring")
    if not paragraph and isinstance(value, Mapping):
        return f"A mapping by name: {', '.join(map(_code, value))}."
    if not paragraph:
        return f"A type: {' or '.join(map(_code, str(value).replace('torch.', '').split(' | ')))}."
    if paragraph.startswith("See the module's docstring"):
        paragraph = (inspect.getdoc(inspect.getmodule(value)) or "").split("\n")[0]
    paragraph = paragraph.removesuffix("; see the package's docstring.")
    paragraph = re.sub(r":\w+:`[~.]?(?:[\w.]*\.)?(\w+)`", r"`\1`", paragraph)
    return _sentence(_cell(paragraph))


def _attribute_docstring(module: str, name: str) -> str:
    """Return the text below a constant or an alias, where it is defined."""
    home = api._HOME.get(name) if module == "rlinf_core.api" else _defined_in(module, name)
    assert home is not None
    tree = ast.parse(inspect.getsource(importlib.import_module(home)))
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return str(following.value.value)
    return ""


def _defined_in(package: str, name: str) -> str:
    """Return the module that a package's ``__init__`` imports a name from."""
    tree = ast.parse(inspect.getsource(importlib.import_module(package)))
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and any(a.name == name for a in statement.names):
            return str(statement.module)
    raise SystemExit(f"{package} does not import {name}")


def _first_line(model: type) -> str:
    return _cell((inspect.getdoc(model) or "").split("\n\n")[0])


def _sentence(text: str) -> str:
    return text if text.endswith((".", ":")) else f"{text}."


# --- benchmarks --------------------------------------------------------------------------------


def performance() -> str:
    """Return the page of measured ratios, which ``benchmarks/page.py`` makes of the results."""
    spec = importlib.util.spec_from_file_location("benchmarks_page", ROOT / "benchmarks/page.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    return NOTICE + "\n" + str(page.performance())


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/run-files.md": run_files,
    "reference/api.md": names,
    "reference/performance.md": performance,
}
"""Path below ``docs`` to what writes the page."""


def main() -> int:
    """Write the pages; with ``--check`` only say which ones are not as they should be."""
    stale = [n for n, page in PAGES.items() if not _same(DOCS / n, page())]
    for name in stale:
        if "--check" in sys.argv[1:]:
            print(f"docs/{name} is stale; run: python docs/generate.py")
        else:
            (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
            print(f"wrote docs/{name}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
