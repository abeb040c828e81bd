"""The live rows of a batch -> counters, in memory and in the store.

A row is live when it arrives within the live window of its event time; an older one reaches
the store and the roll-ups but only `late_tokens` here, so that `rate()` stays true.
"""

from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa

from exporter.store.counters import (
    COUNTER_COLUMNS,
    OTHER,
    TTFT_BOUNDS,
    CounterDelta,
    LabelBounds,
    LiveCounters,
)
from exporter.store.rollup import INELIGIBLE, REPORTED

LABELS = ("model", "route", "template", "tenant")

LIVE = "ts >= arrived - to_seconds($live_seconds)"
_COUNTED = f"{LIVE} AND replica_role IS DISTINCT FROM 'decode'"
_SUMS = ", ".join(
    [f"count(*) FILTER (outcome = '{name.removesuffix('_requests')}')::BIGINT"
     for name in COUNTER_COLUMNS if name.endswith("_requests")]
    + ["coalesce(sum(prompt_tokens), 0)::BIGINT"]
    + [f"coalesce(sum(prompt_tokens) FILTER ({REPORTED}), 0)::BIGINT"]
    + [f"coalesce(sum(prompt_tokens) FILTER ({INELIGIBLE}), 0)::BIGINT"]
    + [f"coalesce(sum({name}) FILTER ({REPORTED}), 0)::BIGINT"
       for name in COUNTER_COLUMNS if name.startswith("cached_")]
)  # fmt: skip
_NAMES = ", ".join(f"coalesce({label}, '') AS {label}" for label in LABELS)
_TTFT_CLASS = " ".join(
    ["CASE"] + [f"WHEN ttft_seconds <= {bound!r} THEN {i}" for i, bound in enumerate(TTFT_BOUNDS)]
    + [f"ELSE {len(TTFT_BOUNDS)} END"]
)  # fmt: skip


def collect(
    cursor: duckdb.DuckDBPyConnection,
    counters: LiveCounters,
    relation: str,
    parameters: dict[str, object],
) -> CounterDelta:
    """Sums the live rows of `relation` into series, admitting new label values on the way."""
    delta = CounterDelta()
    groups = cursor.execute(
        f"SELECT {_NAMES}, {_SUMS} FROM {relation} WHERE {_COUNTED} GROUP BY {', '.join(LABELS)}",
        parameters,
    ).fetchall()
    for index, label in enumerate(LABELS):
        admit(cursor, counters.bounds, label, (group[index] for group in groups))
    for model, route, template, tenant, *values in groups:
        delta.add_requests(counters.series(model, route, template, tenant), values)
    if groups:
        _collect_ttft(cursor, counters.bounds, relation, parameters, delta)
    return delta


def admit(
    cursor: duckdb.DuckDBPyConnection, bounds: LabelBounds, label: str, values: Iterable[str]
) -> None:
    """Lets new values of a label in while there is room, and remembers them in the store."""
    taken = bounds.admit(label, values)
    if taken:
        cursor.execute(
            """INSERT INTO label_values
            SELECT $label, unnest($values), make_timestamp(epoch_us(now()))
            ON CONFLICT DO NOTHING""",
            {"label": label, "values": taken},
        )


def _collect_ttft(
    cursor: duckdb.DuckDBPyConnection,
    bounds: LabelBounds,
    relation: str,
    parameters: dict[str, object],
    delta: CounterDelta,
) -> None:
    rows = cursor.execute(
        f"""SELECT coalesce(model, ''), coalesce(route, ''), outcome, {_TTFT_CLASS} AS class,
            count(*), sum(ttft_seconds)
        FROM {relation} WHERE {_COUNTED} AND ttft_seconds IS NOT NULL GROUP BY ALL""",
        parameters,
    ).fetchall()
    for model, route, outcome, bucket, requests, seconds in rows:
        folded = bounds.fold("model", model), bounds.fold("route", route)
        delta.add_ttft(*folded, outcome, bucket, requests, seconds)


def persist(cursor: duckdb.DuckDBPyConnection, delta: CounterDelta) -> None:
    """Appends the delta to the counters in the store, inside the fold's transaction."""
    _insert(cursor, "live_counters", [(*key, *row) for key, row in delta.requests.items()])
    _insert(
        cursor,
        "live_ttft",
        [
            (*key, bucket, count, row.seconds if bucket == first_bucket(row.buckets) else 0.0)
            for key, row in delta.ttft.items()
            for bucket, count in enumerate(row.buckets)
            if count
        ],
    )
    _insert(
        cursor,
        "live_missed",
        [(*key, *each) for key, tokens in delta.missed.items() for each in tokens.items()],
    )


