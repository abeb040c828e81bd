"""What a mapping table of an engine's metric page is made of.

One row says: these exposed series, selected by these labels, are this field of
`EngineSample`, in this unit. Rows for the same field are alternatives in order of preference,
which is how renamed metrics are followed through a program's versions. A field no row can
fill is *missing*, which is never the same as 0.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as _field
from functools import cached_property
from typing import Literal

from exporter.records import Observer
from exporter.sources.exposition import PageSample

Kind = Literal["counter", "increase", "gauge", "histogram", "info"]
Unit = Literal[
    "tokens", "blocks", "chunks", "objects", "requests", "events", "bytes", "seconds", "ratio",
    "yes_or_no",
]  # fmt: skip
Fact = float | bool
# The fields of one EngineSample while it is put together.
Fields = dict[str, object]
# Fields that keep the page's own unit, named beside them; all others of blocks become tokens.
COUNTED_AS_THEY_ARE = frozenset(
    {
        "lookup_count", "hit_count", "skipped_count", "evicted", "demoted", "tier_used",
        "tier_capacity",
    }
)  # fmt: skip
# `aside/NAME` is no field: an increase that `settle` alone gets to see.
ASIDE = "aside"
# Counters of one page are read at slightly different moments.
_ENOUGH = 0.98
_VERSION = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a mapping table.

    `measure` is a field of EngineSample, or `field/key` for one entry of a map field, or
    `aside/NAME` for an increase that only `settle` compares others with.
    `exposed` are the series names whose sum is the value; all of them must be on the page.
    `where` keeps only series whose label has one of the values, `other_than` those whose label
    has none of them; series with the label `lacks` are not this row's. `label` names the
    label that holds the fact (kind "info"). `less` is taken off before units are converted (a
    block no request can use). `from_zero`: the program shows no series until it is above 0,
    so that on a page with prompt tokens its absence means 0. `needs` is a label without which
    the value cannot be trusted. `every_rank`: each rank counts its own share, so that all are
    summed. An "increase" is one by itself: the page forgets what it has told. `proven`: used
    only where the page proves a version of at least `since`, because the same name meant
    something else before. `expected` rows are reported when none of a field's rows is found,
    with `remedy`.
    """

    measure: str
    kind: Kind
    unit: Unit
    exposed: tuple[str, ...]
    meaning: str
    where: Mapping[str, frozenset[str]] = _field(default_factory=dict)
    other_than: Mapping[str, frozenset[str]] = _field(default_factory=dict)
    lacks: str | None = None
    label: str | None = None
    less: int = 0
    from_zero: bool = False
    needs: str | None = None
    every_rank: bool = False
    since: str | None = None
    until: str | None = None
    proven: bool = False
    expected: bool = True
    remedy: str | None = None
    provenance: str | None = None

    @property
    def field(self) -> str:
        """The field of EngineSample, without the key of a map's entry."""
        return self.measure.partition("/")[0]

    def picks(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is part of the value."""
        return all(labels[name] in values for name, values in self.where.items()) and not any(
            labels.get(name) in values for name, values in self.other_than.items()
        )

    def series_names(self) -> tuple[str, ...]:
        """The series it reads; of a histogram two of its three parts."""
        parts = ("_bucket", "_sum") if self.kind == "histogram" else ("",)
        return tuple(name + part for name in self.exposed for part in parts)


@dataclass(frozen=True)
class Engine:
    """The mapping table of one program and how its labels are to be read.

    `title` says what it is, `versions` which ones the table was read against, `recorded` which of
    these served real pages it was tried on (nothing: read from source only). `observer` says who
    counted: only an engine's own counters enter engine figures. One of the texts `marks` is on
    every page of it (none given: its name). A program whose series appear only when they count has
    `empty_mark` on its page before, so that the page is known. `rank_label` tells data-parallel
    ranks apart: each has a cache of its own. `copied_labels` are ranks that all repeat the same
    token count: one of them is read, never their sum. `total_labels` name, per label, the value
    that already is the total of the others. Series belong to this table only with all of
    `only_with`; series with one of `foreign_labels` but no rank label are another program's
    copies. `model_labels`, `tenant_labels` and `route_labels` are tried in order, passing over
    `absent_values`, which some programs write for "not given"; the values of `secret_labels` are
    replaced by a keyed hash before anything else sees them. `watched` counters are read only to
    see that the page is alive, `version_marks` (series -> first and last version with it) only to
    tell the version. `read` turns a page that is no Prometheus text into samples, or answers None
    where the page is not its own. `settle` finishes the fields of one sample where a table cannot
    say it; it gets the fields and the names of the page. `notice` is said beside every page: what
    it cannot tell.
    """

    name: str
    rows: tuple[Row, ...]
    skipped: Mapping[str, str]
    title: str = ""
    versions: str = ""
    recorded: str = ""
    observer: Observer = "engine"
    marks: tuple[str, ...] = ()
    empty_mark: str = ""
    rank_label: str | None = None
    role_label: str | None = None
    copied_labels: tuple[str, ...] = ()
    total_labels: Mapping[str, str] = _field(default_factory=dict)
    only_with: tuple[str, ...] = ()
    foreign_labels: tuple[str, ...] = ()
    model_labels: tuple[str, ...] = ("model_name",)
    tenant_labels: tuple[str, ...] = ()
    route_labels: tuple[str, ...] = ()
    secret_labels: tuple[str, ...] = ()
    absent_values: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    version_marks: Mapping[str, tuple[str | None, str | None]] = _field(default_factory=dict)
    remedy: str = ""
    notice: str | None = None
    read: Callable[[bytes], tuple[PageSample, ...] | None] | None = None
    settle: Callable[[Fields, frozenset[str]], None] | None = None

    def measures(self) -> tuple[str, ...]:
        """The fields this engine can fill, in table order, once each."""
        return tuple(dict.fromkeys(row.measure for row in self.rows))

    @cached_property
    def series_names(self) -> frozenset[str]:
        """Every series name the table takes values from."""
        return frozenset(name for row in self.rows for name in row.series_names())

    @cached_property
    def alternatives(self) -> dict[str, tuple[Row, ...]]:
        """Per field its rows in order of preference; fields in table order."""
        return {m: tuple(r for r in self.rows if r.measure == m) for m in self.measures()}

    def advice(self, row: Row) -> str:
        """What to do about a row that should be on a page and is not."""
        versions = f"{self.name} has it from {row.since}" if row.since else ""
        return "; ".join(part for part in (versions, row.remedy or self.remedy) if part)


def names_to_parse(engines: tuple[Engine, ...]) -> frozenset[str]:
    """Series and families these engines' tables need, start times included.

    A type line may name a counter's family with or without `_total`.
    """
    names = {"process_start_time_seconds"}
    for engine in engines:
        for name in engine.series_names.union(engine.watched, engine.version_marks):
            family = re.sub(r"_(total|bucket|sum|count)$", "", name)
            names.update((name, family, f"{family}_created", f"{family}_total"))
    return frozenset(names)


def tokens_of(amount: float, unit: Unit, block_size: int | None) -> int | None:
    """An amount as tokens: blocks by the block size; None where no conversion exists.

    Counts of requests or objects are not tokens, whatever their name says, and enter no sum
    of tokens; blocks of unknown size neither.
    """
    if unit == "tokens":
        return round(amount)
    if unit == "blocks" and block_size:
        return round(amount * block_size)
    return None


def counts_aside(fields: Fields) -> dict[str, int]:
    """What the `aside/NAME` rows rose by, for `settle`; without those that are not known."""
    aside = fields.get(ASIDE)
    return aside if isinstance(aside, dict) else {}


def leave_out_if_partly_reported(fields: Fields, _names: frozenset[str]) -> None:
    """Settles the page of a router: cached tokens of some requests do not go with the prompt tokens
    of all of them.

    Nothing takes their place: the router's prediction is not what the engines did.
    """
    reported = counts_aside(fields).get("reported_requests")
    requests = fields.get("finished_requests")
    if reported is not None and isinstance(requests, int) and reported < _ENOUGH * requests:
        fields.update(cached_tokens=None, lookup_tokens=None, lookup_hit_tokens=None)


@dataclass(frozen=True)
class VersionRange:
    """Which versions of a program serve such a page, as far as its names tell."""

    oldest: str | None = None
    newest: str | None = None

    def __str__(self) -> str:
        """ "0.32.0+", "0.9.2 to 0.14.1", "up to 0.9.0", or nothing."""
        if self.oldest and self.newest:
            return f"{self.oldest} to {self.newest}"
        if self.oldest:
            return f"{self.oldest}+"
        return f"up to {self.newest}" if self.newest else ""

    def may_have(self, row: Row) -> bool:
        """Whether some version in the range has the row's series."""
        too_new = row.since and self.newest and _order(row.since) > _order(self.newest)
        too_old = row.until and self.oldest and _order(row.until) < _order(self.oldest)
        return not too_new and not too_old

    def proves(self, row: Row) -> bool:
        """Whether every version in the range is at least the row's first."""
        return bool(row.since and self.oldest and _order(self.oldest) >= _order(row.since))


def version_range(engine: Engine, names: frozenset[str]) -> VersionRange:
    """What the series on a page prove about the version of the program.

    A row with conditions beyond its name proves nothing by the name alone. Contradictions
    (hidden old metrics switched on) leave only the lower bound, which new names prove.
    """
    spans = [span for name, span in engine.version_marks.items() if name in names]
    for row in engine.rows:
        plain = not (row.where or row.other_than or row.needs or row.label or row.proven)
        if plain and all(name in names for name in row.series_names()):
            spans.append((row.since, row.until))
    oldest = max((s for s, _ in spans if s and _VERSION.fullmatch(s)), key=_order, default=None)
    newest = min((u for _, u in spans if u and _VERSION.fullmatch(u)), key=_order, default=None)
    if oldest and newest and _order(newest) < _order(oldest):
        newest = None
    return VersionRange(oldest, newest)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
