"""One batch of lines into the store, in one transaction.

The lines are mapped into a temporary table `batch`; rows that are not simply accepted
(duplicates, conflicts, corrections) are settled in a second one; then requests, roll-ups,
counters, offsets and tallies are written together, so a crash leaves some prefix of the input.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from exporter.sources.formats.compile import DEFAULTS, compile_format, request_columns
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.lines import BadLine, LineBatch
from exporter.store import eligibility, identity, live, rejects, rollup
from exporter.store.counters import OTHER, CounterDelta
from exporter.store.identity import Settled
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
        settled = identity.settle(self.cursor, self.stream.source, self.stream.log_format)
        eligibility.mark_batch(self.cursor)
        result = self._result(settled)
        delta = self._write(settled)
        self._reject(lines.bad, result, delta)
        self._tally(result, settled, delta)
        self._remember_offset(lines)
        return result, delta

    def _map(self, lines: LineBatch) -> None:
        """Reads the lines into `batch`; rows the quick reading doubts are read with care."""
        log_format = self.stream.log_format
        parameters = {
            "source": self.stream.source,
            "arrived": self.arrived,
            "key": self.store.key,
            "hit_threshold_ratio": self.store.settings.hit_threshold_ratio,
            "fingerprint": self.stream.fingerprint,
            **{f"default_{name}": self.stream.defaults.get(name) for name in DEFAULTS},
        }
        self.cursor.register("lines", lines.table)
        self.cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE batch AS {compile_format(log_format)}", parameters
        )
        doubts = self.cursor.execute("SELECT position FROM batch WHERE doubtful").fetchnumpy()
        if len(doubts["position"]):
            self.cursor.execute("DELETE FROM batch WHERE doubtful")
            doubtful = pc.is_in(lines.table["position"], pa.array(doubts["position"]))
            self.cursor.register("lines", lines.table.filter(doubtful))
            self.cursor.execute(
                f"INSERT INTO batch {compile_format(log_format, careful=True)}", parameters
            )
        self.cursor.unregister("lines")

    def _result(self, settled: Settled) -> BatchResult:
        reported = "prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL"
        row = self.cursor.execute(
            f"""SELECT count(*), coalesce(sum(prompt_tokens), 0)::BIGINT,
                coalesce(sum(prompt_tokens) FILTER (ineligible_reason IS NULL), 0)::BIGINT,
                coalesce(sum(prompt_tokens) FILTER (
                    {reported} AND ineligible_reason IS NULL), 0)::BIGINT,
                coalesce(sum(cached_tokens) FILTER (
                    {reported} AND ineligible_reason IS NULL), 0)::BIGINT
            FROM batch WHERE {_kept(settled)}"""
        ).fetchone()
        assert row is not None
        kept, prompt, eligible, reported_prompt, cached = row
        return BatchResult(
            accepted=kept - settled.corrected,
            duplicate=settled.duplicate,
            corrected=settled.corrected,
            conflicting=settled.conflicting,
            flags=dict(self.cursor.execute(
                f"""SELECT flag, count(*) FROM (SELECT unnest(flags) AS flag FROM batch
                WHERE flags IS NOT NULL AND {_kept(settled)}) GROUP BY ALL"""
            ).fetchall()),
            prompt_tokens=prompt,
            eligible_prompt_tokens=eligible,
            reported_prompt_tokens=reported_prompt,
            cached_tokens=cached,
        )  # fmt: skip

    def _write(self, settled: Settled) -> CounterDelta:
        columns = ", ".join(request_columns(self.stream.log_format))
        self.cursor.execute(
            f"INSERT INTO requests ({columns}) SELECT {columns} FROM batch WHERE {_kept(settled)}"
        )
        tenant = self._folded_tenant()
        rollup.add(self.cursor, "batch", where=_kept(settled), tenant=tenant)
        if settled.corrected:
            rollup.add(self.cursor, "superseded", sign=-1, tenant=tenant)
        return self._count(settled)

    def _folded_tenant(self) -> str:
        """SQL of the tenant a roll-up keeps; plain while no tenant had to be folded."""
        bounds = self.store.counters.bounds
        tenants = self.cursor.execute(
            "SELECT DISTINCT tenant FROM batch WHERE tenant IS NOT NULL"
        ).fetchall()
        live.admit(self.cursor, bounds, "tenant", (tenant for (tenant,) in tenants))
        if not bounds.overflows("tenant"):
            return "tenant"
        known = "SELECT value FROM label_values WHERE label = 'tenant'"
        return f"CASE WHEN tenant IS NULL OR tenant IN ({known}) THEN tenant ELSE '{OTHER}' END"

    def _count(self, settled: Settled) -> CounterDelta:
        parameters: dict[str, object] = {
            "arrived": self.arrived,
            "live_seconds": self.store.settings.live_window_seconds,
        }
        relation = f"(SELECT * FROM batch WHERE {_kept(settled)})"
        delta = live.collect(self.cursor, self.store.counters, relation, parameters)
        if settled.corrected:
            old = live.collect(self.cursor, self.store.counters, "superseded", parameters)
            delta.subtract(old)
        live.persist(self.cursor, delta)
        return delta

    def _reject(self, bad: list[BadLine], result: BatchResult, delta: CounterDelta) -> None:
        refused = self.cursor.execute(
            "SELECT count(reason) FROM batch"
        ).fetchone()  # fmt: skip
        if not bad and not result.conflicting and not (refused and refused[0]):
            return
        result.reasons, stored = rejects.keep(
            self.cursor,
            bad,
            source=self.stream.source,
            source_format=self.stream.log_format.name,
            fingerprint=self.stream.fingerprint,
            arrived=self.arrived,
        )
        source = self.stream.source
        delta.rejected = {(source, reason): count for reason, count in stored.items()}

    def _tally(self, result: BatchResult, settled: Settled, delta: CounterDelta) -> None:
        source, name = self.stream.source, self.stream.log_format.name
        row = self.cursor.execute(
            f"""INSERT INTO ingest_batches BY NAME
            SELECT date_trunc('hour', $arrived::TIMESTAMP) AS hour, $source AS source,
                $name AS source_format, $accepted AS accepted, $duplicate AS duplicate,
                $corrected AS corrected, $conflicting AS conflicting, $rejected AS rejected,
                count(*) FILTER (late) AS late_requests,
                coalesce(sum(prompt_tokens) FILTER (late), 0)::BIGINT AS late_tokens,
                min(ts) AS first_ts, max(ts) AS last_ts,
                $arrived::TIMESTAMP AS last_arrived,
                map_from_entries($flags::STRUCT(key VARCHAR, value BIGINT)[]) AS flags
            FROM (SELECT *, ts < $arrived::TIMESTAMP - to_seconds($live_seconds) AS late
                FROM batch WHERE {_kept(settled)})
            RETURNING late_tokens""",
            {
                "arrived": self.arrived,
                "source": source,
                "name": name,
                "accepted": result.accepted,
                "duplicate": result.duplicate,
                "corrected": result.corrected,
                "conflicting": result.conflicting,
                "rejected": result.rejected,
                "live_seconds": self.store.settings.live_window_seconds,
                "flags": [{"key": key, "value": count} for key, count in result.flags.items()],
            },
        ).fetchone()
        assert row is not None
        delta.late_tokens = row[0]
        delta.ingested = {(source, name): result.accepted}
        delta.last_arrived = self.arrived if result.accepted else None

    def _remember_offset(self, lines: LineBatch) -> None:
        if self.stream.fingerprint is not None:
            self.cursor.execute(
                """INSERT INTO offsets VALUES ($source, $fingerprint, $end, $lines, $arrived)
                ON CONFLICT DO UPDATE SET position = greatest(position, excluded.position),
                    lines = greatest(lines, excluded.lines), updated = excluded.updated""",
                {
                    "source": self.stream.source,
                    "fingerprint": self.stream.fingerprint,
                    "end": lines.end,
                    "lines": lines.lines,
                    "arrived": self.arrived,
                },
            )


def _kept(settled: Settled) -> str:
    """SQL condition on rows of `batch` that reach the store (corrections among them)."""
    if not settled.exceptions:
        return "reason IS NULL"
    dropped = "SELECT position FROM settled WHERE verdict <> 'corrected'"
    return f"reason IS NULL AND position NOT IN ({dropped})"
