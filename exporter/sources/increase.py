"""Pages of one target, one after the other -> what its counters rose by in between.

A state machine without I/O; what it remembers of a target is its `TargetState`. The rules:

- Increases are taken per series with its full label set and only then summed.
- The first page of a target is a baseline: what the counters gathered before is not traffic
  we saw. Only a process that is younger than our first try is counted from 0.
- A series that is new on a known target counts from 0.
- A counter that falls, or whose process or series started anew, was reset: its new value is
  its increase. When most counters of a process fell, all of them are taken as reset, since
  some may already be past their old value.
- What a page tells once and then forgets is an increase by itself.
- A metric that is not there gives None, never 0.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from statistics import median
from typing import TypeVar

from exporter.records import EngineSample
from exporter.sources.engines import tables_fingerprint
from exporter.sources.engines.mapping import (
    ASIDE,
    COUNTED_AS_THEY_ARE,
    Fields,
    Row,
    tokens_of,
)
from exporter.sources.engines.own_series import Group
from exporter.sources.engines.page import EnginePage, GroupPage, HistogramReading, Reading
from exporter.sources.target_state import TargetIdentity, TargetState

# Start times closer than this are the same start: clocks are corrected while a process runs.
SAME_START_SECONDS = 1.0
# The store keeps counts in 64 bits with a sign.
_TOO_LARGE = 2**63
# An interval this much longer than usual means that scrapes were missed in it.
GAP_FACTOR = 2.5
# Without a configured interval: how many of the last ones tell what is usual, and the
# shortest one that can be a gap (pages recorded by hand come at any distance).
USUAL_INTERVALS = 9
SHORTEST_GAP_SECONDS = 60.0

AnyReading = TypeVar("AnyReading", Reading, HistogramReading)


def advance(
    state: TargetState, page: EnginePage, unix: float, who: TargetIdentity
) -> list[EngineSample]:
    """Take the next page of a target into `state`; one sample per replica and model.

    A page that is not newer than the last one gives nothing and changes nothing, so that
    reading the same pages again counts nothing twice.
    """
    if state.seen_unix is not None and unix <= state.seen_unix:
        return []
    step = _Step(state, page, unix)
    samples = [step.sample(group, part, who) for group, part in step.groups_to_tell()]
    step.remember()
    return samples


class _Step:
    """One page against the state before it."""

    def __init__(self, state: TargetState, page: EnginePage, unix: float) -> None:
        self.state = state
        self.page = page
        self.unix = unix
        self.same_table = state.table == tables_fingerprint()
        self.resets = self._resets()
        self.rises = {
            key: self._rise(reading, state.series.get(key)) for key, reading in page.series.items()
        }

    # ------------------------------------------------------------------ resets

    def _resets(self) -> frozenset[str]:
        """The scopes (processes) that began anew since the last page."""
        readings: list[Reading | HistogramReading] = [
            *self.page.series.values(),
            *self.page.histograms.values(),
        ]
        scopes = {reading.scope for reading in readings}
        scopes.update(group.replica or "" for group in self.page.groups)
        if _other_start(self.state.process_start, self.page.process_start):
            return frozenset(scopes)
        return frozenset(scope for scope in scopes if self._scope_fell(scope))

    def _scope_fell(self, scope: str) -> bool:
        """Most of the process's counters fell or started anew, or all of them are gone."""
        counting = [k for k, r in self.state.series.items() if r.scope == scope and r.value > 0]
        present = [key for key in counting if key in self.page.series]
        if not present:
            return bool(counting) and self.same_table
        fell = [k for k in present if _anew(self.state.series[k], self.page.series[k])]
        return bool(fell) and len(fell) * 2 >= len(present)

    # --------------------------------------------------------------- increases

    def _rise(self, now: Reading, before: Reading | None) -> float | None:
        if before is None:
            return now.value if self._counts_from_zero(now) else None
        if now.scope in self.resets or _anew(before, now):
            return now.value
        return now.value - before.value

    def _counts_from_zero(self, now: AnyReading) -> bool:
        """Whether all of a series never seen before happened after we began to look."""
        looking_since = self.state.seen_unix or self.state.known_unix
        start = now.start or self.page.process_start
        if start is not None and looking_since is not None and start > looking_since:
            return True
        return self.state.seen_unix is not None and (self.same_table or now.scope in self.resets)

    def _buckets(self, keys: Iterable[str]) -> tuple[dict[float, int], float] | None:
        """What a group's histograms rose by: per bound (cumulative) and in seconds.

        One histogram is one counter: when any part of it fell, all of it was reset. Where
        histograms with different bounds meet, only the bounds they share can be added.
        """
        rises = []
        for key in keys:
            now, before = self.page.histograms[key], self.state.histograms.get(key)
            if before is None:
                if self._counts_from_zero(now):
                    rises.append((now.buckets, now.total_seconds))
            elif now.scope in self.resets or _histogram_anew(before, now):
                rises.append((now.buckets, now.total_seconds))
            else:
                risen = {bound: n - before.buckets[bound] for bound, n in now.buckets.items()}
                rises.append((risen, now.total_seconds - before.total_seconds))
        if not rises:
            return None
        shared = set.intersection(*(set(buckets) for buckets, _ in rises))
        counts = {bound: round(sum(b[bound] for b, _ in rises)) for bound in sorted(shared)}
        return counts, sum(seconds for _, seconds in rises)

    def groups_to_tell(self) -> list[tuple[Group, GroupPage]]:
        """The groups worth a sample, in a fixed order.

        Of many tenants few are active between two pages. Those nothing happened for are told
        together, as zeros of no tenant.
        """
        told: dict[Group, GroupPage] = {}
        for group, part in self.page.groups.items():
            whole = group._replace(tenant=None, route=None)
            if group == whole or self._active(part):
                told[group] = part
            else:
                idle = told.setdefault(whole, self.page.groups.get(whole, GroupPage()))
                if self.state.seen_unix is not None:
                    idle.sums.update({m: [] for m in part.sums if m not in idle.sums})
        return sorted(told.items(), key=lambda item: str(item[0]))

    def _active(self, part: GroupPage) -> bool:
        risen = (self.rises[key] for keys in part.sums.values() for key in keys)
        return any(risen) or any(part.told.values()) or bool(part.facts)

    def _increases(self, part: GroupPage, rows: Mapping[str, Row]) -> Fields:
        fields: Fields = {}
        first = self.state.seen_unix is None
        block_size = int(part.facts.get("block_size") or 0)
        for measure, keys in part.sums.items():
            risen = [rise for key in keys if (rise := self.rises[key]) is not None]
            if risen or not (keys or first):
                _put(fields, measure, _in_unit(rows[measure], sum(risen), block_size))
        if not first:
            for measure, amount in part.told.items():
                _put(fields, measure, _in_unit(rows[measure], amount, block_size))
        for measure, keys in part.histograms.items():
            histogram = self._buckets(keys)
            if histogram is not None:
                name = measure.removesuffix("_buckets")
                fields[measure], fields[f"{name}_sum_seconds"] = histogram
        return fields

    # ------------------------------------------------------------------ result

    def sample(self, group: Group, part: GroupPage, who: TargetIdentity) -> EngineSample:
        """One group's increases and gauges as a record."""
        state, table = self.state, self.page.tables[group.table]
        fields = self._increases(part, table.rows)
        counted = bool(fields)
        for measure, fact in part.facts.items():
            _put(fields, measure, fact)
        if table.engine.settle is not None:
            table.engine.settle(fields, self.page.names)
        fields.pop(ASIDE, None)
        fields = _within_range(fields)
        replica = group.replica or who.replica
        started = state.seen_unix
        if started is None and counted:
            started = state.known_unix
        whole = group.tenant is None and group.route is None
        counts = any(f"{name}_count" in fields for name in ("lookup", "hit", "skipped"))
        return EngineSample(
            target=who.target,
            replica=replica if group.rank is None else f"{replica}/{group.rank}",
            engine=table.engine.name,
            observer=table.engine.observer,
            exported_by=table.exported_by,
            version=str(table.versions) or None,
            model=group.model,
            tenant=group.tenant,
            route=group.route,
            role=who.role or table.role or "unified",
            since=None if started is None else _utc(started),
            ts=_utc(self.unix),
            # Once a process, not once a tenant.
            reset=whole and state.seen_unix is not None and (group.replica or "") in self.resets,
            gap=whole and self._gap(who.interval_seconds),
            provenance=table.provenance,
            origin=who.origin,
            origin_name=who.origin_name,
            count_unit=table.count_unit if counts else None,
            **fields,  # type: ignore[arg-type]  # names and units come from the table
        )

    def _gap(self, interval_seconds: float | None) -> bool:
        if self.state.seen_unix is None:
            return False
        if self.state.missed:
            return True
        passed = self.unix - self.state.seen_unix
        if interval_seconds is not None:
            return passed > GAP_FACTOR * interval_seconds
        usual = median(self.state.intervals) if self.state.intervals else passed
        return passed > max(GAP_FACTOR * usual, SHORTEST_GAP_SECONDS)

    def remember(self) -> None:
        """Make this page the state's last one. Series not on it are kept unless reset."""
        state, page = self.state, self.page
        self._remember_stillness()
        state.series = {**_without(state.series, self.resets), **page.series}
        state.histograms = {**_without(state.histograms, self.resets), **page.histograms}
        if state.seen_unix is not None:
            passed = self.unix - state.seen_unix
            state.intervals = [*state.intervals, passed][-USUAL_INTERVALS:]
        state.known_unix = self.unix if state.known_unix is None else state.known_unix
        state.seen_unix, state.missed = self.unix, False
        state.process_start = page.process_start or state.process_start
        state.ranked = page.ranked
        state.table = tables_fingerprint()

    def _remember_stillness(self) -> None:
        state = self.state
        busy = any(part.facts.get("running_requests") for part in self.page.groups.values())
        if self.page.counters_crc == state.counters_crc:
            state.equal_pages += 1
            state.busy_pages += busy
            return
        state.counters_crc = self.page.counters_crc
        state.equal_pages, state.equal_since, state.busy_pages = 1, self.unix, int(busy)


