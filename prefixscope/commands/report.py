"""`report`: the weekly cache report as a file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dashboard.report import FORMATS, Week, build, default_week, render
from dashboard.report.weeks import zone_of
from exporter.errors import PrefixscopeError
from prefixscope.client import connect
from prefixscope.commands import options
from prefixscope.consoles import messages


def report(
    out: Annotated[
        Path,
        typer.Option(help=f"File to write; its ending says how: {', '.join(FORMATS)}."),
    ],
    week: Annotated[
        str | None,
        typer.Option(
            help="ISO week, like 2026-W48.",
            show_default="the latest full week with data, else the one it began in",
        ),
    ] = None,
    zone: Annotated[
        str, typer.Option(help="Whose clocks begin the week and its days, like Europe/Berlin.")
    ] = "UTC",
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
) -> None:
    """Write the weekly cache report: one file that needs nothing else and prints well.

    The same store and week give the same bytes.

    Example: prefixscope report --week 2026-W48 --zone Europe/Berlin --out report.html
    """
    form = out.suffix.lstrip(".").lower()
    if form not in FORMATS:
        raise typer.BadParameter(f"--out {out.name!r} must end with .{', .'.join(FORMATS)}")
    if not out.parent.is_dir():
        raise PrefixscopeError(f"there is no folder {out.parent}: make it, or name another")
    asked = _asked(week, zone)
    with connect(options.place(url, store, token)) as answers:
        messages().print(f"Asking {answers.where}", style="dim")
        made = build(answers, asked or default_week(answers, datetime.now(UTC), zone))
    _write(out, render(made, form))
    messages().print(f"{made.week.name} ({made.week.zone}) written to {out}")


def _asked(week: str | None, zone: str) -> Week | None:
    """The week that was asked for; None where none was, but the zone is a zone."""
    try:
        zone_of(zone)
        return Week.parse(week, zone) if week else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _write(out: Path, content: bytes) -> None:
    """Whole or not at all: a report that is being read is replaced at once."""
    beside = out.with_name(f".{out.name}.part")
    try:
        beside.write_bytes(content)
        beside.replace(out)
    except OSError as error:
        raise PrefixscopeError(
            f"cannot write {out}: {error.strerror}; name another file with --out"
        ) from error
