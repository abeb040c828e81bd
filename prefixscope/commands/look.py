"""`query` and `now`: answers in the terminal."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import pyarrow as pa
import typer

from exporter import now as now_view
from prefixscope import output
from prefixscope.client import WrongQuestion, connect
from prefixscope.commands import options
from prefixscope.output import Output
from queries import registry


def query(
    name: Annotated[str, typer.Argument(help="The question, like hit_ratio or movers.")],
    by: Annotated[str | None, typer.Option(help="One row for each value of this.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on: 24h, 7d or an ISO time. [default: all time]")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Until then, exclusive.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="Any other parameter, as NAME=VALUE.")
    ] = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
    as_: Annotated[Output, typer.Option("--output", help="How to write it.")] = Output.TABLE,
) -> None:
    """Answer a question. Without a known NAME the error lists them all.

    Example: prefixscope query hit_ratio --by tenant --since 24h
    """
    params: dict[str, str] = dict(_pair(text) for text in param or [])
    given = {"by": by, "since": since, "until": until}
    params.update({key: value for key, value in given.items() if value is not None})
    if as_ is Output.ARROW and sys.stdout.isatty():
        raise typer.BadParameter("arrow is for programs: send it to a file or a pipe")
    with connect(options.place(url, store, token)) as answers:
        options.messages().print(f"Asking {answers.where}", style="dim")
        try:
            table = answers.ask(name, params)
        except WrongQuestion as error:
            raise typer.BadParameter(str(error)) from error
    if as_ is Output.TABLE:
        _print(name, table, params.get("by"))
    else:
        output.write(as_, table)


def _pair(text: str) -> tuple[str, str]:
    """`name=value`; the value may hold anything."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"--param {text!r} is not NAME=VALUE")
    return name, value


def _print(name: str, table: pa.Table, by: str | None) -> None:
    left_out = output.print_table(output.terminal(), name, table, by)
    if left_out:
        options.messages().print(f"{left_out} more columns with --output json", style="dim")


def now(
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
) -> None:
    """Show the on-call page: verdict, headline ratio with coverage, replicas.

    Example: prefixscope now
    """
    with connect(options.place(url, store, token)) as answers:
        options.messages().print(f"Asking {answers.where}", style="dim")
        view = now_view.summarise(
            lambda name, params: registry.rows(answers.ask(name, params)), datetime.now(UTC)
        )
    console = output.terminal()
    if view.demo:
        console.print("Synthetic demo data.", style="yellow")
    console.print(view.verdict, style="bold", markup=False)
    console.print(f"{view.since:%Y-%m-%d %H:%M} to {view.until:%H:%M} UTC", style="dim")
    facts = [{"name": name, "value": value} for name, value in now_view.headline_facts(view)]
    console.print(output.rows_table([("", "name", str), ("", "value", str)], facts))
    for title, columns, rows in (
        ("Replicas", now_view.REPLICA_COLUMNS, view.replicas),
        ("Time to first token", now_view.TTFT_COLUMNS, view.ttft),
    ):
        if rows:
            console.print(f"\n{title}", style="bold")
            output.print_rows(console, columns, rows)
