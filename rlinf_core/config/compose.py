"""From a run file to plain data: groups, overrides, interpolations, and where each value came from.

Hydra's compose API resolves the ``defaults:`` list of groups and merges files; value overrides are
ours (:mod:`rlinf_core.config.overrides`).
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlinf_core.config import overrides
from rlinf_core.config.files import SUFFIX, read_lines, yaml_sentence
from rlinf_core.config.interpolation import resolve
from rlinf_core.config.origins import FILE_NAME, Origins, join, leaves, shown
from rlinf_core.config.overrides import Assignment
from rlinf_core.config.schema import SECTIONS
from rlinf_core.errors import ConfigError, did_you_mean

_NO_INTEGER = re.compile("Exceeds the limit|invalid literal for int")
"""How Python begins to say that it cannot read an integer."""


@dataclass
class Composed:
    """A run as plain data, before anything is checked against a schema.

    Args:
        path: the run's own file.
        data: plain data; interpolations that failed are left as they were written.
        origins: where each value came from.
        findings: what went wrong, by dotted path.
        written: the text of each interpolation, by dotted path.
    """

    path: Path
    data: dict[str, Any]
    origins: Origins
    findings: list[tuple[str, str]] = field(default_factory=list)
    written: Mapping[str, str] = field(default_factory=dict)


def compose_run(path: Path, folders: Sequence[Path], assignments: list[Assignment]) -> Composed:
    """Compose a run file with its groups and overrides.

    Args:
        path: the run's own file; its folder is searched for groups first.
        folders: further folders of groups.
        assignments: overrides, read.

    Raises:
        ConfigError: a file cannot be read, or groups do not fit together.
    """
    search = [path.parent, *(f.absolute() for f in folders if f.absolute() != path.parent)]
    with _readable(path):
        data, origins, values = _compose(path, search, assignments)
    if wrong := overrides.apply(data, values, origins):
        raise ConfigError(wrong)
    if "name" not in data:
        data["name"] = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).lstrip("-._")[:100] or "run"
        origins.put("name", FILE_NAME)
    written = {key: text for key, text in leaves(data) if isinstance(text, str) and "${" in text}
    resolved, findings = resolve(data)
    return Composed(path, resolved, origins, findings, written)


def own_section(path: Path, section: str, assignments: list[Assignment]) -> Any:
    """Return one section from a run's own file and overrides alone, resolved.

    For what must be known before groups can be looked for.

    Raises:
        ConfigError: the file cannot be read.
    """
    _refuse_hydra(path, read_lines(path))
    with _readable(path):
        whole = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(whole, dict)  # else read_lines had refused it
    data: dict[str, Any] = {section: whole[section]} if section in whole else {}
    ours = [a for a in assignments if a.key.split(".")[0] == section]
    if wrong := overrides.apply(data, ours, Origins()):
        raise ConfigError(wrong)
    return resolve(data)[0].get(section)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what hydra, OmegaConf and YAML raise about a run's files into findings."""
    try:
        yield
    except HydraException as error:
        raise ConfigError([_sentence(error, path)]) from error
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None)
        where = f"{shown(path)}: {key}" if key else shown(path)
        raise ConfigError([f"{where}: {_first_line(error)}"]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        name = getattr(mark, "name", None) or getattr(error, "name", None)
        raise ConfigError([yaml_sentence(error, shown(Path(name or path)))]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{shown(path)}: one of its groups is no text file"]) from error
    except RecursionError as error:
        raise ConfigError([f"{shown(path)}: nests too deeply, or holds itself"]) from error
    except (ValueError, AssertionError) as error:  # hydra's, where it did not foresee a value
        if _NO_INTEGER.match(str(error)):
            text = f"{shown(path)}: one of its groups holds a number that cannot be read"
            raise ConfigError([text]) from error
        wanted = "wanted a list of groups, such as [{model: mlp}]"
        raise ConfigError([f"{shown(path)}: defaults: {_first_line(error)}; {wanted}"]) from error


def _refuse_hydra(path: Path, lines: Mapping[str, int], package: str = "") -> None:
    """Refuse a file that speaks to hydra itself, which nobody would read."""
    for key, line in lines.items():
        if join(package, key) == "hydra":
            text = f"{shown(path)}:{line}: hydra: a run has no settings of hydra's own"
            raise ConfigError([text])


def _compose(
    path: Path, search: list[Path], assignments: list[Assignment]
) -> tuple[dict[str, Any], Origins, list[Assignment]]:
    """Let hydra merge files; return the data, its origins, and the overrides left for us."""
    further = [QuotedString(f"file://{f}", Quote.single).with_quotes() for f in search[1:]]
    base = f"hydra.searchpath=[{','.join(further)}]"
    groups: dict[str, str] = {}  # by what is chosen, so that the last choice holds
    values = []
    with (
        warnings.catch_warnings(),
        initialize_config_dir(str(search[0]), job_name="rlinf", version_base="1.3"),
    ):
        # Hydra would have every file say where `_self_` stands; by default it stands last.
        warnings.filterwarnings("ignore", message="(?s).*missing `_self_`")
        loader = GlobalHydra.instance().config_loader()
        maybe = [a for a in assignments if _may_be_group(a, search)]
        chosen = _choices(loader, path.stem, [base]) if maybe else set()
        for assignment in assignments:
            new = chosen is not None and assignment.key not in chosen and not assignment.grouped
            if assignment not in maybe or (assignment.removes and new):
                values.append(assignment)
            else:  # a group that the run does not choose yet is added rather than refused
                plus = "+" if new and assignment.text[0] != "+" else ""
                groups[assignment.text.lstrip("+~").partition("=")[0]] = plus + assignment.text
        texts = [base, *groups.values()]
        config = compose(path.stem, texts)
        defaults = loader.compute_defaults_list(path.stem, texts, RunMode.RUN).defaults
    data = OmegaConf.to_container(config, resolve=False)
    assert isinstance(data, dict)
    return {str(k): v for k, v in data.items()}, _origins(defaults, search), values


def _may_be_group(assignment: Assignment, search: Sequence[Path]) -> bool:
    """Return whether an override may be about a file of a group rather than a value."""
    group, value = assignment.key, assignment.value
    if assignment.grouped or assignment.removes:
        return True
    options = value if isinstance(value, list) else [value]
    return bool(options) and all(
        isinstance(o, str) and any(os.path.isfile(f / group / f"{o}{SUFFIX}") for f in search)
        for o in options
    )


def _choices(loader: Any, name: str, texts: list[str]) -> set[str] | None:
    """Return the groups that a run chooses from by itself; None where its choices are wrong."""
    try:
        listed = loader.compute_defaults_list(name, texts, RunMode.RUN)
    except HydraException:  # an override may yet put it right
        return None
    return set(listed.overrides.known_choices)


def _origins(defaults: Iterable[Any], search: Sequence[Path]) -> Origins:
    """Return where each value came from, by reading the merged files once more, in their order."""
    origins = Origins()
    for item in defaults:
        name = f"{item.config_path}{SUFFIX}"
        file = next((folder / name for folder in search if (folder / name).is_file()), None)
        if file is None:  # one of hydra's own
            continue
        lines = read_lines(file)
        _refuse_hydra(file, lines, item.package or "")
        for key, line in lines.items():
            if key.split(".")[0] != "defaults":
                origins.add(join(item.package or "", key), f"{shown(file)}:{line}")
    return origins


def _sentence(error: HydraException, path: Path) -> str:
    """Return what hydra could not do, in one sentence."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        missing = str(error.missing_cfg_file)
        group, _, name = missing.rpartition("/")
        known = list(error.options or ())
        near = did_you_mean(name, known) or did_you_mean(group, SECTIONS)
        return (
            f"{shown(path)}: defaults: there is no file {missing}{SUFFIX}.{near} "
            f"The group {group!r} has: {', '.join(known) or 'nothing'}"
        )
    cause = error.__cause__
    return f"{shown(path)}: {_first_line(cause if cause is not None else error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
