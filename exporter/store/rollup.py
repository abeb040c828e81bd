"""Roll-ups as additive deltas, and their compaction.

A fold appends one row per key it touches; readers always SUM, so several rows of one key are
right at any time. Compaction merges them now and then to keep the tables small. Appending
never reads the past, and a late row costs no more than a punctual one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from exporter.records import OUTCOMES, TIERS

# TTFT histograms are log-spaced: bucket i is [RATIO^i, RATIO^(i+1)) seconds. Its middle is at
# most sqrt(1.08) - 1 = 3.9 % from any value in it.
BUCKET_RATIO = 1.08
TTFT_BUCKET = f"floor(ln(ttft_seconds) / {math.log(BUCKET_RATIO)!r})::INTEGER"

# SQL condition: prompt and cached tokens are known, and a cache could have served them.
REPORTED = "prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL AND ineligible_reason IS NULL"
INELIGIBLE = "ineligible_reason IS NOT NULL"
_COUNTS = {
    "requests": "count(*)",
    "reported_requests": f"count(*) FILTER ({REPORTED})",
    "ineligible_requests": f"count(*) FILTER ({INELIGIBLE})",
    "reuse_requests": f"count(*) FILTER ({REPORTED} AND cached_tokens > 0)",
    **{f"{outcome}_requests": f"count(*) FILTER (outcome = '{outcome}')" for outcome in OUTCOMES},
    "prompt_tokens": "coalesce(sum(prompt_tokens), 0)",
    "reported_prompt_tokens": f"coalesce(sum(prompt_tokens) FILTER ({REPORTED}), 0)",
    "ineligible_prompt_tokens": f"coalesce(sum(prompt_tokens) FILTER ({INELIGIBLE}), 0)",
    "cached_tokens": f"coalesce(sum(cached_tokens) FILTER ({REPORTED}), 0)",
    # Without any row that names its tier this stays NULL: not known, and not none.
    **{f"cached_{tier}": f"sum(cached_{tier}) FILTER ({REPORTED})" for tier in TIERS},
    "output_tokens": "coalesce(sum(output_tokens), 0)",
}
_HISTOGRAMS = tuple(f"ttft_{outcome}" for outcome in OUTCOMES)


@dataclass(frozen=True)
class Rollup:
    """A roll-up table: its time column and the dimensions beside it."""

    table: str
    unit: str
    dimensions: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return (self.unit, *self.dimensions)


MINUTE = Rollup("minute_rollup", "minute", ("model", "replica", "route", "ttft_point"))
HOUR = Rollup("hour_rollup", "hour", ("model", "route", "template", "tenant", "ttft_point"))
ROLLUPS = (MINUTE, HOUR)


# Tenants beyond the admitted ones are folded.
_TENANT = """CASE WHEN tenant IS NULL
    OR tenant IN (SELECT value FROM label_values WHERE label = 'tenant') THEN tenant
    ELSE 'other' END"""


def add(
    cursor: duckdb.DuckDBPyConnection,
    relation: str,
    *,
    where: str = "true",
    sign: int = 1,
    rollups: Sequence[Rollup] = ROLLUPS,
) -> None:
    """Adds (or with sign -1 takes back) the rows of a relation with the columns of `requests`."""
    for rollup in rollups:
        cursor.execute(_delta(rollup, relation, where, sign))


def _delta(rollup: Rollup, relation: str, where: str, sign: int) -> str:
    """Gathers TTFT buckets in lists and counts each list: far cheaper than DuckDB's histogram(),
    or than grouping by bucket."""
    keys = ", ".join(
        f"{_TENANT if name == 'tenant' else name} AS {name}" for name in rollup.dimensions
    )
    sums = ", ".join(f"-{value}" if sign < 0 else value for value in _COUNTS.values())
    counted = (
        f"list_aggregate(list({TTFT_BUCKET}) FILTER (outcome = '{outcome}'"
        " AND ttft_seconds IS NOT NULL), 'histogram')"
        for outcome in OUTCOMES
    )
    histograms = ", ".join(_taken_back(each) if sign < 0 else each for each in counted)
    return f"""
    INSERT INTO {rollup.table} BY POSITION
    SELECT date_trunc('{rollup.unit}', ts) AS {rollup.unit}, {keys}, {sums}, {histograms}
    FROM {relation}
    WHERE ({where}) AND replica_role IS DISTINCT FROM 'decode'
    GROUP BY ALL"""


def _taken_back(histogram: str) -> str:
    entry = "lambda entry: {'key': entry.key, 'value': -(entry.value::BIGINT)}"
    return f"map_from_entries(list_transform(map_entries({histogram}), {entry}))"


def compact(cursor: duckdb.DuckDBPyConnection) -> None:
    """Merges the rows of every key that has more than one. Changes no sum; a key of which all was
    taken back goes."""
    for rollup in ROLLUPS:
        key = ", ".join(rollup.key)
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE split_times AS SELECT DISTINCT {rollup.unit} AS t"
            f" FROM (SELECT {key} FROM {rollup.table} GROUP BY ALL HAVING count(*) > 1)"
        )
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE merged AS {_merged(rollup)}")
        cursor.execute(
            f"DELETE FROM {rollup.table} WHERE {rollup.unit} IN (SELECT t FROM split_times)"
        )
        cursor.execute(f"INSERT INTO {rollup.table} BY NAME SELECT * FROM merged")


def _merged(rollup: Rollup) -> str:
    counts = ", ".join(f"sum({name})::BIGINT AS {name}" for name in _COUNTS)
    histograms = ", ".join(
        f"sum_histograms(list({name}) FILTER ({name} IS NOT NULL)) AS {name}"
        for name in _HISTOGRAMS
    )
    any_left = " OR ".join(f"sum({name}) <> 0" for name in _COUNTS)
    return f"""
    SELECT {", ".join(rollup.key)}, {counts}, {histograms}
    FROM {rollup.table} WHERE {rollup.unit} IN (SELECT t FROM split_times)
    GROUP BY ALL HAVING {any_left}"""
