"""One batch of lines into the store, in one transaction.

The lines are mapped into a temporary table `batch`; rows that are not simply accepted
(duplicates, conflicts, corrections) are settled in a second one; then requests, roll-ups,
counters, offsets and tallies are written together, so a crash leaves some prefix of the input.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from exporter.sources.formats.compile import DEFAULTS, REQUEST_COLUMNS, compile_careful
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.quick import compile_quick
from exporter.sources.lines import BadLine, LineBatch
from exporter.store import eligibility, fold, identity, live, rejects
from exporter.store.counters import CounterDelta
from exporter.store.identity import Facts, Settled
from exporter.store.store import Store


@dataclass(frozen=True)
class Stream:
    """Where lines come from. `source` is a configured name, never a path.

    `fingerprint` identifies a file by its first line (None over HTTP: a row without an id
    cannot be recognised again). `defaults` fill fields that rows do not have.
    """

    source: str
    log_format: LogFormat
    fingerprint: str | None = None
    defaults: dict[str, object] = field(default_factory=dict)


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
    store: Store, lines: LineBatch, stream: Stream, arrived: datetime | None = None
) -> BatchResult:
    """Maps, de-duplicates and stores a batch; returns after the commit."""
    arrived = _utc(arrived or datetime.now(UTC))
    with store.write() as cursor:
        result, delta = _Append(store, cursor, stream, arrived).run(lines)
    store.counters.apply(delta)
    store.added(result.accepted)
    return result


def _utc(moment: datetime) -> datetime:
    """Without a zone, as the store keeps time stamps."""
    return moment.astimezone(UTC).replace(tzinfo=None)


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

    def run(self, lines: LineBatch) -> tuple[BatchResult, CounterDelta]:
        self._map(lines)
        eligibility.mark_batch(self.cursor)
        facts, refused = self._facts()
        merges = self.stream.log_format.merges_lines
        settled = identity.settle(self.cursor, self.stream.source, merges, facts)
        result, late_tokens = self._tally(settled)
        delta = CounterDelta(late_tokens=late_tokens)
        if settled.corrected:
            self._correct(settled, facts, delta)
        else:
            self._insert(settled)
        if lines.bad or settled.conflicting or refused:
            self._reject(lines.bad, result, delta)
        self._remember(lines, result, delta)
        return result, delta

    def _map(self, lines: LineBatch) -> None:
        """Reads the lines into `batch`; rows the quick reading doubts are read with care."""
        log_format, given = self.stream.log_format, self.stream.defaults
        self.cursor.register("lines", lines.table)
        self.cursor.execute(_BATCH_TABLE)
        quick = compile_quick(log_format, frozenset(given))
        self._read(f"INSERT INTO batch BY NAME {quick}")
        doubts = self.cursor.execute("SELECT position FROM batch WHERE doubtful").fetchnumpy()
        if len(doubts["position"]):
            self.cursor.execute("DELETE FROM batch WHERE doubtful")
            doubtful = pc.is_in(lines.table["position"], pa.array(doubts["position"]))
            self.cursor.register("lines", lines.table.filter(doubtful))
            self._read(f"INSERT INTO batch BY NAME {compile_careful(log_format)}")
        self.cursor.unregister("lines")

    def _read(self, statement: str) -> None:
        """Runs a reading of a format with the parameters it names."""
        parameters = {
            "source": self.stream.source,
            "arrived": self.arrived,
            "key": self.store.key,
            "hit_threshold_ratio": self.store.settings.hit_threshold_ratio,
            "fingerprint": self.stream.fingerprint,
            **{f"default_{name}": self.stream.defaults.get(name) for name in DEFAULTS},
        }
        named = set(re.findall(r"\$(\w+)", statement))
        self.cursor.execute(
            statement, {name: value for name, value in parameters.items() if name in named}
        )

    def _facts(self) -> tuple[Facts, int]:
        row = self.cursor.execute(f"SELECT {identity.FACTS}, count(reason) FROM batch").fetchone()
        assert row is not None
        return Facts(*row[:-1]), row[-1]

    def _tally(self, settled: Settled) -> tuple[BatchResult, int]:
        """Sums the rows that stay; also the tokens of those too late for the counters."""
        row = self.cursor.execute(
            f"SELECT {_TALLY} FROM batch WHERE {_kept(settled)}",
            {"live_seconds": self.store.settings.live_window_seconds},
        ).fetchone()
        assert row is not None
        kept, flagged, self._span, late, late_tokens, *tokens = row
        self._late = late, late_tokens
        result = BatchResult(
            accepted=kept - settled.corrected,
            duplicate=settled.duplicate,
            corrected=settled.corrected,
            conflicting=settled.conflicting,
        )
        (
            result.prompt_tokens,
            result.eligible_prompt_tokens,
            result.reported_prompt_tokens,
            result.cached_tokens,
        ) = tokens
        if flagged:
            result.flags = dict(
                self.cursor.execute(
                    f"""SELECT unnest(flags) AS flag, count(*) FROM batch
                    WHERE {_kept(settled)} GROUP BY flag"""
                ).fetchall()
            )
        return result, late_tokens

    def _insert(self, settled: Settled) -> None:
        self.store.last_batch += 1
        columns = ", ".join(REQUEST_COLUMNS)
        self.cursor.execute(
            f"""INSERT INTO requests BY NAME
            SELECT {columns}, $batch::BIGINT AS batch FROM batch WHERE {_kept(settled)}""",
            {"batch": self.store.last_batch},
        )

    def _correct(self, settled: Settled, facts: Facts, delta: CounterDelta) -> None:
        """Stores a batch that corrects rows: everything is folded, the old sums taken back."""
        counters, live_seconds = self.store.counters, self.store.settings.live_window_seconds
        delta.merge(fold.fold(self.cursor, counters, live_seconds))
        merges = self.stream.log_format.merges_lines
        identity.supersede(self.cursor, self.stream.source, merges, facts)
        self._insert(settled)
        kept = f"(SELECT * FROM batch WHERE {_kept(settled)})"
        delta.merge(
            fold.replace_folded(self.cursor, counters, live_seconds, "superseded", kept)
        )
        fold.set_folded(self.cursor, self.store.last_batch)

    def _reject(self, bad: list[BadLine], result: BatchResult, delta: CounterDelta) -> None:
        source = self.stream.source
        result.reasons, stored = rejects.keep(
            self.cursor,
            bad,
            source=source,
            source_format=self.stream.log_format.name,
            fingerprint=self.stream.fingerprint,
            arrived=self.arrived,
        )
        delta.rejected = {(source, reason): count for reason, count in stored.items()}

    def _remember(self, lines: LineBatch, result: BatchResult, delta: CounterDelta) -> None:
        """The tally of the batch and how far its file has been read."""
        source, name = self.stream.source, self.stream.log_format.name
        span = self._span or {"first": None, "last": None}
        self.cursor.execute(
            """INSERT INTO ingest_batches VALUES (date_trunc('hour', $arrived::TIMESTAMP),
                $source, $name, $accepted, $duplicate, $corrected, $conflicting, $rejected,
                $late, $late_tokens, $first, $last, $arrived, $flags)""",
            {
                "arrived": self.arrived,
                "source": source,
                "name": name,
                "accepted": result.accepted,
                "duplicate": result.duplicate,
                "corrected": result.corrected,
                "conflicting": result.conflicting,
                "rejected": result.rejected,
                "late": self._late[0],
                "late_tokens": self._late[1],
                "first": span["first"],
                "last": span["last"],
                "flags": result.flags,
            },
        )
        delta.ingested = {(source, name): result.accepted}
        delta.last_arrived = self.arrived if result.accepted else None
        if self.stream.fingerprint is not None:
            self.cursor.execute(
                """INSERT INTO offsets VALUES ($source, $fingerprint, $end, $lines, $arrived)
                ON CONFLICT DO UPDATE SET position = greatest(position, excluded.position),
                    lines = greatest(lines, excluded.lines), updated = excluded.updated""",
                {
                    "source": source,
                    "fingerprint": self.stream.fingerprint,
                    "end": lines.end,
                    "lines": lines.lines,
                    "arrived": self.arrived,
                },
            )


_BATCH_TABLE = """CREATE OR REPLACE TEMP TABLE batch AS
SELECT 0::BIGINT AS position, 0::BIGINT AS line_number, false AS doubtful,
    ''::VARCHAR AS reason, ''::VARCHAR AS excerpt, * EXCLUDE (batch)
FROM requests LIMIT 0"""

_REPORTED = "prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL AND ineligible_reason IS NULL"
_LATE = f"NOT ({live.LIVE})"
_TALLY = f"""
    count(*), count(flags), {{'first': min(ts), 'last': max(ts)}},
    count(*) FILTER ({_LATE}),
    coalesce(sum(prompt_tokens) FILTER ({_LATE}), 0)::BIGINT,
    coalesce(sum(prompt_tokens), 0)::BIGINT,
    coalesce(sum(prompt_tokens) FILTER (ineligible_reason IS NULL), 0)::BIGINT,
    coalesce(sum(prompt_tokens) FILTER ({_REPORTED}), 0)::BIGINT,
    coalesce(sum(cached_tokens) FILTER ({_REPORTED}), 0)::BIGINT"""


def _kept(settled: Settled) -> str:
    """SQL condition on rows of `batch` that reach the store (corrections among them)."""
    if not settled.exceptions:
        return "reason IS NULL"
    dropped = "SELECT position FROM settled WHERE verdict <> 'corrected'"
    return f"reason IS NULL AND position NOT IN ({dropped})"
