"""Seals minutes: names the causes of their missed tokens, once, and keeps the sums.

A minute is sealed when it has been over for two minutes. Rows that come later than that are counted
as late, and what their prompts had is known from then on. Everything a seal writes is one
transaction, so that no minute is sealed twice and none left out, however the process ends.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from exporter.blocks.held import HeldCache
from exporter.causes import corrections, sums
from exporter.causes import state as states
from exporter.causes.live import LiveMissed
from exporter.causes.naming import NamedPart, Reset, RowSpan, named_parts
from exporter.causes.settings import CauseSettings
from exporter.causes.spans import Span, sealable_until, spans
from exporter.causes.state import CauseState
from exporter.isolation.crossed import CrossedTotals, EngineKey, add_crossed
from exporter.store.database import cursor_beside
from exporter.store.store import Store
from queries import registry
from queries.times import utc_without_zone

# What caches held after a moment, by the events of their engines.
HeldSince = Callable[[float], Sequence[HeldCache]]

_log = logging.getLogger(__name__)

_FOLD_PATIENCE_SECONDS = 1.0
# What is remembered of a block takes two bytes more for each replica that was ever met: so many
# may have been, or so many times those that served of late.
MOST_REPLICAS, MOST_TIMES_SERVING = 64, 4
_OF_LATE = timedelta(hours=1)
# Resets that emptied no cache: its state was given up, not its blocks.
_NO_RESET = "lost_events"
# How much later than it happened a reset may be told.
_RESET_SLACK = timedelta(hours=1)


class Sealer:
    """Seals the minutes of one store; one thread at a time. The memory is read from the store
    when it is needed first, and again after a seal that failed."""

    def __init__(
        self,
        store: Store,
        settings: CauseSettings | None = None,
        held_since: HeldSince | None = None,
    ) -> None:
        self._store, self._settings = store, settings or CauseSettings()
        self._held_since = held_since
        self._sealing = threading.Lock()
        self._state: CauseState | None = None
        self._is_loaded = False
        self.crossed = CrossedTotals()
        self.crossed.restore(store.cursor())

    def seal(
        self,
        now: datetime,
        *,
        wait_for_older: bool = True,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> int:
        """Seal every minute that is over for two minutes, unless stopped between; how many spans
        of minutes that were.

        `wait_for_older`: rows much older than they came in may still be on their way (an exporter
        cannot know where a load ends), so minutes wait until none came for two minutes.
        """
        with self._sealing:
            try:
                return self._seal(utc_without_zone(now), wait_for_older, is_stopped)
            except BaseException:
                # What is in memory may be ahead of the store.
                self._state, self._is_loaded = None, False
                raise

    @property
    def memory_bytes(self) -> int:
        """What the memory takes."""
        parts = {} if self._state is None else self._state.parts
        return sum(part.stream.memory.bytes for part in parts.values())

    def _seal(self, now: datetime, wait_for_older: bool, is_stopped: Callable[[], bool]) -> int:
        # Tenants are let in before their causes are summed.
        if wait_for_older:
            self._store.fold_settled(_FOLD_PATIENCE_SECONDS)
        else:
            self._store.fold()
        with self._store.cursor() as cursor:
            if not self._is_loaded:
                self._state = self._loaded(cursor)
                self._is_loaded = True
            # Until something is sealed, still older rows may come, and are the first then.
            state = self._state or _begun(cursor)
            if state is None:
                return 0
            self._forget_if_many(cursor, state)
            live_seconds = self._store.settings.live_window_seconds
            until = sealable_until(cursor, state, now, live_seconds, wait_for_older)
            sealed = 0
            for span in list(spans(cursor, state, until)):
                if is_stopped():
                    break
                self._seal_span(cursor, state, span)
                self._state = state
                sealed += 1
        return sealed

    def _forget_if_many(self, cursor: duckdb.DuckDBPyConnection, state: CauseState) -> None:
        """Begin anew once far more replicas were met than serve: pods that were replaced never
        come back, and what is known of a block has a place for each of them."""
        met = max((len(part.stream.memory.replicas) for part in state.parts.values()), default=0)
        if met <= MOST_REPLICAS:
            return
        serving = cursor.execute(
            "SELECT count(DISTINCT replica) FROM cause_minutes WHERE minute >= ?",
            [state.sealed - _OF_LATE],
        ).fetchone()
        if serving is None or met <= MOST_TIMES_SERVING * serving[0]:
            return
        _log.warning(
            "%d replicas were met since what was seen is remembered, and %d serve: it is forgotten,"
            " and what is new counts as warming",
            met,
            serving[0],
        )
        state.parts.clear()
        with self._store.write() as writer:
            states.begin_anew(writer, state)

    def _loaded(self, cursor: duckdb.DuckDBPyConnection) -> CauseState | None:
        state = states.load(cursor, self._settings)
        if state is not None and state.is_anew:
            with self._store.write() as writer:
                states.begin_anew(writer, state)
        return state

    def _seal_span(self, cursor: duckdb.DuckDBPyConnection, state: CauseState, span: Span) -> None:
        parts: list[NamedPart] = []
        with cursor_beside(cursor) as reader:
            counted = self._begin_reading(reader, state, span)
            table = _rows(reader, counted, self._store.settings.live_window_seconds)
            state.unnamed.take(reader, counted, span.until, self._settings.horizon_days)
            reader.commit()
        newest = counted["newest"]
        if len(table):
            resets = _resets(cursor, state, span)
            rows = RowSpan(table, span.since, span.until, resets, self._held(span))
            parts = list(named_parts(state, rows, self._settings))
        state.sealed, state.batch = span.until, newest
        live, crossed = LiveMissed(self._store.counters), list[dict[EngineKey, int]]()
        with self._store.write() as writer:
            sums.add_chainless(writer, counted)
            for part in parts:
                sums.add_named(writer, part.rows)
                if part.named is not None:
                    states.keep_change(writer, part.name, state, part.named)
                live.add(writer, part.rows)
                crossed += [add_crossed(writer, rows) for rows in part.crossed]
            live.persist(writer)
            states.keep(writer, state)
            corrections.end_reading(writer, newest)
        self._store.counters.apply(live.delta)
        for more in crossed:
            self.crossed.add(more)

    def _begin_reading(
        self, reader: duckdb.DuckDBPyConnection, state: CauseState, span: Span
    ) -> dict[str, Any]:
        """Which rows are counted now. From here on `reader` sees no other rows, and what takes
        their place is noted."""
        with self._store.write() as writer:
            reader.begin()
            newest = _newest_batch(reader) if span.newest is None else span.newest
            corrections.begin_reading(writer, span.until, newest)
        return {
            "since": state.sealed, "until": span.until, "counted": state.batch, "newest": newest,
        }  # fmt: skip

    def _held(self, span: Span) -> tuple[HeldCache, ...]:
        """What caches held, as far as that is still remembered."""
        if self._held_since is None:
            return ()
        return tuple(self._held_since(span.since.replace(tzinfo=UTC).timestamp()))


def _begun(cursor: duckdb.DuckDBPyConnection) -> CauseState | None:
    """From the first row on; None without any."""
    (first,) = cursor.execute(
        "SELECT date_trunc('minute', min(ts)) FROM requests WHERE prompt_tokens > 0"
    ).fetchone() or (None,)
    return None if first is None else CauseState(first, 0)


def _rows(
    cursor: duckdb.DuckDBPyConnection, counted: dict[str, object], live_seconds: float
) -> pa.Table:
    """Those of a span that have a chain, and those that came late for theirs."""
    asked = registry.question("request_chains").sql.rstrip().rstrip(";")
    cursor.execute("SET VARIABLE since = NULL::TIMESTAMP")
    cursor.execute("SET VARIABLE until = CAST(? AS TIMESTAMP)", [counted["until"]])
    return cursor.sql(
        f"""SELECT *, ts >= arrived - to_seconds($live_seconds) AS is_live,
            ts < $since AS is_late
        FROM {sums.SPAN_ROWS.format(f"({asked})")} WHERE len(block_hashes) > 0""",
        params={**counted, "live_seconds": live_seconds},
    ).to_arrow_table()


def _resets(cursor: duckdb.DuckDBPyConnection, state: CauseState, span: Span) -> tuple[Reset, ...]:
    """What the store tells of resets until the end of a span. A part may not have had rows for
    long, and is then told those of all the time."""
    told = [datetime.fromtimestamp(part.until, UTC) for part in state.parts.values()]
    since = min([utc_without_zone(until) for until in told], default=state.sealed) - _RESET_SLACK
    params = {"since": since, "until": span.until}
    return reset_moments(registry.run(cursor_beside(cursor), "block_resets", params))


def reset_moments(table: pa.Table) -> tuple[Reset, ...]:
    """Of an answer of `block_resets`: replica and moment of every reset that emptied a cache."""
    return tuple(
        (row["replica"], row["ts"].replace(tzinfo=UTC).timestamp())
        for row in table.to_pylist()
        if row["reason"] != _NO_RESET and row["tier"] in ("", "device")
    )


def _newest_batch(cursor: duckdb.DuckDBPyConnection) -> int:
    [(newest,)] = cursor.execute("SELECT coalesce(max(batch), 0) FROM requests").fetchall()
    return int(newest)
