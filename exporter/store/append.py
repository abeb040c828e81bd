"""Batches of lines into the store.

The lines are mapped straight into `requests`; then rows that repeat, contradict or correct
earlier ones are found and settled, and the tally and the offset are written, all in one
transaction: a crash leaves some prefix of the input. Roll-ups and counters follow in a fold.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from exporter.causes.corrections import keep_corrected
from exporter.prompts.lines import reshape_of
from exporter.sources.formats.careful import compile_careful
from exporter.sources.formats.expressions import DEFAULTS
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.quick import compile_quick, compile_told
from exporter.sources.lines import SCHEMA, BadLine, LineBatch, for_threads
from exporter.store import bridged, decode, eligibility, fold, identity, join, live, rejects
from exporter.store.counters import CounterDelta
from exporter.store.feed import Feed
from exporter.store.identity import Facts, Settled
from exporter.store.rollup import REPORTED
from exporter.store.store import Store
from exporter.templates_found.assign import ASSIGN_FRESH
from queries.times import utc_without_zone


@dataclass(frozen=True)
class Stream:
    """Where lines come from. `source` is a configured name, never a path.

    `fingerprint` identifies a file by its first line (None over HTTP: a row without an id
    cannot be recognised again). `defaults` fill fields that rows do not have. Times that count
    from the start of a trace are laid from `began`.
    """

    source: str
    log_format: LogFormat
    fingerprint: str | None = None
    defaults: dict[str, object] = field(default_factory=dict)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class BatchResult:
    """What became of the rows of one batch."""

    accepted: int = 0
    duplicate: int = 0
    corrected: int = 0
    conflicting: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    flags: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    eligible_prompt_tokens: int = 0
    reported_prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def rejected(self) -> int:
        return sum(self.reasons.values())


def append(
    store: Store,
    lines: LineBatch,
    stream: Stream,
    arrived: datetime | None = None,
    also: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
) -> BatchResult:
    """Maps, de-duplicates and stores a batch; returns after the commit. `also` writes what must
    be true of these rows and of no others, in the same transaction."""
    reshape = reshape_of(stream.log_format, store.prompts, store.key)
    feed = Feed(iter([lines]), reshape, store.aside, alone=True)
    return _append(store, feed, stream, arrived, also)


def append_many(store: Store, batches: Iterator[LineBatch], stream: Stream) -> BatchResult:
    """Stores batches as one, in one transaction: all of them, or as many as a transaction takes.

    For a large load that is far cheaper: rows enough to fill DuckDB's row groups reach the
    file at once instead of through its log.
    """
    first = next(batches, None)
    if first is None:
        return BatchResult()
    reshape = reshape_of(stream.log_format, store.prompts, store.key)
    feed = Feed(chain([first], batches), reshape, store.aside)
    with store.large_load():
        return _append(store, feed, stream)


def _append(
    store: Store,
    feed: Feed,
    stream: Stream,
    arrived: datetime | None = None,
    also: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
) -> BatchResult:
    with store.write() as cursor:
        steps = _Append(store, cursor, stream, utc_without_zone(arrived or datetime.now(UTC)))
        result, delta = steps.run(feed)
        if also:
            also(cursor)
    store.counters.apply(delta)
    store.added(steps.fresh.batch, result.accepted + result.corrected)
    return result


class _Append:
    """The steps of one batch, sharing one cursor."""

    def __init__(
        self,
        store: Store,
        cursor: duckdb.DuckDBPyConnection,
        stream: Stream,
        arrived: datetime,
    ) -> None:
        self.store, self.cursor, self.stream, self.arrived = store, cursor, stream, arrived
        self.may_repeat = True  # the id of a fresh row, as far as it is known without asking
        store.last_batch += 1
        merges = stream.log_format.merges_lines
        joins = len(store.sides) > 1
        self.fresh = identity.Fresh(store.last_batch, stream.source, merges, joins, store.parsed)

    def run(self, feed: Feed) -> tuple[BatchResult, CounterDelta]:
        fresh = self.fresh
        refused = self._map(feed)
        if self.stream.log_format.bridges_calls:
            bridged.flag_fresh(self.cursor, fresh.batch)
        look = self._look()
        caching_off = eligibility.any_off(self.cursor)
        if caching_off:
            eligibility.mark_fresh(self.cursor, fresh.batch)
        settled = identity.settle(self.cursor, fresh, look.facts(self.may_repeat))
        delta = CounterDelta()
        if settled.corrected:
            self._correct(delta)
        joined = self._join(look.sides(), delta)
        turned = decode.looks_so(look.may_be_decode, look.kept) and decode.mark(
            self.cursor, look.first_ts, look.last_ts
        )
        if caching_off or joined is not None or turned or settled != Settled():
            look = self._look()
        if look.chains:
            self._assign_templates()
        result = self._result(settled, look)
        result.accepted += joined or 0  # both rows of a pair were taken, though one is left
        delta.late_tokens = look.late_tokens or 0
        result.flags.update(feed.left_out)
        if feed.bad or settled.conflicting or refused:
            self.cursor.register("places", feed.places())
            self._reject(feed.bad, refused > 0, result, delta)
            self.cursor.unregister("places")
        self._remember(feed, look, result, delta)
        return result, delta

    def _map(self, feed: Feed) -> int:
        """Reads the lines into `requests`; rows the quick reading doubts are read with care.

        Returns the number of rows refused; temp table `careful` has them.
        """
        doubted = self._map_standing(feed) if feed.alone else None
        if doubted is None:
            doubted = self._map_once(feed)
        if not doubted.num_rows:
            return 0
        self.cursor.register("doubted_lines", for_threads(doubted))
        careful = compile_careful(self.stream.log_format).replace(
            "FROM lines", "FROM doubted_lines"
        )
        self._read(f"CREATE OR REPLACE TEMP TABLE careful AS {careful}")
        self.cursor.unregister("doubted_lines")
        refused: int = doubted.num_rows - self._read(_INSERT_CAREFUL)
        return refused

    def _map_standing(self, feed: Feed) -> pa.Table | None:
        """Reads the lines by the standing reading, if there is one already; returns the doubted."""
        told = compile_told(self.stream.log_format, self._given)
        # It stands for a day: a later time of arrival makes no row more doubtful than it is.
        began = self.arrived.replace(hour=0, minute=0, second=0, microsecond=0)
        parameters = self._parameters(told) | {"arrived": began}
        reading = self.store.readings.again(told, parameters)
        if reading is None:
            return None
        lines = pa.Table.from_batches(feed.record_batches(), SCHEMA)
        if not lines.num_rows:
            return lines
        rows = reading.read(lines)
        doubted = rows["doubted"]
        rows = rows.drop_columns("doubted")
        if pc.any(doubted).as_py():
            lines, rows = lines.filter(doubted), rows.filter(pc.invert(doubted))
        else:
            lines = lines.slice(0, 0)
            self.may_repeat = pc.count_distinct(rows["request_id"]).as_py() < rows.num_rows
        if rows.num_rows:
            reading.show(self.cursor, _stamped(rows, self.fresh.batch, self.arrived))
            self.cursor.execute(self.store.parsed(_INSERT_STANDING.format(reading=reading.name)))
        return lines

    def _map_once(self, feed: Feed) -> pa.Table:
        """Reads the lines by a reading of their own; returns the doubted."""
        quick = compile_quick(self.stream.log_format, self._given)
        self.store.aside.take()  # what a batch that failed may have left
        self.cursor.register("lines", feed.reader())
        try:
            self._read(f"INSERT INTO requests BY NAME {quick}")
        except duckdb.Error:
            feed.check()
            raise
        self.cursor.unregister("lines")
        return self.store.aside.take()

    @property
    def _given(self) -> frozenset[str]:
        return frozenset(self.stream.defaults)

    def _read(self, statement: str) -> int:
        """Runs a reading of a format; returns the rows changed."""
        changed: int
        [(changed,)] = self.cursor.execute(
            self.store.parsed(statement), self._parameters(statement)
        ).fetchall()
        return changed

    def _parameters(self, statement: str) -> dict[str, object]:
        """The parameters a reading of a format names."""
        parameters = {
            "source": self.stream.source,
            "arrived": self.arrived,
            "began": utc_without_zone(self.stream.began),
            "batch": self.fresh.batch,
            "earliest": self.store.earliest,
            "key": self.store.key,
            "hit_threshold_ratio": self.store.settings.hit_threshold_ratio,
            "fingerprint": self.stream.fingerprint,
            **{f"default_{name}": self.stream.defaults.get(name) for name in DEFAULTS},
        }
        named = _named(statement)
        return {name: value for name, value in parameters.items() if name in named}

    def _look(self) -> "_Look":
        [row] = self.cursor.execute(
            self.store.parsed(_LOOK),
            {
                "batch": self.fresh.batch,
                "live_seconds": self.store.settings.live_window_seconds,
            },
        ).fetchall()
        return _Look(*row)

    def _result(self, settled: Settled, look: "_Look") -> BatchResult:
        return BatchResult(
            look.kept - settled.corrected,
            settled.duplicate,
            settled.corrected,
            settled.conflicting,
            {},
            look.flags(),
            look.prompt_tokens or 0,
            look.eligible_prompt_tokens or 0,
            look.reported_prompt_tokens or 0,
            look.cached_tokens or 0,
        )

    def _join(self, sides: set[str], delta: CounterDelta) -> int | None:
        """Joins fresh rows with the other side's, if both sides ever wrote; see `join_fresh`."""
        self.store.sides.update(sides)
        if not sides or len(self.store.sides) < 2:
            return None
        settings = self.store.settings
        joined = join.join_fresh(
            self.cursor, self.fresh, settings.join_window_seconds, settings.hit_threshold_ratio
        )
        if joined is not None:
            self._correct(delta)
        return joined

    def _correct(self, delta: CounterDelta) -> None:
        """Removes the rows in `superseded`; sums of them that were folded are taken back."""
        counters, live_seconds = self.store.counters, self.store.settings.live_window_seconds
        self._assign_templates()  # before the rows of this batch are folded
        if fold.any_folded(self.cursor, "superseded"):
            delta.merge(fold.fold(self.cursor, counters, live_seconds, superseded="superseded"))
        keep_corrected(self.cursor, self.fresh.batch)
        identity.supersede(self.cursor)

    def _assign_templates(self) -> None:
        """Gives fresh rows that name no template the found one their chain begins with."""
        if self.store.found_blocks:
            asked = {"batch": self.fresh.batch, "blocks": self.store.found_blocks}
            self.cursor.execute(self.store.parsed(ASSIGN_FRESH), asked)

    def _reject(
        self, bad: list[BadLine], unreadable: bool, result: BatchResult, delta: CounterDelta
    ) -> None:
        source = self.stream.source
        result.reasons, stored = rejects.keep(
            self.cursor,
            bad,
            unreadable=unreadable,
            conflicting=result.conflicting > 0,
            source=source,
            source_format=self.stream.log_format.name,
            fingerprint=self.stream.fingerprint,
            arrived=self.arrived,
        )
        delta.rejected = {(source, reason): count for reason, count in stored.items()}

    def _remember(
        self, feed: Feed, look: "_Look", result: BatchResult, delta: CounterDelta
    ) -> None:
        """The tally of the batch and how far its file has been read."""
        source, name = self.stream.source, self.stream.log_format.name
        self.cursor.execute(
            self.store.parsed(_INSERT_TALLY),
            {
                "arrived": self.arrived,
                "source": source,
                "name": name,
                "accepted": result.accepted,
                "duplicate": result.duplicate,
                "corrected": result.corrected,
                "conflicting": result.conflicting,
                "rejected": result.rejected,
                "late": look.late_requests,
                "late_tokens": delta.late_tokens,
                "first": look.first_ts,
                "last": look.last_ts,
                "flags": result.flags,
            },
        )
        delta.ingested = {(source, name): result.accepted}
        delta.last_arrived = self.arrived if result.accepted else None
        if self.stream.fingerprint is not None:
            self.cursor.execute(
                self.store.parsed(_KEEP_OFFSET),
                {
                    "source": source,
                    "fingerprint": self.stream.fingerprint,
                    "end": feed.end,
                    "lines": feed.lines,
                    "arrived": self.arrived,
                },
            )


