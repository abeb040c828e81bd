"""Causes summed by minute and by hour, additive like the other roll-ups, and their compaction.

A seal appends rows; readers sum. Nothing is ever taken back: a cause is named once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from replay.causes import CAUSES, DETAILS

CAUSE_COLUMNS = tuple(f"{name}_tokens" for name in CAUSES)
DETAIL_COLUMNS = tuple(f"{name}_tokens" for name in (*DETAILS, "new_warming", "warm_before_log"))
_BESIDE = ("unreported", "chainless", "late")
BESIDE_COLUMNS = tuple(
    f"{kind}_{unit}" for kind in _BESIDE for unit in ("requests", "prompt_tokens")
)
SUMS = (
    "requests", "prompt_tokens", "cached_tokens", *CAUSE_COLUMNS, *DETAIL_COLUMNS, *BESIDE_COLUMNS
)  # fmt: skip
LEAST = "remembered_seconds"
# A relation of rows to be summed, registered while it is.
NAMED_ROWS = "named_rows"


@dataclass(frozen=True)
class CauseRollup:
    """A table of sums: its time column and the dimensions beside it."""

    table: str
    unit: str
    dimensions: tuple[str, ...]

    @property
    def key(self) -> str:
        return ", ".join((self.unit, *self.dimensions))


CAUSE_ROLLUPS = (
    CauseRollup("cause_minutes", "minute", ("model", "replica", "route")),
    CauseRollup("cause_hours", "hour", ("model", "route", "template", "tenant")),
)

# The same tenants are kept apart as in hour_rollup.
_TENANT = """CASE WHEN tenant IS NULL
    OR tenant IN (SELECT value FROM label_values WHERE label = 'tenant') THEN tenant
    ELSE 'other' END AS tenant"""


def add_named(cursor: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Add requests whose causes were named: `ts`, the dimensions ('' = not given), SUMS and
    LEAST."""
    cursor.register(NAMED_ROWS, rows)
    given = ", ".join(f"nullif({name}, '') AS {name}" for name in _DIMENSIONS)
    sums = ", ".join((*SUMS, LEAST))
    relation = f"(SELECT ts, {given}, {sums} FROM {NAMED_ROWS})"
    _add(cursor, relation, SUMS, f"min({LEAST}) AS {LEAST}")
    cursor.unregister(NAMED_ROWS)


# The rows of a span, and those that came late for theirs: two conditions, each of which DuckDB
# answers from few rows where one with OR reads all. In place of {0} the relation.
SPAN_ROWS = """(
    SELECT * FROM {0} WHERE ts >= $since AND ts < $until AND batch <= $newest
    UNION ALL
    SELECT * FROM {0}
    WHERE
        ts < $since AND batch > $counted AND batch <= $newest
        AND (batch, position) NOT IN (FROM cause_corrected))"""
_DIMENSIONS = ("model", "replica", "route", "template", "tenant")
# Rows without a chain. That no cache could serve them is known all the same.
_WITHOUT_CHAIN = f"""(
    SELECT
        ts, model, replica, route, template, tenant,
        known::BIGINT AS requests,
        CASE WHEN known THEN prompt_tokens END AS prompt_tokens,
        CASE WHEN known THEN cached_tokens END AS cached_tokens,
        CASE WHEN known THEN prompt_tokens - cached_tokens END AS ineligible_tokens,
        (cached_tokens IS NULL)::BIGINT AS unreported_requests,
        CASE WHEN cached_tokens IS NULL THEN prompt_tokens END AS unreported_prompt_tokens,
        (NOT known AND cached_tokens IS NOT NULL)::BIGINT AS chainless_requests,
        CASE WHEN NOT known AND cached_tokens IS NOT NULL THEN prompt_tokens END
            AS chainless_prompt_tokens
    FROM (
        SELECT *, cached_tokens IS NOT NULL AND ineligible_reason IS NOT NULL AS known
        FROM {SPAN_ROWS.format("requests")}
        WHERE
            prompt_tokens > 0 AND replica_role IS DISTINCT FROM 'decode'
            AND coalesce(len(block_hashes), 0) = 0))"""
_WITHOUT_CHAIN_SUMS = (
    "requests", "prompt_tokens", "cached_tokens", "ineligible_tokens", "unreported_requests",
    "unreported_prompt_tokens", "chainless_requests", "chainless_prompt_tokens",
)  # fmt: skip


def add_chainless(cursor: duckdb.DuckDBPyConnection, span: dict[str, object]) -> None:
    """Add the rows of a span that have no chain, and those that came late for theirs. `span`:
    since, until, and the batches of rows: up to `counted` all are counted, up to `newest` now."""
    _add(cursor, _WITHOUT_CHAIN, _WITHOUT_CHAIN_SUMS, "", span)


def _add(
    cursor: duckdb.DuckDBPyConnection,
    relation: str,
    columns: Sequence[str],
    least: str,
    parameters: dict[str, object] | None = None,
) -> None:
    sums = ", ".join(f"coalesce(sum({name}), 0)::BIGINT AS {name}" for name in columns)
    sums = f"{sums}, {least}" if least else sums
    for rollup in CAUSE_ROLLUPS:
        keys = ", ".join(_TENANT if name == "tenant" else name for name in rollup.dimensions)
        cursor.execute(
            f"""INSERT INTO {rollup.table} BY NAME
            SELECT date_trunc('{rollup.unit}', ts) AS {rollup.unit}, {keys}, {sums}
            FROM {relation} GROUP BY ALL""",
            parameters,
        )


def compact(cursor: duckdb.DuckDBPyConnection) -> None:
    """Merges the rows of every key that has more than one. Changes no sum."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in SUMS)
    for rollup in CAUSE_ROLLUPS:
        table, unit = rollup.table, rollup.unit
        cursor.execute(
            f"""CREATE OR REPLACE TEMP TABLE split_times AS SELECT DISTINCT {unit} AS t
            FROM (SELECT {rollup.key} FROM {table} GROUP BY ALL HAVING count(*) > 1)"""
        )
        cursor.execute(
            f"""CREATE OR REPLACE TEMP TABLE merged AS
            SELECT {rollup.key}, {sums}, min({LEAST}) AS {LEAST}
            FROM {table} WHERE {unit} IN (SELECT t FROM split_times) GROUP BY ALL"""
        )
        cursor.execute(f"DELETE FROM {table} WHERE {unit} IN (SELECT t FROM split_times)")
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM merged")
