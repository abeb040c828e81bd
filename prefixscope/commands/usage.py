"""`backfill --usage`: what providers say was used, from their API or from saved reports."""

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dashboard.figures.numbers import percent
from exporter.errors import PrefixscopeError
from exporter.sources.secrets_in_paths import refuse_password
from exporter.sources.usage_reports.report import open_buckets
from prefixscope.client import Exporter, OpenStore, connect
from prefixscope.commands.load import refuse_demo
from prefixscope.consoles import messages
from prefixscope.place import Place
from prefixscope.usage_client import Asked, Read, hand_over, read_reports

_MOST_NOTES = 3


def take_usage(given: list[str], asked: Asked, place: Place) -> bool:
    """Take every report in and say what it holds; one that fails does not stop the others."""
    errors, console = messages(), Console(highlight=False, soft_wrap=True)
    taken = failed = 0
    with connect(place, create=True) as holder:
        if place.url is None and place.store is None:
            refuse_demo(holder)
        for one in given:
            try:
                refuse_password(one)
                errors.print(f"Reading {one} into {holder.where}", style="dim", markup=False)
                taken += _take(one, asked, holder, console)
            except PrefixscopeError as error:
                failed += 1
                errors.print(Text.assemble(("error: ", "bold red"), str(error)))
    if taken:
        console.print("Compare them with your own rows: prefixscope query reconciliation")
    return failed == 0


def _take(given: str, asked: Asked, holder: Exporter | OpenStore, console: Console) -> int:
    count = 0
    for read in read_reports(given, asked):
        kept = hand_over(read.report, holder)
        console.print(Text(f"{read.gathered.table.title}: {read.where}", style="bold"))
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, value in _facts(read, kept):
            table.add_row(f"  {name}", Text(value))
        console.print(table)
        count += 1
    return count


def _facts(read: Read, kept: int) -> Iterator[tuple[str, str]]:
    rows = read.report.rows
    if not rows:
        yield "found", "no bucket: nothing was taken in"
        return
    first, last = min(row.day for row in rows), max(row.day for row in rows)
    hours = sorted({row.bucket_seconds for row in rows})
    yield (
        "buckets",
        (
            f"{len(read.gathered.buckets):,} of {', '.join(f'{s / 3600:g} h' for s in hours)}, "
            f"{_time(first)} to {_time(last)} UTC"
        ),
    )
    yield "rows kept", f"{kept:,} (what was kept of these buckets is replaced)"
    yield "models", ", ".join(sorted({row.model for row in rows if row.model})) or "none named"
    told = [row for row in rows if row.cached_tokens is not None]
    reported, cached = sum(r.prompt_tokens for r in told), sum(r.cached_tokens or 0 for r in told)
    written = [r.cache_write_tokens for r in rows if r.cache_write_tokens is not None]
    yield "prompt tokens", f"{sum(row.prompt_tokens for row in rows):,}"
    yield "cached tokens", f"{cached:,}" if told else "not reported"
    yield "written tokens", f"{sum(written):,}" if written else "not reported"
    # More cached than prompt tokens is no ratio; a note says so.
    ratio = cached / reported if reported and cached <= reported else None
    yield "token hit ratio", f"{percent(ratio)} (the provider's figure)"
    yield from (("note", note) for note in _notes(read))


def _notes(read: Read) -> Iterator[str]:
    gathered, report = read.gathered, read.report
    still_open = open_buckets(report.rows, report.read_at)
    if still_open:
        yield f"{still_open} of the buckets had not ended at {_time(report.read_at)} UTC"
    if gathered.unfinished:
        yield "the last page says that there are more: save them too"
    if gathered.repeated:
        yield f"{gathered.repeated:,} buckets came more than once: the last of each counts"
    yield from gathered.odd[:_MOST_NOTES]
    if len(gathered.odd) > _MOST_NOTES:
        yield f"and {len(gathered.odd) - _MOST_NOTES:,} more like these"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
