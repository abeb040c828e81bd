"""What a mapping table of an engine's metric page is made of.

One row says: these exposed series, selected by these labels, are this field of
`EngineSample`, in this unit. Rows for the same field are alternatives in order of preference,
which is how renamed metrics are followed through an engine's versions. A field no row can
fill is *missing*, which is never the same as 0.
"""

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "info"]
Unit = Literal["tokens", "blocks", "requests", "seconds", "ratio", "events", "yes_or_no"]
Fact = float | bool
# The fields of one EngineSample while it is put together.
Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a mapping table.

    `exposed` are the series names whose sum is the value; all of them must be on the page.
    `where` keeps only series whose label has one of the values. `label` names the label that
    holds the fact (kind "info"). `less` is taken off before units are converted (a block no
    request can use). `from_zero`: the engine shows no series until it is above 0, so that on
    a page with prompt tokens its absence means 0. `needs` is a label without which the value
    cannot be trusted. `expected` rows are reported when none of a field's rows is found.
    """

    measure: str
    kind: Kind
    unit: Unit
    exposed: tuple[str, ...]
    meaning: str
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)
    label: str | None = None
    less: int = 0
    from_zero: bool = False
    needs: str | None = None
    since: str | None = None
    until: str | None = None
    expected: bool = True
    provenance: str | None = None


@dataclass(frozen=True)
class Engine:
    """The mapping table of one engine and how its labels are to be read.

    `rank_label` tells data-parallel ranks apart: each has a cache of its own. `copied_labels`
    are ranks that all repeat the same token count: one of them is read, never their sum.
    `total_labels` name, per label, the value that already is the total of the others.
    Series with `foreign_label` but no rank label are another program's copies of this
    engine's names. `watched` counters are read only to see that the page is alive. `settle`
    finishes the fields of one sample where a table cannot say it; it gets the fields and the
    names of the page.
    """

    name: str
    rows: tuple[Row, ...]
    skipped: Mapping[str, str]
    rank_label: str | None = None
    role_label: str | None = None
    copied_labels: tuple[str, ...] = ()
    total_labels: Mapping[str, str] = field(default_factory=dict)
    foreign_label: str | None = None
    watched: tuple[str, ...] = ()
    settle: Callable[[Fields, frozenset[str]], None] | None = None

    def measures(self) -> tuple[str, ...]:
        """The fields this engine can fill, in table order, once each."""
        return tuple(dict.fromkeys(row.measure for row in self.rows))

    @cached_property
    def series_names(self) -> frozenset[str]:
        """Every series name the table reads; of a histogram its three parts."""
        names: set[str] = set()
        for row in self.rows:
            for name in row.exposed:
                parts = ("_bucket", "_sum") if row.kind == "histogram" else ("",)
                names.update(name + part for part in parts)
        return frozenset(names)

    @cached_property
    def alternatives(self) -> dict[str, tuple[Row, ...]]:
        """Per field its rows in order of preference; fields in table order."""
        return {m: tuple(r for r in self.rows if r.measure == m) for m in self.measures()}

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the table reads other series than before."""
        text = "\n".join(sorted(self.series_names))
        return f"{zlib.crc32(text.encode()):08x}"


def names_to_parse(engines: tuple[Engine, ...]) -> frozenset[str]:
    """Series and families these engines' tables need, start times included.

    A type line may name a counter's family with or without `_total`.
    """
    names = {"process_start_time_seconds"}
    for engine in engines:
        for name in engine.series_names.union(engine.watched):
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


def version_at_least(rows: list[Row]) -> str | None:
    """What the rows found on a page prove about the engine's version: "0.32.0+", or None."""
    known = [row.since for row in rows if row.since and re.fullmatch(r"[\d.]+", row.since)]
    newest = max(known, key=lambda text: [int(part) for part in text.split(".")], default=None)
    return f"{newest}+" if newest else None
