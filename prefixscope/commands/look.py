"""`query` and `now`: answers in the terminal."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import typer

from prefixscope import now_terminal, output
from prefixscope.client import WrongQuestion, connect
from prefixscope.commands import options
from prefixscope.consoles import messages, terminal
from prefixscope.output import Output
from prefixscope.tables import Column, print_rows
from queries import registry
from queries.header import Question
from queries.on_call.screen import Looking, look
from queries.times import parse_time
from replay.counted import counted


def query(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The question, like hit_ratio or movers.",
            show_default="list them all",
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(help="One row for each value of this.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="From then on: 24h, 7d or an ISO time.", show_default="all time"),
    ] = None,
    until: options.Until = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", help="Any other parameter, as NAME=VALUE.")
    ] = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
    as_: Annotated[Output, options.OUTPUT] = Output.TABLE,
) -> None:
    """Answer a question; without NAME, list all questions and what each can be asked by.

    Example: prefixscope query hit_ratio --by tenant --since 24h
    """
    if name is None:
        _list_questions()
        return
    if url is None and name not in registry.questions():  # known before there is a store
        raise typer.BadParameter(_unknown(name))
    params: dict[str, str] = dict(_pair(text) for text in param or [])
    given = {"by": by, "since": since, "until": until}
    params.update({key: value for key, value in given.items() if value is not None})
    if as_ is Output.ARROW and sys.stdout.isatty():
        raise typer.BadParameter("arrow is for programs: send it to a file or a pipe")
    with connect(options.place(url, store, token)) as answers:
        messages().print(f"Asking {answers.where}", style="dim")
        try:
            table = answers.ask(name, params)
        except WrongQuestion as error:
            raise typer.BadParameter(_why(name, answers.where, str(error))) from error
    if as_ is Output.TABLE:
        _print(name, table, params.get("by"))
    else:
        output.write(as_, table)


def _list_questions() -> None:
    rows = [
        {"name": asked.name, "question": asked.question, "by": ", ".join(_dimensions(asked))}
        for asked in registry.questions().values()
    ]
    columns: list[Column] = [("question", "name", str), ("answers", "question", str),
                             ("--by", "by", str)]  # fmt: skip
    print_rows(terminal(), columns, rows)


def _dimensions(asked: Question) -> Sequence[str]:
    by = asked.params.get("by")
    return () if by is None else by.one_of or ()


def _unknown(name: str) -> str:
    """With those it may have been meant for, as the list of all is long."""
    near = get_close_matches(name, registry.questions(), n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ";"
    return f"unknown question {name!r}{meant} prefixscope query lists them all"


def _why(name: str, where: str, message: str) -> str:
    """An exporter that began before a question was added lists all others: not what helps."""
    if name in registry.questions() and message.startswith("unknown question"):
        return f"{where} does not know {name} yet, but this version does: start it again"
    return message


def _pair(text: str) -> tuple[str, str]:
    """`name=value`; the value may hold anything."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"--param {text!r} is not NAME=VALUE")
    return name, value


def _print(name: str, table: pa.Table, by: str | None) -> None:
    left_out = output.print_table(terminal(), name, table, by)
    if left_out:
        messages().print(f"{counted(left_out, 'more column')} with --output json", style="dim")


def now(
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    replica: Annotated[str | None, typer.Option(help="Only this replica.")] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    template: Annotated[str | None, typer.Option(help="Only this template.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    at: Annotated[
        str | None,
        typer.Option(help="At this moment: 2h (ago) or an ISO time.", show_default="now"),
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="Time zone.", show_default="the setting drops.zone")
    ] = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
) -> None:
    """Show the on-call page: did the ratio drop, since when, why, does it hurt.

    Example: prefixscope now --model llama-70b --at 2026-11-30T03:00Z
    """
    filters = {"model": model, "replica": replica, "route": route, "template": template,
               "tenant": tenant}  # fmt: skip
    clock = datetime.now(UTC)
    looking = Looking(
        _at(at, clock), _zone(zone), {name: v for name, v in filters.items() if v is not None}
    )
    with connect(options.place(url, store, token)) as answers:
        messages().print(f"Asking {answers.where}", style="dim")
        screen = look(lambda name, params: registry.rows(answers.ask(name, params)), looking, clock)
    now_terminal.show(terminal(), screen)


def _at(text: str | None, clock: datetime) -> datetime | None:
    """A moment that has been."""
    if text is None:
        return None
    try:
        at = parse_time(text, clock)
    except ValueError as error:
        raise typer.BadParameter(f"--at {error}") from error
    if at > clock:
        raise typer.BadParameter(f"--at {text} has not come yet")
    return at


def _zone(text: str | None) -> ZoneInfo | None:
    try:
        return None if text is None else ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise typer.BadParameter(
            f"--zone {text!r} is no time zone; write UTC or Europe/Berlin"
        ) from None
