"""Missed tokens of live rows, for the counters on /metrics."""

import duckdb
import pyarrow as pa

from exporter.causes.sums import CAUSE_COLUMNS, NAMED_ROWS
from exporter.store.counters import CounterDelta, LiveCounters
from exporter.store.live import LABELS, persist
from replay.causes import CAUSES


class LiveMissed:
    """What one seal adds: `add` and `persist` inside its transaction, `delta` to be applied
    after it."""

    def __init__(self, counters: LiveCounters) -> None:
        self._counters = counters
        self.delta = CounterDelta()

    def add(self, cursor: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
        """The live ones of some rows."""
        cursor.register(NAMED_ROWS, rows)
        sums = ", ".join(f"sum({name})::BIGINT" for name in CAUSE_COLUMNS)
        groups = cursor.execute(
            f"""SELECT {", ".join(LABELS)}, {sums} FROM {NAMED_ROWS}
            WHERE is_live GROUP BY {", ".join(LABELS)}"""
        ).fetchall()
        cursor.unregister(NAMED_ROWS)
        for model, route, template, tenant, *tokens in groups:
            series = self._counters.series(model, route, template, tenant)
            self.delta.add_missed(series, dict(zip(CAUSES, tokens, strict=True)))

    def persist(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Append it to the counters in the store."""
        persist(cursor, self.delta)
