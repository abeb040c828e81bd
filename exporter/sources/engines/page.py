"""What was found on one metric page, as values: readings of counters and histograms, and facts."""

from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.records import ReplicaRole
from exporter.sources.engines.mapping import (
    Engine,
    Fact,
    Row,
    VersionRange,
)
from exporter.sources.engines.own_series import Group

# How far a page's own times may be ahead of ours.
CLOCK_SKEW_SECONDS = 60.0


class Reading(NamedTuple):
    """A counter series. `start` is when it began (Unix seconds); `scope` its process."""

    value: float
    start: float | None
    scope: str


class HistogramReading(NamedTuple):
    """A histogram series: cumulative counts by upper bound in seconds, and the sum."""

    buckets: dict[float, float]
    total_seconds: float
    start: float | None
    scope: str


@dataclass
class GroupPage:
    """One group's part of a page. `sums`: field -> keys of the counter series that make it up;
    no key at all = known to be 0. `told`: increases the page states itself."""

    sums: dict[str, list[str]] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass
class TablePage:
    """What one table found: the row behind every field, and what holds for all its samples."""

    engine: Engine
    versions: VersionRange
    role: ReplicaRole | None = None
    exported_by: str | None = None
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def provenance(self) -> str | None:
        """How the counters behind this table's headline are credited."""
        for measure in ("cached_tokens", "lookup_hit_tokens", "hit_count"):
            if measure in self.rows:
                return self.rows[measure].provenance
        return None

    @property
    def count_unit(self) -> str | None:
        """What `lookup_count`, `hit_count` and `skipped_count` count."""
        counts = (self.rows.get(f"{name}_count") for name in ("hit", "lookup", "skipped"))
        row = next((row for row in counts if row is not None), None)
        return row.unit if row else None


@dataclass
class EnginePage:
    """What one page says, in the store's words.

    `engine` is the program the page is named after: the engine, where there is one. `missing`
    are series the page should have, `advice` says of each what to do.
    """

    engine: Engine
    names: frozenset[str]
    process_start: float | None
    exposed_unix: float | None
    warnings: tuple[str, ...]
    ranked: bool = False
    missing: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    counters_crc: int = 0
    tables: dict[str, TablePage] = field(default_factory=dict)
    series: dict[str, Reading] = field(default_factory=dict)
    histograms: dict[str, HistogramReading] = field(default_factory=dict)
    groups: dict[Group, GroupPage] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        """What the page proves about the version of its main program, in words."""
        return str(self.tables[self.engine.name].versions) or None

    @property
    def role(self) -> ReplicaRole | None:
        """The role the main program's labels name."""
        return self.tables[self.engine.name].role

    def time_of(self, scraped_unix: float) -> float:
        """When the page's values were true: the time it states, else when it was scraped.

        A stated time ahead of the scrape is a wrong clock and would hide later pages.
        """
        if self.exposed_unix is None or self.exposed_unix > scraped_unix + CLOCK_SKEW_SECONDS:
            return scraped_unix
        return self.exposed_unix

    def group(self, group: Group) -> GroupPage:
        """The part of the page that belongs to `group`, made when first asked for."""
        return self.groups.setdefault(group, GroupPage())
