"""`formats` and `engines`: what is understood, and from which versions on."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.mapping import Engine, Row
from exporter.sources.engines.summary import reports
from exporter.sources.formats import FORMATS
from prefixscope.commands import options
from prefixscope.consoles import terminal
from prefixscope.tables import Column, print_rows, rows_table


class Listing(StrEnum):
    """How a list of what is understood is written."""

    TABLE = "table"
    JSON = "json"


# How a format counts the prompt, in words.
_COUNTS = {
    "inclusive": "cached included",
    "exclusive": "cached left out",
    "assumed": "told row by row",
}


def formats(
    as_: Annotated[Listing, options.OUTPUT] = Listing.TABLE,
) -> None:
    """List the log formats that are understood, and how each counts the prompt.

    A row of `told row by row` may prove either; what was decided is its `prompt_basis`.

    Example: prefixscope formats
    """
    rows = [
        {
            "name": known.name,
            "title": known.title,
            "versions": known.versions,
            "basis": known.basis,
            "input": "whole document" if known.documents else "lines",
        }
        for known in FORMATS
    ]
    if as_ is Listing.JSON:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    columns: list[Column] = [
        ("format", "name", str),
        ("what it is", "title", str),
        ("prompt count", "basis", lambda basis: _COUNTS[str(basis)]),
        ("input", "input", str),
        ("versions", "versions", str),
    ]
    print_rows(terminal(), columns, rows)


def engines(
    name: Annotated[
        str | None, typer.Argument(help="Only this program, with every metric that is read.")
    ] = None,
    as_: Annotated[Listing, options.OUTPUT] = Listing.TABLE,
) -> None:
    """List the programs whose metric pages are understood, and what can be seen of each.

    Example: prefixscope engines vllm
    """
    if name is not None and name not in ENGINES:
        raise typer.BadParameter(f"unknown program {name!r}; known: {', '.join(ENGINES)}")
    rows = [_program(known) for known in ENGINES] if name is None else _metrics(load_engine(name))
    if as_ is Listing.JSON:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    console = terminal()
    headings = _PROGRAM_COLUMNS if name is None else {key: key for key in rows[0]}
    columns = [(heading, key, _joined) for key, heading in headings.items()]
    console.print(rows_table(columns, rows))
    if name is not None:
        for text in _remarks(load_engine(name)):
            console.print(Text(text))


# What a row says -> the heading above it.
_PROGRAM_COLUMNS = {
    "engine": "engine",
    "title": "what it is",
    "observer": "counts as",
    "versions": "versions",
    "recorded": "also run",
    "hit_ratio": "hit ratio",
    "provenance": "how it is counted",
    "tells": "also tells",
}


def _joined(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "no, read from source" if value is None else str(value)


def _program(name: str) -> dict[str, object]:
    engine = load_engine(name)
    seen = reports(engine)
    return {
        "engine": name,
        "title": engine.title,
        "observer": engine.observer,
        "versions": engine.versions,
        "recorded": engine.recorded or None,
        "hit_ratio": seen.observable,
        "provenance": seen.hit_ratio,
        "tells": list(seen.tells),
    }


def _metrics(engine: Engine) -> list[dict[str, object]]:
    return [
        {
            "measure": row.measure,
            "unit": row.unit,
            "kind": row.kind,
            "exposed": " + ".join(row.exposed),
            "versions": _versions(row),
            "provenance": row.provenance or "",
            "meaning": row.meaning,
        }
        for row in engine.rows
    ]


def _versions(row: Row) -> str:
    if row.since and row.until:
        return f"{row.since} to {row.until}"
    if row.since:
        return f"from {row.since}"
    return f"until {row.until}" if row.until else "all seen"


def _remarks(engine: Engine) -> list[str]:
    """What the table of a program leaves out, and why."""
    left_out = [f"  {prefix}: {reason}" for prefix, reason in engine.skipped.items()]
    notice = [f"\n{engine.notice}"] if engine.notice else []
    return [*notice, "\nNot read:", *left_out]
