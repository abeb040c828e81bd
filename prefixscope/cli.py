"""The command line. Only our own error type becomes a message; any other keeps its traceback."""

import sys

import typer
from rich.text import Text

from exporter.errors import PrefixscopeError
from prefixscope import __version__
from prefixscope.commands import doctor, init, load, look, names, operate, plan, run
from prefixscope.commands.alerts import alerts
from prefixscope.commands.attribute import attribute
from prefixscope.commands.backfill import backfill
from prefixscope.commands.explain import explain
from prefixscope.commands.options import messages
from prefixscope.commands.report import report
from prefixscope.commands.tap import tap

START, LOOK, EXPLAIN, WHAT_IF, OPERATE = "Start", "Look", "Explain", "What if", "Operate"

app = typer.Typer(
    name="prefixscope",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, which may hold secrets
    help="What share of the prompt tokens came from cache, for whom, and does it hurt when it "
    "drops? Try: prefixscope demo",
)
app.command(rich_help_panel=START)(init.init)
app.command(rich_help_panel=START)(run.demo)
app.command(rich_help_panel=START)(run.serve)
app.command(rich_help_panel=START)(load.ingest)
app.command(rich_help_panel=START)(backfill)
app.command(rich_help_panel=START)(tap)
app.command(rich_help_panel=LOOK)(look.query)
app.command(rich_help_panel=LOOK)(look.now)
app.command(rich_help_panel=LOOK)(alerts)
app.command(rich_help_panel=LOOK)(report)
app.command(rich_help_panel=EXPLAIN)(explain)
app.command(rich_help_panel=EXPLAIN)(attribute)
app.command(rich_help_panel=WHAT_IF)(plan.geometry)
app.command(rich_help_panel=OPERATE)(doctor.doctor)
app.command(rich_help_panel=OPERATE)(names.names)
app.command(rich_help_panel=OPERATE)(operate.formats)
app.command(rich_help_panel=OPERATE)(operate.engines)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"prefixscope {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    pass


def main() -> None:
    """Entry point. Exit status: 0 ok, 1 failed, 2 wrong usage."""
    try:
        app()
    except PrefixscopeError as error:
        messages().print(Text.assemble(("error: ", "bold red"), str(error)))
        sys.exit(1)