def _put(fields: Fields, measure: str, value: object) -> None:
    """Set a field, or one entry of a map field ("offload_bytes/load/host")."""
    name, _, key = measure.partition("/")
    if not key:
        fields[name] = value
        return
    entries = fields.setdefault(name, {})
    if isinstance(entries, dict) and value is not None:
        entries[key] = value


def _within_range(fields: Fields) -> Fields:
    """Without numbers too large to be kept: sums and products of what no program counts."""
    found: Fields = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            found[name] = {key: part for key, part in value.items() if part < _TOO_LARGE}
        elif not isinstance(value, int | float) or value < _TOO_LARGE:
            found[name] = value
    return found


def _in_unit(row: Row, amount: float, block_size: int) -> int | float | None:
    """An increase in its field's unit."""
    if row.unit == "seconds":
        return float(amount)
    if row.unit in ("tokens", "blocks") and row.field not in COUNTED_AS_THEY_ARE:
        return tokens_of(amount, row.unit, block_size)
    return round(amount)


def _without(known: dict[str, AnyReading], scopes: frozenset[str]) -> dict[str, AnyReading]:
    """The series of processes that still run."""
    return {k: r for k, r in known.items() if r.scope not in scopes} if scopes else known


def _other_start(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and abs(now - before) > SAME_START_SECONDS


def _anew(before: Reading, now: Reading) -> bool:
    return now.value < before.value or _other_start(before.start, now.start)


def _histogram_anew(before: HistogramReading, now: HistogramReading) -> bool:
    return (
        set(before.buckets) != set(now.buckets)
        or any(count < before.buckets[bound] for bound, count in now.buckets.items())
        or now.total_seconds < before.total_seconds
        or _other_start(before.start, now.start)
    )


def _utc(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)
