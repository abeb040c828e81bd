"""Judges drops of the hit ratio on the minute, so that /metrics and alerts share one definition.

The judgement itself is the question `peak_drop`; here it is only asked, bounded and kept.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, field_validator

from exporter.judge_watch import JudgeWatch
from exporter.metrics import DROP, Page
from exporter.metrics_text import label_text
from exporter.open_drops import Labels, began, keep, kept
from exporter.store.store import Store
from queries import registry

DIMENSIONS = ("route", "template", "tenant")
MOST_SERIES = 20
TICK_SECONDS = 60.0
# A judgement older than this is none: an alert must neither stay nor fail to come because of it.
STALE_SECONDS = 300.0
SEVERITIES = {"ticket": 1, "page": 2}


class DropSettings(BaseModel):
    """How drops are judged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    zone: str = Field("UTC", description="time zone whose hours of the week are compared")
    window_seconds: int = Field(3_600, ge=300, le=86_400, description="how much is judged at once")
    min_tokens: int = Field(
        20_000, ge=1, description="windows with fewer reported prompt tokens are not judged"
    )

    @field_validator("zone")
    @classmethod
    def _known(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"{zone!r} is no time zone; write UTC or Europe/Berlin") from None
        return zone


@dataclass(frozen=True)
class Drop:
    """One model, or one value of a dimension that dropped. `severity` None = no drop."""

    labels: Labels
    drop_ratio: float | None  # None: no count is known, or the cache was not asked
    kind: str | None
    severity: str | None
    expected_ratio: float | None = None
    actual_ratio: float | None = None
    contributor: str = ""  # the template that lost most, '' where none did
    since: datetime | None = None  # start of the window judged, until keep_since knows better


def judge(cursor: duckdb.DuckDBPyConnection, settings: DropSettings, until: datetime) -> list[Drop]:
    """Every model that can be judged and the values that dropped; pages first, then tickets.

    At most MOST_SERIES. Nothing without a request row in the window.
    """
    params = {**settings.model_dump(), "until": until}
    # With both ends given the question looks at no other hours than it needs.
    params["since"] = until - timedelta(seconds=settings.window_seconds)
    judged = registry.run(cursor, "peak_drop", params)
    told = pc.or_kleene(judged["is_drop"], pc.is_finite(judged["drop_ratio"]))
    found = [_drop(row, {}) for row in _worst_first(_rows_where(told, judged))]
    # A small template may drop within a large model that does not.
    for by in DIMENSIONS:
        judged = registry.run(cursor, "peak_drop", {**params, "by": by})
        rows = _rows_where(judged["is_drop"], judged)
        # What gave no name is told of as the model.
        dropped = [row for row in _worst_first(rows) if row[by]]
        found += [_drop(row, {by: str(row[by])}) for row in dropped]
    # What fires is not cut off by models that do not.
    return sorted(found, key=lambda drop: -SEVERITIES.get(drop.severity or "", 0))[:MOST_SERIES]


def _rows_where(told: pa.ChunkedArray, judged: pa.Table) -> list[dict[str, object]]:
    """Of ten thousands of tenants few drop; as rows of Python all would take 3 KB each."""
    return registry.rows(judged.filter(told))


