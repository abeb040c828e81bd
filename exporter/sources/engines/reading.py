"""One metric page -> what the mapping tables of the programs behind it find on it.

Nothing is subtracted or summed here: counters keep their full label set, because an increase
is only right when it is taken per series first.
"""

import math
import zlib
from functools import lru_cache

from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.mapping import (
    COUNTED_AS_THEY_ARE,
    Engine,
    Fact,
    Row,
    names_to_parse,
    tokens_of,
    version_range,
)
from exporter.sources.engines.own_series import LARGEST, Group, OwnSeries, PageLabels
from exporter.sources.engines.page import (
    EnginePage,
    GroupPage,
    HistogramReading,
    Reading,
    TablePage,
)
from exporter.sources.exposition import Exposition, NotAMetricsPage, PageSample, parse_page

# Block sizes are 32-bit in the store.
LARGEST_BLOCK = 1e9

# A share is at most 1, give or take how it was calculated.
LARGEST_SHARE = 1.01

_COUNTER_ENDS = ("_total", "_count", "_sum", "_bucket")


class UnknownPage(NotAMetricsPage):
    """A good metric page, but of no program in the registry."""


def read_page(
    body: bytes,
    content_type: str | None,
    labels: PageLabels | None = None,
    ranked: bool = False,
) -> EnginePage:
    """Recognise the programs behind a page and map it.

    `ranked` keeps ranks apart although this page shows only one: a target that has shown
    several keeps its names. Raises NotAMetricsPage.
    """
    told = _read_otherwise(body)
    engines, exposition = told or _read_text(body, content_type)
    own = [OwnSeries(engine, exposition.samples, labels or PageLabels()) for engine in engines]
    if told is None:
        own = [one for one in own if one.names] or [one for one in own if _is_fresh(one, body)]
    if not own:
        raise UnknownPage(
            f"no metric of {', '.join(ENGINES)} is on the page: is it the program's own page "
            "(not a host's), with its metrics switched on?"
        )
    return _put_together(own, exposition, ranked)


def _is_fresh(own: OwnSeries, body: bytes) -> bool:
    """Whether the page is of a program that has not counted anything yet."""
    return bool(own.engine.empty_mark) and own.engine.empty_mark.encode() in body


def _read_text(body: bytes, content_type: str | None) -> tuple[list[Engine], Exposition]:
    """The page as Prometheus text, and the programs that may have served it."""
    names = tuple(name for name, marks in _marks() if any(mark in body for mark in marks))
    exposition = parse_page(body, content_type, _names_to_parse(names) if names else None)
    return [load_engine(name) for name in names], exposition


def _read_otherwise(body: bytes) -> tuple[list[Engine], Exposition] | None:
    """The page as a program's own reader reads it; None where no reader claims it. A claimed
    page may tell nothing."""
    if body[:200].lstrip()[:1] not in (b"[", b"{"):
        return None
    for engine in (load_engine(name) for name in ENGINES):
        samples = engine.read(body) if engine.read is not None else None
        if samples is not None:
            return [engine], Exposition(samples, {}, None)
    return None


@lru_cache(maxsize=1)
def _marks() -> tuple[tuple[str, tuple[bytes, ...]], ...]:
    """Per program the texts one of which is on every page of it."""
    engines = [load_engine(name) for name in ENGINES]
    return tuple((e.name, tuple(m.encode() for m in e.marks or (e.name,))) for e in engines)


@lru_cache(maxsize=64)
def _names_to_parse(engines: tuple[str, ...]) -> frozenset[str]:
    return names_to_parse(tuple(load_engine(name) for name in engines))


def _put_together(own: list[OwnSeries], exposition: Exposition, ranked: bool) -> EnginePage:
    own.sort(key=lambda series: (series.engine.observer != "engine", -len(series.names)))
    notices = tuple(series.engine.notice for series in own if series.engine.notice)
    page = EnginePage(
        engine=own[0].engine,
        names=frozenset().union(*(series.names for series in own)),
        process_start=exposition.process_start,
        exposed_unix=exposition.exposed_unix,
        warnings=exposition.warnings + notices,
        ranked=ranked or any(series.ranked for series in own),
        counters_crc=_counters_crc(exposition),
    )
    advice: dict[str, str] = {}
    for series in own:
        advice.update(_Reader(series, exposition, page).fill())
    page.missing = tuple(advice)
    page.advice = tuple(f"{name}: {text}" if text else name for name, text in advice.items())
    return page


