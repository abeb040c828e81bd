"""One metric page -> what its engine's mapping table finds on it.

Nothing is subtracted or summed here: counters keep their full label set, because an increase
is only right when it is taken per series first.
"""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, get_args

from exporter.records import ReplicaRole
from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.mapping import (
    Engine,
    Fact,
    Row,
    names_to_parse,
    tokens_of,
    version_at_least,
)
from exporter.sources.exposition import Exposition, NotAMetricsPage, PageSample, parse_page

Index = dict[str, list[PageSample]]
# How far a page's own times may be ahead of ours.
CLOCK_SKEW_SECONDS = 60.0
# No engine counts this far; whole numbers in the store end at 9.2e18, block sizes at 2.1e9.
LARGEST = 1e17
LARGEST_BLOCK = 1e9
_COUNTER_ENDS = ("_total", "_count", "_sum", "_bucket")


class UnknownPage(NotAMetricsPage):
    """A good metric page, but of no engine in the registry."""


class Group(NamedTuple):
    """Whose figures: one cache (replica label, rank) and one model; None = not told apart."""

    replica: str | None
    rank: str | None
    model: str | None


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
    """One group's part of a page. `sums`: field -> keys of the series that make it up;
    no key at all = known to be 0."""

    sums: dict[str, list[str]] = field(default_factory=dict)
    histograms: list[str] = field(default_factory=list)
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass
class EnginePage:
    """What one page says, in the store's words."""

    engine: Engine
    names: frozenset[str]
    process_start: float | None
    exposed_unix: float | None
    warnings: tuple[str, ...]
    version: str | None = None
    role: ReplicaRole | None = None
    ranked: bool = False
    provenance: str | None = None
    missing: tuple[str, ...] = ()
    counters_crc: int = 0
    series: dict[str, Reading] = field(default_factory=dict)
    histograms: dict[str, HistogramReading] = field(default_factory=dict)
    units: dict[str, Row] = field(default_factory=dict)
    groups: dict[Group, GroupPage] = field(default_factory=dict)

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


def read_page(
    body: bytes,
    content_type: str | None,
    replica_label: str | None = None,
    ranked: bool = False,
) -> EnginePage:
    """Recognise the engine of a page and map it.

    `replica_label` is a label of the page's own series that names the replica (Ray's agents
    serve several on one page). `ranked` keeps ranks apart although this page shows only one:
    a target that has shown several keeps its names. Raises NotAMetricsPage.
    """
    candidates = tuple(name for name in ENGINES if name.encode() in body)
    exposition = parse_page(body, content_type, _names_to_parse(candidates) if candidates else None)
    found = {sample.name for sample in exposition.samples}
    engines = [load_engine(name) for name in candidates]
    engine = max(engines, key=lambda e: len(found & e.series_names), default=None)
    if engine is None or not found & engine.series_names:
        raise UnknownPage(
            f"no metric of {', '.join(ENGINES)} is on the page: is it the engine's own page "
            "(not a router's or a host's), with its metrics switched on?"
        )
    return _Reader(engine, exposition, replica_label, ranked).page


@lru_cache(maxsize=16)
def _names_to_parse(engines: tuple[str, ...]) -> frozenset[str]:
    return names_to_parse(tuple(load_engine(name) for name in engines))


