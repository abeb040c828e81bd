"""The command line. Only our own error type becomes a message; any other keeps its traceback.

A command is imported when it is asked for: `prefixscope curve` need not wait for what `serve`
imports.
"""

import atexit
import gc
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, cast

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from exporter.errors import PrefixscopeError
from prefixscope import __version__
from prefixscope.consoles import messages

# Imports make several hundred thousand objects that stay. To look through them for garbage at every
# 700 new ones takes a tenth of a short command.
_YOUNG_OBJECTS = 20_000
START, LOOK, EXPLAIN, WHAT_IF, OPERATE = "Start", "Look", "Explain", "What if", "Operate"

# Command → panel of --help, and module of `prefixscope.commands` with a function of its name.
COMMANDS = {
    "init": (START, "init"),
    "demo": (START, "run"),
    "serve": (START, "run"),
    "ingest": (START, "load"),
    "backfill": (START, "backfill"),
    "tap": (START, "tap"),
    "query": (LOOK, "look"),
    "now": (LOOK, "look"),
    "alerts": (LOOK, "alerts"),
    "report": (LOOK, "report"),
    "explain": (EXPLAIN, "explain"),
    "attribute": (EXPLAIN, "attribute"),
    "lint": (EXPLAIN, "lint"),
    "export": (WHAT_IF, "export"),
    "curve": (WHAT_IF, "curve"),
    "replay": (WHAT_IF, "replay"),
    "geometry": (WHAT_IF, "plan"),
    "doctor": (OPERATE, "doctor"),
    "names": (OPERATE, "names"),
    "templates": (OPERATE, "templates"),
    "formats": (OPERATE, "operate"),
    "engines": (OPERATE, "operate"),
}


def _command(name: str) -> TyperCommand:
    panel, module = COMMANDS[name]
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    function = getattr(import_module(f"prefixscope.commands.{module}"), name)
    alone.command(name, rich_help_panel=panel)(function)
    command = typer.main.get_command(alone)
    assert isinstance(command, TyperCommand)
    return command


class _OnDemand(MutableMapping[str, TyperCommand]):
    """The commands by name, each made when it is first looked up."""

    def __init__(self) -> None:
        self._made: dict[str, TyperCommand] = {}

    def __getitem__(self, name: str) -> TyperCommand:
        if name not in self._made:
            self._made[name] = _command(name)
        return self._made[name]

    def __setitem__(self, name: str, command: TyperCommand) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - handed on as they are
        super().__init__(**attributes)
        self.commands = cast("MutableMapping[str, Any]", _OnDemand())


app = typer.Typer(
    name="prefixscope",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, which may hold secrets
    help="What share of the prompt tokens came from cache, for whom, and does it hurt when it "
    "drops? Try: prefixscope demo",
)


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
    gc.set_threshold(_YOUNG_OBJECTS)
    # At the end Python looks for unreachable objects among all that libraries made: a quarter of a
    # second where code was compiled. Frozen ones are left out, and go with the process.
    atexit.register(gc.freeze)
    try:
        app()
    except PrefixscopeError as error:
        messages().print(Text.assemble(("error: ", "bold red"), str(error)))
        sys.exit(1)
