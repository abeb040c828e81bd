"""Counters for Prometheus: live rows only, bounded in series, never falling.

They live in memory so that a scrape never queries the store, rise in the same step as the
commit of a batch, and are restored from `live_counters` at start.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from exporter.records import TIERS

OTHER = "other"
Series = tuple[str, str, str, str]  # model, route, template, tenant


@dataclass
class CounterRow:
    """Live totals of one series; requests by outcome, tokens by tier."""

    miss_requests: int = 0
    partial_requests: int = 0
    hit_requests: int = 0
    unknown_requests: int = 0
    prompt_tokens: int = 0
    reported_prompt_tokens: int = 0
    ineligible_prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_device: int = 0
    cached_host: int = 0
    cached_disk: int = 0
    cached_remote: int = 0

    def add(self, values: Sequence[int]) -> None:
        for name, value in zip(COUNTER_COLUMNS, values, strict=True):
            setattr(self, name, getattr(self, name) + value)


COUNTER_COLUMNS = tuple(entry.name for entry in fields(CounterRow))

# Bounds of vLLM's own TTFT histogram below 80 s, so that both can be read side by side.
TTFT_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip


@dataclass
class TtftRow:
    """Requests per bucket (not cumulative; the last one is above every bound) and their sum."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(TTFT_BOUNDS) + 1))
    seconds: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """What /metrics shows: copies, so that a scrape never sees half a batch."""

    requests: dict[Series, CounterRow]
    ttft: dict[tuple[str, str, str], TtftRow]
    ingested: dict[tuple[str, str], int]
    rejected: dict[tuple[str, str], int]
    late_tokens: int
    folded: dict[str, int]
    last_arrived: datetime | None
    missed: dict[Series, dict[str, int]] = field(default_factory=dict)


class LabelBounds:
    """Which values each label may take; every other value becomes 'other'.

    Values are admitted as they come until a label is full, and chosen anew at most daily by
    the store. A demoted value keeps its series until restart: it freezes, it does not fall.
    """

    def __init__(self, limits: dict[str, int], admitted: Iterable[tuple[str, str]]) -> None:
        self.limits = limits
        self.folded: dict[str, set[str]] = {label: set() for label in limits}
        self.reset(admitted)

    def reset(self, admitted: Iterable[tuple[str, str]]) -> None:
        """Back to what is stored: values that a failed transaction let in are out again."""
        self.values: dict[str, set[str]] = {label: set() for label in self.limits}
        for label, value in admitted:
            self.values[label].add(value)

    def admit(self, label: str, values: Iterable[str]) -> list[str]:
        """Takes in new values while there is room; returns those taken in."""
        known, taken = self.values[label], []
        for value in sorted(set(values) - known - {""}):
            if len(known) < self.limits[label]:
                known.add(value)
                taken.append(value)
            elif len(self.folded[label]) < _FOLDED_REMEMBERED:
                self.folded[label].add(value)
        return taken

    def choose(self, label: str, values: Iterable[str]) -> None:
        """Replaces the values of a label. Who is demoted counts in 'other' from now on."""
        self.values[label] = set(values)
        self.folded[label] -= self.values[label]

    def fold(self, label: str, value: str) -> str:
        return value if value == "" or value in self.values[label] else OTHER


# Enough to tell how many values were folded without remembering millions of hostile ones.
_FOLDED_REMEMBERED = 100_000