class _Reader:
    """Fills an EnginePage row by row; the finished page is `page`."""

    def __init__(
        self, engine: Engine, exposition: Exposition, replica_label: str | None, ranked: bool
    ) -> None:
        self.engine = engine
        self.exposition = exposition
        self.replica_label = replica_label
        self.index = _index(engine, exposition, replica_label)
        self.models: dict[str, set[str]] = {}
        self.ranks: dict[str, set[str]] = {}
        self._meet_labels()
        self.page = EnginePage(
            engine=engine,
            names=frozenset(self.index),
            process_start=exposition.process_start,
            exposed_unix=exposition.exposed_unix,
            warnings=exposition.warnings,
            role=self._role(),
            ranked=ranked or any(len(ranks) > 1 for ranks in self.ranks.values()),
            counters_crc=_counters_crc(exposition),
        )
        self._fill()

    def _samples(self) -> Iterator[PageSample]:
        for samples in self.index.values():
            yield from samples

    def _scope(self, sample: PageSample) -> str:
        return sample.labels.get(self.replica_label, "") if self.replica_label else ""

    def _meet_labels(self) -> None:
        for sample in self._samples():
            scope, labels = self._scope(sample), sample.labels
            if "model_name" in labels:
                self.models.setdefault(scope, set()).add(labels["model_name"])
            if self.engine.rank_label in labels:
                self.ranks.setdefault(scope, set()).add(labels[self.engine.rank_label])

    def _role(self) -> ReplicaRole | None:
        label = self.engine.role_label
        said = {s.labels[label] for s in self._samples() if label in s.labels} if label else set()
        roles = [role for role in get_args(ReplicaRole) if role in said]
        return roles[0] if len(roles) == 1 else None

    def _group(self, sample: PageSample) -> Group:
        """Series without a model belong to the page's model where it has just one."""
        scope = self._scope(sample)
        models = self.models.get(scope, set())
        only = next(iter(models)) if len(models) == 1 else None
        rank = sample.labels.get(self.engine.rank_label or "") if self.page.ranked else None
        return Group(scope or None, rank, sample.labels.get("model_name") or only)

    def _fill(self) -> None:
        found: list[Row] = []
        missing: list[str] = []
        for rows in self.engine.alternatives.values():
            row = next((row for row in rows if self._take(row)), None)
            if row is not None:
                found.append(row)
                self.page.units[row.measure] = row
            elif rows[0].expected and not rows[0].from_zero:
                missing.extend(self._absent(rows[0]))
        self.page.missing = tuple(dict.fromkeys(missing))
        self.page.version = version_at_least(found)
        by_measure = self.page.units
        headline = by_measure.get("cached_tokens") or by_measure.get("lookup_hit_tokens")
        self.page.provenance = headline.provenance if headline else None

    def _absent(self, row: Row) -> list[str]:
        if row.kind == "histogram":
            return list(row.exposed)
        if row.kind == "info" and row.exposed[0] in self.index:
            return [f"{row.exposed[0]}{{{row.label}}}"]
        return [name for name in row.exposed if name not in self.index]

    def _take(self, row: Row) -> bool:
        """Fill one row's field; False where the page does not have it."""
        if row.kind == "histogram":
            return self._take_histogram(row)
        if not all(name in self.index for name in row.exposed):
            return self._take_zero(row)
        if row.kind == "counter":
            return self._take_counter(row)
        return self._take_facts(row)

    def _take_zero(self, row: Row) -> bool:
        """An engine that shows no series until it counts: prompts without it mean 0."""
        if not row.from_zero:
            return False
        served = [part for part in self.page.groups.values() if "prompt_tokens" in part.sums]
        for part in served:
            part.sums[row.measure] = []
        return bool(served)

    def _take_counter(self, row: Row) -> bool:
        found = False
        for name in row.exposed:
            for sample in self.index[name]:
                if row.needs is not None and row.needs not in sample.labels:
                    continue
                if not all(label in sample.labels for label in row.where):
                    continue
                keys = self.page.group(self._group(sample)).sums.setdefault(row.measure, [])
                found = True
                if all(sample.labels[label] in values for label, values in row.where.items()):
                    keys.append(self._series(sample))
        return found

    def _series(self, sample: PageSample) -> str:
        key = series_key(sample)
        if key not in self.page.series:
            start = self.exposition.start_of(sample.name, sample.labels)
            self.page.series[key] = Reading(sample.value, start, self._scope(sample))
        return key

    def _take_histogram(self, row: Row) -> bool:
        name = row.exposed[0]
        sums = {series_key(s, name): s.value for s in self.index.get(name + "_sum", ())}
        for sample in self.index.get(name + "_bucket", ()):
            bound = _bound(sample.labels.get("le"))
            key = series_key(sample, name)
            if bound is None or key not in sums:
                continue
            if key not in self.page.histograms:
                start = self.exposition.start_of(name, sample.labels)
                reading = HistogramReading({}, sums[key], start, self._scope(sample))
                self.page.histograms[key] = reading
                self.page.group(self._group(sample)).histograms.append(key)
            self.page.histograms[key].buckets[bound] = sample.value
        return bool(self.page.histograms)

    def _take_facts(self, row: Row) -> bool:
        found = False
        for sample in self.index[row.exposed[0]]:
            fact = _fact(row, sample)
            if fact is None or (row.measure == "block_size" and fact > LARGEST_BLOCK):
                continue
            facts = self.page.group(self._group(sample)).facts
            converted = _convert(row, fact, facts.get("block_size"))
            if converted is not None:
                found = True
                facts[row.measure] = _together(row, facts.get(row.measure), converted)
        return found


def _index(engine: Engine, exposition: Exposition, replica_label: str | None) -> Index:
    """The engine's usable series by name: real numbers, own series, one of each copied rank.

    A negative, non-finite or absurdly large counter is no count; such a series is as good as
    absent.
    """
    wanted = engine.series_names
    index: Index = {}
    for sample in exposition.samples:
        labels = sample.labels
        if sample.name not in wanted or not 0 <= sample.value < LARGEST:
            continue
        if engine.foreign_label in labels and engine.rank_label not in labels:
            continue
        if any(labels.get(name, total) != total for name, total in engine.total_labels.items()):
            continue
        index.setdefault(sample.name, []).append(sample)
    if engine.copied_labels:
        return {n: _one_copy(engine, found, replica_label) for n, found in index.items()}
    return index


def _one_copy(
    engine: Engine, samples: list[PageSample], replica_label: str | None
) -> list[PageSample]:
    """The lowest tensor and pipeline rank of each data-parallel rank."""
    lowest: dict[tuple[str | None, str | None], tuple[int, ...]] = {}
    placed = []
    for sample in samples:
        labels = sample.labels
        place = (labels.get(replica_label or ""), labels.get(engine.rank_label or ""))
        copy = tuple(_rank_number(labels.get(name)) for name in engine.copied_labels)
        lowest[place] = min(lowest.get(place, copy), copy)
        placed.append((sample, place, copy))
    return [sample for sample, place, copy in placed if lowest[place] == copy]


def _rank_number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


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
        return sample.value
    text = sample.labels.get(row.label, "")
    if row.unit == "yes_or_no":
        return {"true": True, "false": False}.get(text.lower())
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < LARGEST else None


def _convert(row: Row, fact: Fact, block_size: Fact | None) -> Fact | None:
    """In the field's own unit: tokens whole, ratios and answers as they are."""
    if row.unit in ("yes_or_no", "ratio"):
        return fact
    if row.unit in ("tokens", "blocks"):
        return tokens_of(fact - row.less, row.unit, int(block_size) if block_size else None)
    return round(fact)


def _together(row: Row, before: Fact | None, now: Fact) -> Fact:
    """Several series of one group: amounts add up, shares never do, constants are the same."""
    if before is None or row.kind == "info":
        return now
    return max(before, now) if row.unit == "ratio" else before + now


def _counters_crc(exposition: Exposition) -> int:
    """Equal between two pages only if no counter moved."""
    moved = [
        f"{s.name}{s.labels}{s.value}" for s in exposition.samples if s.name.endswith(_COUNTER_ENDS)
    ]
    return zlib.crc32("\n".join(sorted(moved)).encode())
