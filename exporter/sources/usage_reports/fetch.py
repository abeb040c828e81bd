"""A report straight from the provider: page by page, patient where that helps, key unseen.

The key comes from the environment alone. It goes into one header and nowhere else: what a
server answers is never repeated, because a refusal may quote a part of the key.
"""

import email.utils
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from exporter.sources.fetch import BodyTooLarge, Carried, FetchFailed, FetchLimits, fetch
from exporter.sources.usage_reports.report import Gathered
from exporter.sources.usage_reports.table import Grain, Page, ReportProblem, ReportTable, read_page

LIMITS = FetchLimits(connect_timeout_seconds=10, deadline_seconds=60, max_body_bytes=32 << 20)
# Seconds before each new try of a page that found nobody, or somebody busy.
PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
LONGEST_PAUSE_SECONDS = 120.0
MOST_PAGES = 1_000
_LENGTH: dict[Grain, timedelta] = {"1d": timedelta(days=1), "1h": timedelta(hours=1)}
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504, 529)


def key_from(environment: Mapping[str, str], table: ReportTable) -> str:
    """The admin key; ReportProblem says which one is wanted, and never shows what is there."""
    key = environment.get(table.key_variable, "").strip()
    if not key:
        raise ReportProblem(
            f"set {table.key_variable} to {table.key_advice}. Without one, save the answer of "
            f"{table.url} as a file and read that"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ReportProblem(f"{table.key_variable}: has characters that no key has")
    return key


def fetch_report(
    table: ReportTable,
    since: datetime,
    until: datetime | None = None,
    *,
    grain: Grain = "1d",
    environment: Mapping[str, str] | None = None,
    limits: FetchLimits = LIMITS,
    pause: Callable[[float], None] = time.sleep,
) -> Gathered:
    """Every page from `since` on, up to now or `until`; both are widened to whole buckets."""
    key = key_from(os.environ if environment is None else environment, table)
    end = _whole(until + _LENGTH[grain] - timedelta(microseconds=1), grain) if until else None
    asked = table.query(_whole(since, grain), end, grain)
    found, seen = Gathered(table), set[str]()
    token: str | None = None
    while found.pages < MOST_PAGES:
        where = f"{table.title}: page {found.pages + 1}"
        query = asked if token is None else [*asked, ("page", token)]
        page = _page(_Asking(table, key, limits, pause, where), urlencode(query))
        found.add(page)
        token = page.next_page
        if not page.more or token is None:
            return found
        if token in seen:
            raise ReportProblem(f"{where}: next_page leads back to an earlier page")
        seen.add(token)
    raise ReportProblem(f"{table.title}: more than {MOST_PAGES:,} pages: ask for less with --since")


class _Asking:
    """One page: how it is asked for, how patiently, and how its failures are told."""

    def __init__(
        self, table: ReportTable, key: str, limits: FetchLimits, pause: Callable[[float], None],
        where: str,
    ) -> None:  # fmt: skip
        self.table, self.where, self._limits, self._pause = table, where, limits, pause
        self._carried = Carried(table.headers(key))

    def body(self, query: str) -> bytes:
        """The answer; tries again where the server is busy or silent."""
        for pause in (*PAUSES_SECONDS, None):
            try:
                url = f"{self.table.url}?{query}"
                return fetch(url, "application/json", self._limits, self._carried).body
            except FetchFailed as error:
                again = error.status is None or error.status in _BUSY
                if pause is None or not again or isinstance(error, BodyTooLarge):
                    raise self._problem(error) from None
                self._pause(_longer(pause, error.retry_after))
        raise AssertionError("the last try returns or raises")

    def _problem(self, error: FetchFailed) -> ReportProblem:
        """What went wrong, without a word of the answer."""
        table, where = self.table, self.where
        if error.status in (401, 403):
            return ReportProblem(
                f"{where}: HTTP {error.status}: the key in {table.key_variable} is refused; it "
                f"must be {table.key_advice}"
            )
        if error.status == 429:
            return ReportProblem(
                f"{where}: HTTP 429: still asked to wait after {len(PAUSES_SECONDS)} new tries; "
                "try later"
            )
        if error.status is not None:
            return ReportProblem(f"{where}: {table.url} answered HTTP {error.status}")
        if isinstance(error, BodyTooLarge):
            return ReportProblem(f"{where}: is larger than {self._limits.max_body_bytes:,} bytes")
        if isinstance(error.__cause__, TimeoutError):
            return ReportProblem(
                f"{where}: no complete answer within {self._limits.deadline_seconds:g} s"
            )
        if isinstance(error.__cause__, ConnectionRefusedError):
            return ReportProblem(f"{where}: {table.url}: connection refused")
        if isinstance(error.__cause__, OSError):
            return ReportProblem(f"{where}: {table.url}: {error}")
        return ReportProblem(f"{where}: {table.url}: the answer is not HTTP, or was cut short")


def _page(asking: _Asking, query: str) -> Page:
    body = asking.body(query)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise ReportProblem(f"{asking.where}: the answer is no JSON") from None
    return read_page(asking.table, document, asking.where)


def _whole(moment: datetime, grain: Grain) -> datetime:
    """The start of the bucket, so that a report never replaces a day by a part of it."""
    utc = moment.astimezone(UTC)
    return utc.replace(hour=0 if grain == "1d" else utc.hour, minute=0, second=0, microsecond=0)


def _longer(pause: float, retry_after: str | None) -> float:
    """A pause no shorter than the server asked for, in seconds or as a time."""
    asked = 0.0
    if retry_after and retry_after.isdecimal():
        asked = float(retry_after[:9])
    elif retry_after:
        with suppress(ValueError, TypeError):
            asked = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
    return min(max(pause, asked), LONGEST_PAUSE_SECONDS)
