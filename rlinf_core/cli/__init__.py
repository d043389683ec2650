"""The command line: ``rlinf``. One short file per command, imported when the command is used.

A new command gets a file of its own with a ``main`` that returns the exit code, and a wrapper
here that says its arguments. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import rlinf_core
from rlinf_core.cli import added, config, plugins
from rlinf_core.cli.arguments import Json, Overrides, RunName
from rlinf_core.cli.quick import skip_absent_options
from rlinf_core.errors import RlinfError

INTERRUPTED = 130


class Commands(TyperGroup):
    """The core's commands, and those of plugins, looked for only where one is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *added.commands(frozenset(self.commands))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, the core's own first."""
        own = super().get_command(ctx, cmd_name)
        return own or added.commands(frozenset(self.commands)).get(cmd_name)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(config.app, name="config")
app.add_typer(plugins.app, name="plugins")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"rlinf {rlinf_core.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Print the version."),
    ] = False,
) -> None:
    """Train robot and reasoning policies with reinforcement learning."""


@app.command("train")
def _train(
    run: RunName,
    overrides: Overrides = None,
    output: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it stopped.")] = False,
    json: Json = False,
) -> None:
    """Train a policy."""
    from rlinf_core.cli.train import main

    raise typer.Exit(main(run, output, resume, json, overrides or []))


@app.command("eval")
def _evaluate(
    run: RunName,
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint, or the folder of a run.")],
    overrides: Overrides = None,
    episodes: Annotated[int | None, typer.Option(help="Number of episodes.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for result and video.")] = None,
    json: Json = False,
) -> None:
    """Evaluate a checkpoint."""
    from rlinf_core.cli.evaluate import main

    raise typer.Exit(main(run, checkpoint, episodes, output, json, overrides or []))


@app.command("plan")
def _plan(run: RunName, overrides: Overrides = None, json: Json = False) -> None:
    """Show what a run would do on this machine, and what is wrong with it; start nothing."""
    from rlinf_core.cli.plan import main

    raise typer.Exit(main(run, json, overrides or []))


@app.command("trace")
def _trace(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run.")],
    picture: Annotated[
        Path | None, typer.Option(help="Where to draw; FOLDER/timeline.png.")
    ] = None,
    began: Annotated[float | None, typer.Option("--from", help="Draw from this second.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Draw so many seconds.")] = None,
    json: Json = False,
) -> None:
    """Say where the time of a run went, and draw it."""
    from rlinf_core.cli.trace import main

    raise typer.Exit(main(folder, picture, began, seconds, json))


@app.command("doctor")
def _doctor(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Components or distributions that must be ready."),
    ] = None,
    json: Json = False,
) -> None:
    """Say what this machine has, and which components are ready on it."""
    from rlinf_core.cli.doctor import main

    raise typer.Exit(main(names or [], json))


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrongly asked, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a path must not fail in a terminal without its letters
            stream.reconfigure(errors="backslashreplace")
    skip_absent_options()
    try:
        app()
    except RlinfError as error:
        _show(error)
        sys.exit(error.exit_code)
    except OSError as error:  # a file or folder that cannot be used; standard output, say
        with suppress(OSError):
            print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        interrupted = isinstance(end, KeyboardInterrupt) or end.code == INTERRUPTED
        if interrupted:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one changes nothing
        sys.exit(INTERRUPTED if interrupted else end.code)


def _show(error: RlinfError) -> None:
    """Print an error to standard error, as it is: what users wrote is no markup."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    cause = error.__cause__
    if error.exit_code == 1 and cause is not None and not isinstance(cause, RlinfError):
        # The run failed in somebody's code: where, only the traceback says.
        shown = "".join(traceback.format_exception(cause))
        console.print(shown.rstrip(), markup=False, soft_wrap=True)
    console.print(Text("error: ", style="bold red") + Text(str(error)), soft_wrap=True)
