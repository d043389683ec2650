"""Commands that plugins add to ``rlinf`` by the hook ``rlinf_cli``."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

import typer

from rlinf_core.errors import RlinfError
from rlinf_core.plugins.records import CORE


@functools.cache
def commands(taken: frozenset[str]) -> dict[str, Any]:
    """Return the commands that plugins add to ``rlinf``, but for names that the core has."""
    from rlinf_core.plugins.manager import PluginManager

    owners = dict.fromkeys(taken, CORE)
    found: dict[str, Any] = {}
    try:
        manager = PluginManager()
    except RlinfError as error:  # help must work even where the user's file is wrong
        typer.echo(f"warning: commands of plugins are not shown: {error}", err=True)
        return found
    for distribution in manager.implementing("rlinf_cli"):
        group = typer.Typer()
        try:
            # What a plugin prints must not end up among the results of a command.
            with contextlib.redirect_stdout(sys.stderr):
                manager.call(distribution, "rlinf_cli", group=group)
                added = typer.main.get_group(group).commands
        except BaseException as error:  # help must work even where a plugin tries to exit
            if type(error) is KeyboardInterrupt:  # Ctrl-C; a subclass of it is the plugin's own
                raise
            text = f"warning: {distribution}: rlinf_cli failed: {type(error).__name__}: {error}"
            typer.echo(text, err=True)
            continue
        for name, command in added.items():
            if owner := owners.get(name):
                text = f"warning: {distribution}: {owner} already has a command {name!r}"
                typer.echo(text, err=True)
                continue
            owners[name], found[name] = distribution, command
    return found
