"""Interpolations, such as ``${steps}`` and ``${oc.env:NAME}``, resolved one value at a time."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlinf_core.config.findings import unsayable
from rlinf_core.config.origins import join
from rlinf_core.config.schema import RunConfig

Finding = tuple[str, str]

_PLAIN = (str, int, float, bool, type(None), DictConfig, ListConfig)
"""What JSON can say; YAML can also say bytes and paths."""


def resolve(data: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Return a run's data with every interpolation resolved.

    ``${steps}`` is known where the run does not give it: then it is the schema's default. What
    cannot be resolved is left as it was written and is among the findings.
    """
    defaults = RunConfig().model_dump(mode="json", exclude_none=True)
    root = OmegaConf.create(_laid_over(defaults, data))
    findings: list[Finding] = []
    return {str(key): _value(root, key, str(key), data, findings) for key in data}, findings


def _laid_over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: _laid_over(below.get(key), value) for key, value in above.items()}}


def _plain(node: Any, path: str, given: Any, findings: list[Finding]) -> Any:
    """Return the part of a resolved node that was given, or all of what was interpolated."""
    if isinstance(node, DictConfig):
        keys: list[Any] = list(given if isinstance(given, dict) else node)
        return {str(key): _value(node, key, join(path, key), given, findings) for key in keys}
    if isinstance(node, ListConfig):
        return [_value(node, i, join(path, i), given, findings) for i in range(len(node))]
    return node


def _value(
    node: DictConfig | ListConfig, key: Any, path: str, given: Any, findings: list[Finding]
) -> Any:
    raw = given[key] if isinstance(given, dict | list) else None
    try:
        if OmegaConf.is_missing(node, key):
            findings.append((path, f"must be given, such as {path}=VALUE"))
            return raw
        value = node[key]
        if not isinstance(value, _PLAIN):
            wanted = "wanted text, a number, true, false, null, a list or a mapping"
            findings.append((path, f"found {value!r}, {wanted}"))
            return None
        if text := unsayable("", value):
            findings.append((path, text))
            return None
        return _plain(value, path, raw, findings)
    except (OmegaConfBaseException, RecursionError) as error:
        findings.append((path, f"found {raw!r}: {_reason(error)}"))
        return raw


def _reason(error: BaseException) -> str:
    """Return why an interpolation failed, without what OmegaConf says about itself."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"^\w+ raised while resolving interpolation: ", "", text).strip('"')
