"""What a check came to: plain data, for reports of every kind."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


class Outcome(enum.StrEnum):
    """How a check ended."""

    OK = "ok"
    """It is as it should be."""
    WARNING = "warning"
    """It works, but something should be done."""
    FAILED = "failed"
    """It does not work, or breaks a rule that others rely on."""
    SKIPPED = "skipped"
    """It could not be checked, or was not asked for."""


class Stage(enum.StrEnum):
    """The stages of checking a plugin, each of which goes further than the one before."""

    METADATA = "metadata"
    """What its installer wrote; nothing of it is imported."""
    MANIFEST = "manifest"
    """What it says about itself; nothing heavy may be imported."""
    IMPORT = "import"
    """Its components' code is imported."""
    PROBE = "probe"
    """Its components look at this machine."""


@dataclass(frozen=True)
class Finding:
    """What one check came to.

    Args:
        stage: when it was checked.
        check: its name, unique within a stage.
        outcome: how it ended.
        sentence: what was found, and what was wanted where that is something else.
        remedy: what to do; empty where there is nothing to do.
        component: ``kind name`` of the component that it is about; empty where about all.
        detail: a traceback, or what the plugin printed.
    """

    stage: Stage
    check: str
    outcome: Outcome
    sentence: str
    remedy: str = ""
    component: str = ""
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return plain data; what is empty is null."""
        return {key: (str(value) or None) for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """Return what :meth:`as_json` gave."""
        given = {key: value or "" for key, value in data.items()}
        stage, outcome = Stage(given.pop("stage")), Outcome(given.pop("outcome"))
        return cls(stage=stage, outcome=outcome, **given)
