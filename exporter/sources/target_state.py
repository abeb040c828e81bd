"""Who a target is, and what is remembered of it between two pages.

All of it turns into JSON and back, so that an exporter that restarts goes on where it stopped.
"""

import json
from dataclasses import dataclass, field

from exporter.records import Origin, ReplicaRole
from exporter.sources.engines.page import HistogramReading, Reading

# This many equal pages in a row while requests are served: the counters are frozen.
FROZEN_PAGES = 10


@dataclass(frozen=True)
class TargetIdentity:
    """Who is behind a page, and how it comes to us. `role` None = what the page says, else
    unified."""

    target: str
    replica: str
    role: ReplicaRole | None = None
    interval_seconds: float | None = None
    origin: Origin = "scrape"
    origin_name: str | None = None


@dataclass
class TargetState:
    """All a target's past that its next page needs."""

    table: str = ""
    known_unix: float | None = None
    seen_unix: float | None = None
    missed: bool = False
    process_start: float | None = None
    ranked: bool = False
    intervals: list[float] = field(default_factory=list)
    counters_crc: int | None = None
    equal_pages: int = 0
    equal_since: float | None = None
    busy_pages: int = 0
    series: dict[str, Reading] = field(default_factory=dict)
    histograms: dict[str, HistogramReading] = field(default_factory=dict)

    def to_json(self) -> str:
        """Everything, as the `series` column of the targets table keeps it."""
        plain = {k: v for k, v in vars(self).items() if k not in ("series", "histograms")}
        plain["series"] = {key: list(reading) for key, reading in self.series.items()}
        plain["histograms"] = {
            key: [[[repr(b), n] for b, n in h.buckets.items()], h.total_seconds, h.start, h.scope]
            for key, h in self.histograms.items()
        }
        return json.dumps(plain, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | None) -> "TargetState":
        """The state `to_json` wrote; a fresh one where there is none."""
        if not text:
            return cls()
        plain = json.loads(text)
        plain["series"] = {key: Reading(*parts) for key, parts in plain["series"].items()}
        plain["histograms"] = {
            key: HistogramReading({float(b): n for b, n in buckets}, total, start, scope)
            for key, (buckets, total, start, scope) in plain["histograms"].items()
        }
        return cls(**plain)

    @property
    def looks_frozen(self) -> bool:
        """Ten pages in a row said the same. Frozen only if requests were served meanwhile."""
        return self.equal_pages >= FROZEN_PAGES

    @property
    def busy_meanwhile(self) -> bool:
        """The page's own gauge showed running requests on most of its equal pages."""
        return self.busy_pages * 2 > self.equal_pages

    def fail(self, unix: float) -> None:
        """A scrape brought nothing: the next interval has a hole."""
        self.known_unix = unix if self.known_unix is None else self.known_unix
        if self.seen_unix is None or unix > self.seen_unix:
            self.missed = True