def first_bucket(buckets: Sequence[int]) -> int:
    """The row that carries the sum of seconds: the first bucket with requests."""
    return next(index for index, count in enumerate(buckets) if count)


def _insert(
    cursor: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[object, ...]]
) -> None:
    """One INSERT for all rows, through Arrow: DuckDB pays for each bound value apart."""
    if rows:
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        cursor.register("new_rows", pa.table(columns, [f"c{i}" for i in range(len(columns))]))
        cursor.execute(f"INSERT INTO {table} SELECT * FROM new_rows")
        cursor.unregister("new_rows")


def restore(cursor: duckdb.DuckDBPyConnection, counters: LiveCounters) -> None:
    """Brings the counters of a store back into memory.

    The series of a value that was demoted meanwhile ends here: joining 'other' with its whole
    past would show as a burst of traffic.
    """
    bounds, delta = counters.bounds, CounterDelta()
    sums = ", ".join(f"sum({name})::BIGINT" for name in COUNTER_COLUMNS)
    for model, route, template, tenant, *values in cursor.execute(
        f"SELECT {', '.join(LABELS)}, {sums} FROM live_counters GROUP BY ALL"
    ).fetchall():
        named = zip(LABELS, (model, route, template, tenant), strict=True)
        if all(_admitted(bounds, label, value) for label, value in named):
            delta.add_requests(counters.series(model, route, template, tenant), values)
    for model, route, outcome, bucket, requests, seconds in cursor.execute(
        "SELECT model, route, outcome, bucket, sum(requests)::BIGINT, sum(seconds)"
        " FROM live_ttft GROUP BY ALL"
    ).fetchall():
        if _admitted(bounds, "model", model) and _admitted(bounds, "route", route):
            delta.add_ttft(model, route, outcome, bucket, requests, seconds)
    for model, route, template, tenant, cause, tokens in cursor.execute(
        f"SELECT {', '.join(LABELS)}, cause, sum(tokens)::BIGINT FROM live_missed GROUP BY ALL"
    ).fetchall():
        named = zip(LABELS, (model, route, template, tenant), strict=True)
        if all(_admitted(bounds, label, value) for label, value in named):
            series = counters.series(model, route, template, tenant)
            delta.add_missed(series, {cause: tokens})
    _end_demoted(cursor)
    delta.ingested = _sums(cursor, "source, source_format, sum(accepted)", "ingest_batches")
    delta.rejected = _sums(cursor, "source, reason, sum(rejects)", "reject_totals")
    late, arrived = cursor.execute(
        "SELECT coalesce(sum(late_tokens), 0)::BIGINT, max(last_arrived) FROM ingest_batches"
    ).fetchone() or (0, None)
    delta.late_tokens, delta.last_arrived = late, arrived
    counters.apply(delta)


def _end_demoted(cursor: duckdb.DuckDBPyConnection) -> None:
    """Deletes ended series: a value admitted again later starts at 0 and stays monotonic."""
    tables = {"live_counters": LABELS, "live_missed": LABELS, "live_ttft": ("model", "route")}
    for table, labels in tables.items():
        ended = " OR ".join(
            f"""{label} NOT IN ('', '{OTHER}') AND {label} NOT IN
                (SELECT value FROM label_values WHERE label = '{label}')"""
            for label in labels
        )
        cursor.execute(f"DELETE FROM {table} WHERE {ended}")


def _admitted(bounds: LabelBounds, label: str, value: str) -> bool:
    return value == OTHER or bounds.fold(label, value) == value


def _sums(
    cursor: duckdb.DuckDBPyConnection, columns: str, table: str
) -> dict[tuple[str, str], int]:
    rows = cursor.execute(f"SELECT {columns} FROM {table} GROUP BY ALL").fetchall()
    return {(first, second): int(total) for first, second, total in rows}


def compact(cursor: duckdb.DuckDBPyConnection) -> None:
    """Merges counter deltas into one row per series. Changes no sum."""
    for table, keys, sums in (
        ("live_counters", LABELS, COUNTER_COLUMNS),
        ("live_missed", (*LABELS, "cause"), ("tokens",)),
        ("live_ttft", ("model", "route", "outcome", "bucket"), ("requests", "seconds")),
    ):
        columns = ", ".join([*keys, *(f"sum({name}) AS {name}" for name in sums)])
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE merged AS SELECT {columns} FROM {table} GROUP BY ALL"
        )
        cursor.execute(f"DELETE FROM {table}")
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM merged")
