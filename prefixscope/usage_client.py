"""The side of `backfill --usage` that reads reports, and the one that hands them to the store."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from zstandard import ZstdCompressor

from exporter.endpoints.usage import USAGE_PATH, UsageTaken
from exporter.sources.packed import open_input
from exporter.sources.usage_reports.fetch import fetch_report
from exporter.sources.usage_reports.report import TABLES, Gathered, UsageReport, read_saved
from exporter.sources.usage_reports.table import Grain, ReportProblem
from exporter.store.provider_usage import replace_usage
from prefixscope.client import Exporter, ExporterProblem, OpenStore

STDIN = "-"
MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Asked:
    """What to ask a provider for; a saved report is taken as it is. `account` is whose it is, where
    there are several organizations."""

    since: datetime
    until: datetime | None = None
    grain: Grain = "1d"
    account: str = ""


@dataclass(frozen=True)
class Read:
    """A report and where it came from."""

    where: str
    gathered: Gathered
    report: UsageReport


def read_reports(given: str, asked: Asked) -> Iterator[Read]:
    """The reports behind one `--usage`: a provider's name, else a file or - for standard input."""
    now = datetime.now(UTC)
    table = TABLES.get(given)
    if table is not None:
        found = fetch_report(table, asked.since, asked.until, grain=asked.grain)
        yield Read(table.url, found, found.report(now, asked.account))
        return
    text, written = _file(given)
    for found in read_saved(text, given):
        yield Read(given, found, found.report(min(written or now, now), asked.account))


def hand_over(report: UsageReport, holder: Exporter | OpenStore) -> int:
    """Keep a report in the store, or in that of a running exporter; the number of rows kept."""
    if isinstance(holder, OpenStore):
        return replace_usage(
            holder.store, report.reporter, report.rows, account=report.account,
            read_at=report.read_at,
        )  # fmt: skip
    packed = ZstdCompressor().compress(report.model_dump_json().encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "zstd"}
    answer = holder.send("POST", USAGE_PATH, params={}, headers=headers, data=packed)
    try:
        return UsageTaken.model_validate_json(answer.content).rows
    except ValidationError as error:
        raise ExporterProblem(
            f"{holder.url} does not answer as an exporter of this version does"
        ) from error


def _file(given: str) -> tuple[bytes, datetime | None]:
    """What it holds, unpacked, and when it was written: then the report was made at the latest."""
    try:
        if given == STDIN:
            text, written = open_input(sys.stdin.buffer).read(MOST_BYTES + 1), None
        else:
            with Path(given).open("rb") as file:
                text = open_input(file).read(MOST_BYTES + 1)
                written = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
    except (OSError, EOFError) as error:
        known = ", ".join(TABLES)
        reason = getattr(error, "strerror", None) or error
        raise ReportProblem(
            f"{given}: cannot be read: {reason}; --usage is a saved report, or one of: {known}"
        ) from error
    if len(text) > MOST_BYTES:
        raise ReportProblem(f"{given}: has more than {MOST_BYTES:,} bytes: this is no usage report")
    return text, written
