"""Beside the class of a drop stands which causes of missed tokens grew, where that is known.

From 10 to 11 o'clock the ratio is 0.1 where it was 0.8. Of 1,000 tokens that have causes 150 were
evicted and 50 in another scope a week before, now 700 and 200: 55 and 15 of 70 points.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import duckdb
import pytest

from queries import registry
from tests import empty_store
from tests.unit_alerts.hours import MONDAY, RATIOS, put_hour

WEEK = timedelta(weeks=1)
GREW = "; missed tokens against a week before: evicted 15 % → 70 %, isolated 5 % → 20 %."
INSERT = (
    "INSERT INTO {} ({}, model, requests, prompt_tokens, cached_tokens, evicted_tokens, "
    "isolated_tokens) VALUES (?, ?, 1, 1000, ?, ?, ?)"
)


@pytest.fixture(scope="module")
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """A drop of model m and its only template t, which rows do name."""
    with empty_store.lent() as made:
        for week, ratio in enumerate(RATIOS, 1):
            put_hour(made, MONDAY - week * WEEK, ratio)
        put_hour(made, MONDAY, 0.1)
        yield made


def dropped(cursor: duckdb.DuckDBPyConnection, dimension: str | None) -> dict[str, Any]:
    until = (MONDAY + timedelta(hours=1)).replace(tzinfo=None)
    found = cursor.sql(
        "FROM alert_drops(CAST(? AS VARCHAR), CAST(? AS TIMESTAMP), 3600, 'UTC', 20000, 30, NULL)",
        params=[dimension, until],
    )
    [row] = registry.rows(found.to_arrow_table())
    return row


def put(cursor: duckdb.DuckDBPyConnection, table: str, model: str) -> None:
    monday, unit = MONDAY.replace(tzinfo=None), table.removeprefix("cause_").removesuffix("s")
    insert = INSERT.format(table, unit)
    cursor.execute(insert, [monday, model, 100, 700, 200])
    cursor.execute(insert, [monday - WEEK, model, 800, 150, 50])


@pytest.mark.parametrize("dimension", [None, "template"])
def test_a_drop_names_the_causes_that_grew(
    cursor: duckdb.DuckDBPyConnection, dimension: str | None
) -> None:
    before = dropped(cursor, dimension)
    assert "missed tokens" not in before["description"]
    table = "cause_hours" if dimension else "cause_minutes"
    put(cursor, table, "other")
    put(cursor, table, "m")
    cursor.execute("UPDATE cause_hours SET template = 't'")
    told = dropped(cursor, dimension)
    assert told["description"] == before["description"].removesuffix(".") + GREW
    assert {**told, "description": ""} == {**before, "description": ""}
