"""The command line: parses, calls, prints. A file per group of commands."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer
from rich.text import Text

from coldstream.cli import bench, data, lists, models, results, running, serving
from coldstream.cli.output import complaints, say

app = typer.Typer(
    help="Deep networks that learn from one example at a time, from nothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Data sets: which there are, where they are looked for, how to get them.")
for command in (running.run, results.status, results.report, results.compare):
    app.command()(command)
app.command(name="list")(lists.list_)
app.command()(lists.learners)
app.command()(models.predict)
app.command()(models.export)
app.command()(bench.bench)
app.command()(serving.teach)
app.command()(serving.serve)
app.add_typer(serving.journal_app, name="journal")
app.add_typer(data_app, name="data")
data_app.command(name="list")(data.data_list)
data_app.command(name="get")(data.data_get)


def _version(wanted: bool) -> None:
    if wanted:
        import coldstream

        say(f"coldstream {coldstream.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Deep networks that learn from one example at a time, from nothing."""


def main() -> None:
    """Run the command line; an error that the user can fix is printed in one line, without a stack trace."""
    for stream in (sys.stdout, sys.stderr):  # names may be of characters, or bytes, that the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except KeyboardInterrupt:
        complaints.print("stopped at once; the same command goes on from the last checkpoint")
        sys.exit(130)
    except (ValueError, OSError, FloatingPointError) as error:
        complaints.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(2)