class LiveCounters:
    """The counters of one store. `apply` follows a commit; `snapshot` may be called any time."""

    def __init__(self, bounds: LabelBounds, max_series: int) -> None:
        self.bounds = bounds
        self._max_series = max_series
        self._lock = threading.Lock()
        self._series: set[Series] = set()
        self._requests: dict[Series, CounterRow] = {}
        self._ttft: dict[tuple[str, str, str], TtftRow] = {}
        self._missed: dict[Series, Counter[str]] = {}
        self._ingested: Counter[tuple[str, str]] = Counter()
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._late_tokens = 0
        self._last_arrived: datetime | None = None

    def series(self, model: str, route: str, template: str, tenant: str) -> Series:
        """The series a combination counts in: folded values, and all 'other' past the cap."""
        bounds = self.bounds
        series = (
            bounds.fold("model", model),
            bounds.fold("route", route),
            bounds.fold("template", template),
            bounds.fold("tenant", tenant),
        )
        if series not in self._series:
            if len(self._series) >= self._max_series:
                return (OTHER, OTHER, OTHER, OTHER)
            self._series.add(series)
        return series

    def apply(self, delta: "CounterDelta") -> None:
        with self._lock:
            for series, values in delta.requests.items():
                self._requests.setdefault(series, CounterRow()).add(values)
            for key, row in delta.ttft.items():
                total = self._ttft.setdefault(key, TtftRow())
                total.buckets = [a + b for a, b in zip(total.buckets, row.buckets, strict=True)]
                total.seconds += row.seconds
            for series, tokens in delta.missed.items():
                self._missed.setdefault(series, Counter()).update(tokens)
            self._ingested.update(delta.ingested)
            self._rejected.update(delta.rejected)
            self._late_tokens += delta.late_tokens
            self._last_arrived = delta.last_arrived or self._last_arrived

    def snapshot(self) -> Snapshot:
        with self._lock:
            return Snapshot(
                requests={series: replace(row) for series, row in self._requests.items()},
                ttft={key: replace(row) for key, row in self._ttft.items()},
                ingested=dict(self._ingested),
                rejected=dict(self._rejected),
                late_tokens=self._late_tokens,
                folded={label: len(values) for label, values in self.bounds.folded.items()},
                last_arrived=self._last_arrived,
                missed={series: dict(tokens) for series, tokens in self._missed.items()},
            )


@dataclass
class CounterDelta:
    """What one batch adds. Built inside the transaction, applied after its commit."""

    requests: dict[Series, tuple[int, ...]] = field(default_factory=dict)
    ttft: dict[tuple[str, str, str], TtftRow] = field(default_factory=dict)
    ingested: dict[tuple[str, str], int] = field(default_factory=dict)
    rejected: dict[tuple[str, str], int] = field(default_factory=dict)
    late_tokens: int = 0
    last_arrived: datetime | None = None
    # Missed tokens by cause, of requests whose minute was sealed.
    missed: dict[Series, Counter[str]] = field(default_factory=dict)

    def add_missed(self, series: Series, tokens: Mapping[str, int]) -> None:
        """Causes of 0 tokens make no series."""
        self.missed.setdefault(series, Counter()).update(
            {cause: count for cause, count in tokens.items() if count}
        )

    def add_requests(self, series: Series, values: Sequence[int]) -> None:
        known = self.requests.get(series)
        added = tuple(values) if known is None else tuple(map(sum, zip(known, values, strict=True)))
        self.requests[series] = added

    def merge(self, other: "CounterDelta") -> None:
        """Adds the requests and TTFT of another delta to this one."""
        for series, values in other.requests.items():
            self.add_requests(series, values)
        for key, row in other.ttft.items():
            for bucket, requests in enumerate(row.buckets):
                self.add_ttft(*key, bucket, requests, 0.0)
            self.ttft[key].seconds += row.seconds

    def subtract(self, old: "CounterDelta") -> None:
        """Leaves only what corrected rows add to their earlier selves; never a fall."""
        for series, values in old.requests.items():
            new = self.requests.get(series, (0,) * len(values))
            self.requests[series] = tuple(max(0, a - b) for a, b in zip(new, values, strict=True))
        for key, earlier in old.ttft.items():
            row = self.ttft.get(key)
            if row is not None:
                pairs = zip(row.buckets, earlier.buckets, strict=True)
                row.buckets = [max(0, a - b) for a, b in pairs]
                row.seconds = max(0.0, row.seconds - earlier.seconds)
        self.ttft = {key: row for key, row in self.ttft.items() if any(row.buckets)}

    def fit_tiers(self) -> None:
        """No more tokens by tier than were cached, so that those of no tier are never fewer.

        A correction may name the tier of tokens that were counted before without one.
        """
        for series, values in self.requests.items():
            row = dict(zip(COUNTER_COLUMNS, values, strict=True))
            room = row["cached_tokens"]
            for tier in TIERS:
                row[f"cached_{tier}"] = min(row[f"cached_{tier}"], room)
                room -= row[f"cached_{tier}"]
            self.requests[series] = tuple(row.values())

    def add_ttft(
        self, model: str, route: str, outcome: str, bucket: int, requests: int, seconds: float
    ) -> None:
        row = self.ttft.setdefault((model, route, outcome), TtftRow())
        row.buckets[bucket] += requests
        row.seconds += seconds