def _worst_first(rows: Iterable[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Pages, other drops, the rest; among them by tokens lost."""

    def rank(row: Mapping[str, object]) -> tuple[bool, bool, float]:
        return row["severity"] == "page", bool(row["is_drop"]), _lost_tokens(row)

    return sorted(rows, key=rank, reverse=True)


def _lost_tokens(row: Mapping[str, object]) -> float:
    drop, tokens = row["drop_ratio"], row["reported_prompt_tokens"]
    return drop * tokens if isinstance(drop, float) and isinstance(tokens, int) else 0.0


def _drop(row: Mapping[str, object], value: Mapping[str, str]) -> Drop:
    names = (value.get(name, "") for name in DIMENSIONS)
    route, template, tenant = names
    kind, severity, ratio = row["class"], row["severity"], row["drop_ratio"]
    return Drop(
        (str(row["basis"]), str(row["model"]), route, template, tenant),
        _ratio(ratio),
        str(kind) if row["is_drop"] else None,
        None if severity is None else str(severity),
        expected_ratio=_ratio(row["expected_ratio"]),
        actual_ratio=_ratio(row["token_hit_ratio"]),
        contributor=str(row["contributor"] or ""),
        since=_instant(row["ts"]) if row["is_drop"] else None,
    )


def _ratio(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _instant(value: object) -> datetime | None:
    """A time as answers write it."""
    return datetime.fromisoformat(value) if isinstance(value, str) else None


def keep_since(
    store: Store, settings: DropSettings, until: datetime, drops: Iterable[Drop]
) -> list[Drop]:
    """These drops, each since when it has been one: another class, or a page that becomes a
    ticket, is the same drop. A new one is looked for in the minutes before."""
    cursor, asked = store.cursor(), settings.model_dump()
    known = kept(cursor, until)

    def since(drop: Drop) -> datetime | None:
        if drop.labels in known or drop.actual_ratio is None:
            return known.get(drop.labels, drop.since)
        return began(cursor, asked, until, drop.labels, drop.actual_ratio) or drop.since

    told = [replace(drop, since=since(drop)) if drop.severity else drop for drop in drops]
    keep(store, {drop.labels: drop.since for drop in told if drop.severity and drop.since}, until)
    return told


def add_drops(page: Page, drops: Iterable[Drop]) -> None:
    """The families of drops. All but the ratio have series only while there is a drop, and the
    class is a label of info alone: another class must neither resolve an alert nor raise one."""
    for drop in drops:
        labels = label_text(DROP, drop.labels)
        if drop.drop_ratio is not None:
            page["prefixcache_peak_hit_drop_ratio"].add(labels, drop.drop_ratio)
        if drop.severity is not None:
            named = (*drop.labels, drop.kind or "", drop.contributor)
            info = label_text((*DROP, "class", "contributor"), named)
            page["prefixcache_peak_hit_drop_info"].add(info, 1)
            page["prefixcache_peak_hit_drop_severity"].add(labels, SEVERITIES[drop.severity])
            _add_course(page, labels, drop)


def _add_course(page: Page, labels: str, drop: Drop) -> None:
    """From what, to what, since when: what a message about the drop says."""
    since = None if drop.since is None else drop.since.timestamp()
    for name, value in (
        ("expected_ratio", drop.expected_ratio),
        ("actual_ratio", drop.actual_ratio),
        ("since_timestamp_seconds", since),
    ):
        if value is not None:
            page[f"prefixcache_peak_hit_drop_{name}"].add(labels, value)


class DropWatch(JudgeWatch):
    """Judges on the minute."""

    def __init__(self, store: Store, settings: DropSettings) -> None:
        super().__init__("drops")
        self._store = store
        self._settings = settings
        self._drops: list[Drop] = []
        self._judged = 0.0

    def current(self) -> list[Drop]:
        """As last judged; none before the first minute is over, or once judging has failed."""
        return self._drops if time.monotonic() - self._judged < STALE_SECONDS else []

    def pause_seconds(self) -> float:
        """To the next minute."""
        return _seconds_to_next_minute(datetime.now(UTC))

    def judge_once(self) -> None:
        """Of the window that ends with the last full minute."""
        until = datetime.now(UTC).replace(second=0, microsecond=0)
        drops = judge(self._store.cursor(), self._settings, until)
        self._drops = keep_since(self._store, self._settings, until, drops)
        self._judged = time.monotonic()

    def failed(self) -> None:
        """It holds until it is stale."""


def _seconds_to_next_minute(now: datetime) -> float:
    """A little behind it, so that rows of the minute's end are in."""
    nearest = now.replace(second=0, microsecond=0) + timedelta(seconds=TICK_SECONDS)
    return (nearest - now).total_seconds() + 2.0
