"""Commands that answer at once: options that were not given need no validation.

Newer typers build a pydantic validator for every option of a command, and importing pydantic costs
a third of ``rlinf plugins list``. An option that was not given has nothing to validate. This is the
one place that touches typer's inside; where it looks different, nothing is changed.
"""

from __future__ import annotations

from typing import Any

from typer import core


def skip_absent_options() -> None:
    """Let typer pass an absent option on as None, which is what it comes to anyway."""
    parameter = getattr(core, "_TyperParameter", None)
    process = getattr(parameter, "process_value", None)
    if parameter is None or process is None or hasattr(process, "__wrapped__"):
        return

    def quick(self: Any, ctx: Any, value: Any) -> Any:
        if value is not None or self.required or self.multiple or self.nargs != 1:
            return process(self, ctx, value)
        return self.callback(ctx, self, value) if self.callback else None

    quick.__wrapped__ = process  # type: ignore[attr-defined]
    parameter.process_value = quick