class _Reader:
    """Fills the part of a page one table describes, row by row."""

    def __init__(self, own: OwnSeries, exposition: Exposition, page: EnginePage) -> None:
        self.own = own
        self.exposition = exposition
        self.page = page
        versions = version_range(own.engine, own.names)
        self.table = TablePage(own.engine, versions, own.role, own.exported_by)
        page.tables[own.engine.name] = self.table

    def fill(self) -> dict[str, str]:
        """Take every field; returns what is missing, with what to do."""
        missing: dict[str, str] = {}
        if self.own.engine.empty_mark and not self.own.names:
            return missing
        for measure, rows in self.own.engine.alternatives.items():
            row = next((row for row in rows if self._take(row)), None)
            if row is not None:
                self.table.rows[measure] = row
                self._take_zero(row)
                continue
            due = next((row for row in rows if self.table.versions.may_have(row)), None)
            if due is not None and due.expected and not due.from_zero:
                missing.update(dict.fromkeys(self._absent(due), self.own.engine.advice(due)))
        return missing

    def _absent(self, row: Row) -> list[str]:
        if row.kind == "info" and row.exposed[0] in self.own.names:
            return [f"{row.exposed[0]}{{{row.label}}}"]
        if row.kind == "histogram":
            return list(row.exposed)
        return [name for name in row.exposed if name not in self.own.names] or list(row.exposed)

    def _take(self, row: Row) -> bool:
        """Fill one row's field; False where the page does not have it."""
        if row.proven and not self.table.versions.proves(row):
            return False
        if row.kind == "histogram":
            return self._take_histogram(row)
        if not all(name in self.own.names for name in row.exposed):
            return self._take_zero(row)
        if row.kind == "counter":
            return self._take_counter(row)
        return self._take_told(row) if row.kind == "increase" else self._take_facts(row)

    def _series(self, row: Row, name: str) -> list[tuple[PageSample, GroupPage, bool]]:
        """The row's series of a name, whose each is, and whether `where` picks it."""
        found = []
        for sample in self.own.series(name, row.every_rank):
            labels = sample.labels
            if row.lacks in labels or (row.needs is not None and row.needs not in labels):
                continue
            if not all(label in labels for label in row.where):
                continue
            part = self.page.group(self._group(sample))
            found.append((sample, part, row.picks(labels)))
        return found

    def _group(self, sample: PageSample) -> Group:
        return self.own.group(sample, self.page.ranked)

    def _take_zero(self, row: Row) -> bool:
        """A program that shows no series until it counts: prompts without it mean 0, also for
        a tenant or model that only others have a series of."""
        if not row.from_zero or row.kind == "histogram":
            return False
        name = self.own.engine.name
        mine = [part for group, part in self.page.groups.items() if group.table == name]
        served = [part for part in mine if "prompt_tokens" in part.sums]
        for part in served:
            part.sums.setdefault(row.measure, [])
        return bool(served)

    def _take_counter(self, row: Row) -> bool:
        found = [one for name in row.exposed for one in self._series(row, name)]
        for sample, part, picked in found:
            keys = part.sums.setdefault(row.measure, [])
            if picked:
                keys.append(self._remember(sample))
        return bool(found)

    def _remember(self, sample: PageSample) -> str:
        key = series_key(sample)
        if key not in self.page.series:
            start = self.exposition.start_of(sample.name, self.own.told_labels(sample))
            self.page.series[key] = Reading(sample.value, start, self.own.scope(sample))
        return key

    def _take_told(self, row: Row) -> bool:
        found = [one for name in row.exposed for one in self._series(row, name)]
        for sample, part, picked in found:
            told = part.told.setdefault(row.measure, 0.0)
            part.told[row.measure] = told + (sample.value if picked else 0.0)
        return bool(found)

    def _take_histogram(self, row: Row) -> bool:
        found = False
        for name in row.exposed:
            sums = {series_key(s, name): s.value for s, _, _ in self._series(row, name + "_sum")}
            for sample, part, picked in self._series(row, name + "_bucket"):
                bound = _bound(sample.labels.get("le"))
                key = series_key(sample, name)
                if bound is None or key not in sums or not picked:
                    continue
                found = True
                if key not in self.page.histograms:
                    start = self.exposition.start_of(name, self.own.told_labels(sample))
                    reading = HistogramReading({}, sums[key], start, self.own.scope(sample))
                    self.page.histograms[key] = reading
                    part.histograms.setdefault(row.measure, []).append(key)
                self.page.histograms[key].buckets[bound] = sample.value
        return found

    def _take_facts(self, row: Row) -> bool:
        found = False
        for sample, part, picked in (one for n in row.exposed for one in self._series(row, n)):
            fact = _fact(row, sample) if picked else None
            if fact is None or fact > _most(row):
                continue
            converted = _convert(row, fact, part.facts.get("block_size"))
            if converted is not None:
                found = True
                part.facts[row.measure] = _together(row, part.facts.get(row.measure), converted)
        return found


def series_key(sample: PageSample, histogram: str | None = None) -> str:
    """Name and full label set as one unambiguous text; of a histogram's parts the histogram's."""
    labels = sorted(item for item in sample.labels.items() if not histogram or item[0] != "le")
    return f"{histogram or sample.name}{labels}"


def _bound(text: str | None) -> float | None:
    """A bucket's upper bound as a number: "1" and "1.0" are the same bound."""
    try:
        bound = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _fact(row: Row, sample: PageSample) -> Fact | None:
    """A gauge's value, or the fact in an info series' label; None where it says nothing."""
    if row.label is None:
        return bool(sample.value) if row.unit == "yes_or_no" else sample.value
    text = sample.labels.get(row.label, "")
    if row.unit == "yes_or_no":
        return {"true": True, "false": False}.get(text.lower())
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < LARGEST else None


def _most(row: Row) -> float:
    """What no fact of the row is above; page values themselves are below LARGEST."""
    if row.measure == "block_size":
        return LARGEST_BLOCK
    return LARGEST_SHARE if row.unit == "ratio" else LARGEST


def _convert(row: Row, fact: Fact, block_size: Fact | None) -> Fact | None:
    """In the field's own unit: tokens whole, ratios and answers as they are."""
    if row.unit in ("yes_or_no", "ratio"):
        return fact
    if row.unit in ("tokens", "blocks") and row.field not in COUNTED_AS_THEY_ARE:
        return tokens_of(fact - row.less, row.unit, int(block_size) if block_size else None)
    return round(fact - row.less)


def _together(row: Row, before: Fact | None, now: Fact) -> Fact:
    """Several series of one group: amounts add up, shares never do, constants are the same."""
    if before is None or row.kind == "info" or row.unit == "yes_or_no":
        return now
    return max(before, now) if row.unit == "ratio" else before + now


def _counters_crc(exposition: Exposition) -> int:
    """Equal between two pages only if no counter moved."""
    moved = [
        f"{s.name}{s.labels}{s.value}" for s in exposition.samples if s.name.endswith(_COUNTER_ENDS)
    ]
    return zlib.crc32("\n".join(sorted(moved)).encode())
