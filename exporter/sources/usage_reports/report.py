"""A whole report: its pages put together, read from a saved file or given one by one."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from exporter.sources.usage_reports.anthropic import ANTHROPIC
from exporter.sources.usage_reports.openai import OPENAI
from exporter.sources.usage_reports.rows import UsageRow
from exporter.sources.usage_reports.table import Page, ReportProblem, ReportTable, read_page

TABLES: dict[str, ReportTable] = {table.provider: table for table in (OPENAI, ANTHROPIC)}
_SPACE = re.compile(r"\s*")
_CODE = re.compile(r"[a-z0-9_.-]{1,60}")


class UsageReport(BaseModel):
    """What one reporter said, as it goes to the store or over HTTP to the exporter that has it.

    `read_at` is when the report was made: buckets that end later were still open.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reporter: str = Field(min_length=1, max_length=100)
    account: str = Field(
        "", max_length=100, description="which organization, where there are several"
    )
    read_at: AwareDatetime
    rows: tuple[UsageRow, ...]


@dataclass
class Gathered:
    """Pages of one report, bucket by bucket. A bucket that comes again replaces itself."""

    table: ReportTable
    buckets: dict[tuple[datetime, int], tuple[UsageRow, ...]] = field(default_factory=dict)
    pages: int = 0
    repeated: int = 0
    odd: list[str] = field(default_factory=list)
    unfinished: bool = False

    def add(self, page: Page) -> None:
        """Take a page in."""
        self.pages += 1
        self.repeated += len(self.buckets.keys() & page.buckets.keys())
        self.buckets.update(page.buckets)
        self.odd += page.odd
        self.unfinished = page.more

    def report(self, read_at: datetime, account: str = "") -> UsageReport:
        """All rows, oldest bucket first."""
        rows = tuple(row for key in sorted(self.buckets) for row in self.buckets[key])
        return UsageReport(
            reporter=self.table.provider, account=account, read_at=read_at, rows=rows
        )


def read_saved(text: bytes, name: str) -> list[Gathered]:
    """The report in a saved file, one for each provider in it.

    The file holds one answer of the API, a list of answers, or answers one after another (a line
    each, or as `curl` wrote them). Raises ReportProblem naming file, page, bucket and field.
    """
    found: dict[str, Gathered] = {}
    for number, document in enumerate(_documents(text, name), 1):
        where = f"{name}: page {number}"
        table = _table_of(document, where)
        found.setdefault(table.provider, Gathered(table)).add(read_page(table, document, where))
    if not found:
        raise ReportProblem(f"{name}: is empty: save the answer of a usage API")
    return list(found.values())


def _documents(text: bytes, name: str) -> Iterator[object]:
    for value in _values(text, name):
        yield from value if isinstance(value, list) else [value]


def _values(text: bytes, name: str) -> Iterator[Any]:
    """JSON values one after another, with nothing but space between them."""
    try:
        whole = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ReportProblem(f"{name}: is no JSON: it is not UTF-8 text") from None
    decoder, position = json.JSONDecoder(), _after_space(whole, 0)
    while position < len(whole):
        try:
            value, end = decoder.raw_decode(whole, position)
        except (ValueError, RecursionError):
            line = whole.count("\n", 0, position) + 1
            raise ReportProblem(f"{name}: line {line}: no JSON value can be read there") from None
        yield value
        position = _after_space(whole, end)


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _table_of(document: object, where: str) -> ReportTable:
    """Whose answer this is, by the names its buckets have."""
    if isinstance(document, dict):
        _refuse_error(document, where)
        data = document.get("data")
        first = data[0] if isinstance(data, list) and data else None
        if isinstance(first, dict):
            for table in TABLES.values():
                if table.start in first:
                    return table
        if data == []:
            return OPENAI if document.get("object") == "page" else ANTHROPIC
    starts = " or ".join(f"{table.start} ({table.title})" for table in TABLES.values())
    raise ReportProblem(f"{where}: is no usage report: its data has no buckets with {starts}")


def _refuse_error(document: dict[str, Any], where: str) -> None:
    """A saved refusal. Its message is not repeated: it may quote a part of the key."""
    error = document.get("error")
    if not isinstance(error, dict):
        return
    named = next((c for c in (error.get("code"), error.get("type")) if _is_code(c)), "an error")
    raise ReportProblem(
        f"{where}: is a refusal of the API ({named}), not a report: ask again with an admin key"
    )


def _is_code(value: object) -> bool:
    return isinstance(value, str) and _CODE.fullmatch(value) is not None


def open_buckets(rows: Iterable[UsageRow], read_at: datetime) -> int:
    """How many buckets had not ended when the report was made."""
    ends = {(row.day.timestamp(), row.bucket_seconds) for row in rows}
    return sum(start + seconds > read_at.timestamp() for start, seconds in ends)
