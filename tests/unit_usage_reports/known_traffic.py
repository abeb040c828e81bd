"""Calls whose numbers are known, our rows of them and a provider's report of them.

Rows and reports are both made of one list of calls by plain addition, each with the fault of its
test; what the question says is compared with those sums.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from exporter.sources.usage_reports.rows import UsageRow
from exporter.store.provider_usage import replace_usage
from exporter.store.store import Store
from tests.log_path import Answer, Row, ask

DAY = datetime(2026, 3, 2, tzinfo=UTC)
LATER = DAY + timedelta(days=30)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True)
class Call:
    """One call as it really was."""

    ts: datetime
    number: int
    prompt: int
    cached: int
    written: int
    model: str = "gpt-4o-2024-08-06"

    @property
    def hour(self) -> int:
        return self.ts.hour


def calls(days: int = 1, every: timedelta = 5 * MINUTE, model: str | None = None) -> list[Call]:
    """Traffic that grows over each day and from day to day, so that no two spans look alike."""
    per_day = int(timedelta(days=1) / every)
    return [
        Call(
            ts=DAY + number * every,
            number=number,
            prompt=1_000 + 40 * (number % per_day) + 300 * (number // per_day),
            cached=256 + 16 * (number % 11),
            written=64 if number % 4 == 0 else 0,
            model=model or Call.model,
        )
        for number in range(days * per_day)
    ]


def our(call: Call, **other: object) -> Row:
    """The row we have of a call."""
    return {
        "ts": call.ts.isoformat(), "request_id": f"r{call.number}", "provider": "openai",
        "model": call.model, "prompt_tokens": call.prompt, "cached_tokens": call.cached,
        "cache_write_tokens": call.written, "output_tokens": 10, **other,
    }  # fmt: skip


def total(given: Iterable[Call], part: str = "prompt") -> int:
    return sum(getattr(call, part) for call in given)


def report(
    given: Sequence[Call], *, hours: int = 24, begins: timedelta = timedelta(0),
    name: str | None = None,
) -> list[UsageRow]:  # fmt: skip
    """What the provider says of these calls, in buckets of `hours`."""
    length = timedelta(hours=hours)
    buckets: dict[tuple[datetime, str], list[Call]] = {}
    for call in given:
        start = DAY + begins + (call.ts - DAY - begins) // length * length
        buckets.setdefault((start, call.model), []).append(call)
    return [
        UsageRow(
            day=start, bucket_seconds=hours * 3_600, provider="openai", model=name or model,
            requests=len(inside), prompt_tokens=total(inside),
            cached_tokens=total(inside, "cached"), cache_write_tokens=total(inside, "written"),
            output_tokens=10 * len(inside),
        ) for (start, model), inside in buckets.items()
    ]  # fmt: skip


def tell(
    store: Store, rows: Sequence[UsageRow], reporter: str = "openai", read_at: datetime = LATER
) -> None:
    replace_usage(store, reporter, rows, read_at=read_at)


def judge(store: Store, **params: object) -> Answer:
    (row,) = ask(store, "reconciliation", **params)
    return row


def reasons(row: Answer) -> list[str]:
    return row["reasons"].split(", ") if row["reasons"] else []


def retried(day: Sequence[Call]) -> list[Call]:
    """Those that were tried again."""
    return [call for call in day if call.number % 10 == 3]
