"""What a back-fill found and did, in words."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from exporter.sources.prometheus.backfill import BackfillSummary, TargetHistory

# History that begins this much later than asked is worth a word.
LATE_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0
# A metric that begins this much after the target's first page came later than the target.
LATER_METRIC_SECONDS = 600.0
DEFAULT_RETENTION = "15 days unless it was started with --storage.tsdb.retention.time"


def report(summary: BackfillSummary) -> Iterator[Text | Table]:
    """How much history there was, then each target."""
    yield from map(Text, _headline(summary))
    for target in summary.targets:
        yield Text(target.target, style="bold")
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, value in _facts(target):
            table.add_row(f"  {name}", Text(value))
        yield table


def _headline(summary: BackfillSummary) -> Iterator[str]:
    asked = f"{_time(summary.since)} to {_time(summary.until)}"
    if not summary.targets:
        yield (
            f"{summary.where} has no metric of a known engine from {asked}: see --job, and "
            "which names it has in its own expression browser"
        )
        return
    first = summary.first_unix
    if first is None:
        yield f"nothing new from {asked}"
    elif first - summary.since > LATE_SECONDS:
        days = (summary.until - first) / DAY_SECONDS
        yield f"asked for {asked}; history begins {_time(first)}, {days:.1f} days back"
        kept = summary.retention
        yield f"this Prometheus keeps {kept}" if kept else f"a Prometheus keeps {DEFAULT_RETENTION}"
    else:
        yield f"history of {asked}"


def _facts(told: TargetHistory) -> Iterator[tuple[str, str]]:
    yield "in Prometheus", told.name
    for also in told.also:
        yield "also there as", f"{also} (the same engine: not read, not added)"
    yield "replicas", ", ".join(sorted(told.replicas)) or told.replica
    for kind, since, until in told.covered:
        who = "scraped by us" if kind == "own" else "filled before"
        end = _time(until) if until is not None else "now on"
        yield who, f"{_time(since)} to {end}, left as it is"
    if told.first_unix is not None and told.last_unix is not None:
        yield "history read", f"{_time(told.first_unix)} to {_time(told.last_unix)}"
    else:
        yield "history read", "nothing new"
    counts = {
        "pages taken": told.pages, "samples": told.samples, "restarts": told.resets,
        "gaps": told.gaps, "failures": told.down, "unreadable": told.unreadable,
        "of no known engine": told.foreign,
    }  # fmt: skip
    yield from ((name, f"{count:,}") for name, count in counts.items() if count)
    for family, first in sorted(told.families.items()):
        if first - (told.first_unix or first) > LATER_METRIC_SECONDS:
            yield "only since", f"{_time(first)}: {family}"
    if told.families:
        yield "metrics found", f"{len(told.families)}"
    yield from (("missing", metric) for metric in told.missing)
    yield from (("note", message) for message in told.messages)


def _time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