class _Look(NamedTuple):
    """What settling, joining and the tally need to know of the fresh rows, in the order of `_LOOK`;
    a sum over no row is None."""

    kept: int
    identified: int
    first_ts: datetime | None
    last_ts: datetime | None
    first_side: str | None
    last_side: str | None
    chains: int
    may_be_decode: int
    flagged: str | None
    late_requests: int
    late_tokens: int | None
    prompt_tokens: int | None
    eligible_prompt_tokens: int | None
    reported_prompt_tokens: int | None
    cached_tokens: int | None

    def flags(self) -> dict[str, int]:
        """How many fresh rows carry each flag."""
        return dict(Counter((self.flagged or "").split()))

    def sides(self) -> set[str]:
        return {side for side in (self.first_side, self.last_side) if side}

    def facts(self, may_repeat: bool) -> Facts:
        untimed = not identity.NO_TIME_FLAGS.isdisjoint(self.flags())
        return Facts(self.identified, may_repeat, untimed, self.first_ts, self.last_ts)


_LATE = f"NOT ({live.LIVE})"
# As few and as plain sums as will do: planning one of them takes longer than adding up five
# hundred rows. For the same reason flags are one text, not a histogram of lists.
_LOOK = f"""SELECT count(*), count(request_id), min(ts), max(ts), min(side), max(side),
    count(block_hashes), count(*) FILTER ({decode.MAY_BE_DECODE}),
    string_agg(array_to_string(flags, ' '), ' '),
    count(*) FILTER ({_LATE}), sum(prompt_tokens) FILTER ({_LATE}), sum(prompt_tokens),
    sum(prompt_tokens) FILTER (ineligible_reason IS NULL),
    sum(prompt_tokens) FILTER ({REPORTED}), sum(cached_tokens) FILTER ({REPORTED})
    FROM requests WHERE batch = $batch"""
