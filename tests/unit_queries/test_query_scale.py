"""Many rows, many labels, many threads, any time zone."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from exporter.store import rollup
from queries import registry
from tests.unit_queries.conftest import Ask

ROWS = """
INSERT INTO requests BY NAME
SELECT TIMESTAMP '2026-11-30 21:00' + to_seconds(i * 7) AS ts, ts AS arrived, 's' AS source,
    'f' AS source_format, 'id-' || i AS request_id, 1 AS attempt, 'ok' AS status,
    CASE i % 4 WHEN 0 THEN 'miss' ELSE 'partial' END AS outcome, 'inclusive' AS prompt_basis,
    1 AS batch, i AS position,
    'm' || i % 2 AS model, 'p' || i % 3 AS replica, 'r' || i % 5 AS route, 't' || i % 7 AS template,
    'tenant-' || i % {tenants} AS tenant, 1000 + i % 13 AS prompt_tokens,
    CASE WHEN i % 10 > 0 THEN (i % 4) * 250 END AS cached_tokens, cached_tokens AS cached_device,
    0.1 + i % 11 / 10.0 AS ttft_seconds, 'client' AS ttft_point
FROM range({rows}) t(i)
"""


def fill(cursor: duckdb.DuckDBPyConnection, rows: int, tenants: int = 3) -> None:
    cursor.execute(ROWS.format(rows=rows, tenants=tenants))


def fold(cursor: duckdb.DuckDBPyConnection) -> None:
    """As the store does: every tenant is admitted first, so that none stands in `other`."""
    cursor.execute(
        "INSERT INTO label_values BY NAME"
        " SELECT DISTINCT 'tenant' AS label, tenant AS value FROM requests"
    )
    rollup.add(cursor, "requests")
    cursor.execute("INSERT INTO folded VALUES (1)")


def test_t49_per_tenant_figures_remain_available(
    cursor: duckdb.DuckDBPyConnection, ask: Ask
) -> None:
    fill(cursor, 100_000, tenants=10_000)
    rows = ask("hit_ratio", by="tenant")
    assert len(rows) == 10_000
    assert {row["requests"] for row in rows} == {10}
    assert ask("hit_ratio")[0]["requests"] == 100_000


def test_t74_every_thread_has_its_own_cursor(cursor: duckdb.DuckDBPyConnection) -> None:
    fill(cursor, 1000, tenants=20)

    def visitor(number: int) -> list[object]:
        own = cursor.cursor()
        return [
            sum(
                row["requests"]
                for row in registry.rows(
                    registry.run(own, "ttft_by_outcome", {"tenant": f"tenant-{number}"})
                )
            )
            for _ in range(10)
        ]

    with ThreadPoolExecutor(max_workers=20) as pool:
        answers = [answer for per_thread in pool.map(visitor, range(20)) for answer in per_thread]
    assert answers == [50] * 200  # 1000 rows over 20 tenants


def test_t77_large_tables_are_paged_with_the_true_total(
    cursor: duckdb.DuckDBPyConnection, ask: Ask
) -> None:
    fill(cursor, 400_000)
    page = ask("requests", limit=3, offset=1, order="computed_tokens")
    assert [row["total_rows"] for row in page] == [400_000] * 3
    # Most computed: nothing cached of 1012 tokens, so i % 13 = 12, i % 4 = 0 and i % 10 > 0, the
    # latest first. Those i are 12 modulo 52 and no multiple of 10; 399996 is the latest of all.
    assert 399_996 % 52 == 12
    latest = [i for i in range(399_996, 390_000, -52) if i % 10][1:4]
    assert [row["request_id"] for row in page] == [f"id-{i}" for i in latest]
    assert {row["computed_tokens"] for row in page} == {1012}
    assert len(ask("requests")) == 100
    assert ask("requests", limit=1)[0]["request_id"] == "id-399999"
    assert ask("requests", limit=1, order="ttft_seconds")[0]["ttft_seconds"] == pytest.approx(1.1)
    assert ask("requests", offset=400_000) == []


ANSWER = """
import json, sys
from importlib import resources
import duckdb
from queries import registry

connection = duckdb.connect()
connection.execute(resources.files("exporter.store").joinpath("schema.sql").read_text())
connection.execute(registry.views_sql())
connection.execute(sys.argv[1])
asked = {
    "hit_ratio_over_time": {"step_seconds": 86400, "since": "2026-11-30T22:00:00", "by": "model"},
    "hit_ratio": {"since": "2026-11-30T23:30:00+01:00"},
    "requests": {"limit": 2},
}
print(json.dumps([registry.rows(registry.run(connection, *ask)) for ask in asked.items()]))
"""


def test_t78_same_answers_in_every_zone() -> None:
    def answers(zone: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", ANSWER, ROWS.format(rows=5000, tenants=3)],
            env={**os.environ, "TZ": zone}, cwd=Path(__file__).parents[2],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    utc = answers("UTC")
    assert answers("Asia/Tokyo") == utc
    by_day = json.loads(utc)[0]
    assert [row["ts"] for row in by_day[:4]] == [
        "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z",
        "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z",
    ]  # fmt: skip


def test_t78_session_zone_does_not_matter(cursor: duckdb.DuckDBPyConnection, ask: Ask) -> None:
    fill(cursor, 5000)

    def answers(zone: str) -> object:
        cursor.execute(f"SET TimeZone = '{zone}'")
        return [
            ask("hit_ratio_over_time", step_seconds=86400, since="2026-11-30T22:00:00Z"),
            ask("movers", by="model", since="2026-12-01T00:00:00Z"),
            ask("store_state"),
        ]

    assert answers("Asia/Tokyo") == answers("UTC")


@pytest.mark.parametrize("by", [None, "model", "route", "template", "tenant", "replica"])
def test_roll_ups_answer_what_the_rows_did(
    cursor: duckdb.DuckDBPyConnection, ask: Ask, by: str | None
) -> None:
    fill(cursor, 5000)
    fold(cursor)
    steps = ask("hit_ratio_over_time", by=by, step_seconds=3600)
    whole, movers = ask("hit_ratio", by=by), ask("movers", by=by or "model", since="23:00")
    cursor.execute("INSERT INTO hot_since VALUES ('2026-12-01 00:00')")
    cursor.execute("DELETE FROM requests WHERE ts < '2026-12-01 00:00'")
    assert ask("hit_ratio", by=by) == whole
    assert ask("hit_ratio_over_time", by=by, step_seconds=3600) == steps
    assert ask("movers", by=by or "model", since="23:00") == movers


def test_ttft_of_roll_ups_is_right_to_4_percent(
    cursor: duckdb.DuckDBPyConnection, ask: Ask
) -> None:
    fill(cursor, 5000)
    fold(cursor)
    exact = {row["outcome"]: row for row in ask("ttft_by_outcome")}
    for row in ask("ttft_over_time", step_seconds=86400 * 7):
        assert row["requests"] == exact[row["outcome"]]["requests"]
        for quantile in ("p50_seconds", "p95_seconds"):
            assert row[quantile] == pytest.approx(exact[row["outcome"]][quantile], rel=0.08)