_INSERT_STANDING = "INSERT INTO requests BY NAME SELECT * FROM {reading}"
_INSERT_CAREFUL = """INSERT INTO requests BY NAME
    SELECT $batch::BIGINT AS batch, * EXCLUDE (line_number, reason, excerpt)
    FROM careful WHERE reason IS NULL"""
_INSERT_TALLY = """INSERT INTO ingest_batches VALUES (date_trunc('hour', $arrived::TIMESTAMP),
    $source, $name, $accepted, $duplicate, $corrected, $conflicting, $rejected,
    $late, $late_tokens, $first, $last, $arrived, $flags)"""
_KEEP_OFFSET = """INSERT INTO offsets VALUES ($source, $fingerprint, $end, $lines, $arrived)
    ON CONFLICT DO UPDATE SET position = greatest(position, excluded.position),
        lines = greatest(lines, excluded.lines), updated = excluded.updated"""


def _stamped(rows: pa.Table, batch: int, arrived: datetime) -> pa.Table:
    """The rows with their batch, and when they really came."""
    count, place = rows.num_rows, rows.schema.get_field_index("arrived")
    rows = rows.set_column(place, "arrived", pa.repeat(pa.scalar(arrived), count))
    return rows.append_column("batch", pa.repeat(pa.scalar(batch), count))


@cache
def _named(statement: str) -> frozenset[str]:
    return frozenset(re.findall(r"\$(\w+)", statement))
