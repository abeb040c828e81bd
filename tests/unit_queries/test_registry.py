"""Parameters are checked before anything runs, bound, and forgotten by the next question."""

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import duckdb
import pyarrow as pa
import pytest

from queries import registry
from tests.unit_queries.conftest import Ask, Insert

ONE_ROW = [{"ts": "10:00", "tenant": "a", "prompt_tokens": 100, "cached_tokens": 40}]


def test_no_view_or_macro_takes_the_place_of_another() -> None:
    made = re.findall(r"CREATE OR REPLACE (?:MACRO|VIEW) (\w+)", registry.views_sql())
    assert len(made) > 100
    assert [name for name, times in Counter(made).items() if times > 1] == []


def test_the_first_scrape_has_a_step_of_its_own_with_a_window_and_without(
    insert: Insert, ask: Ask
) -> None:
    insert("engine_samples", [{"replica": "r", "ts": "10:00", "prompt_tokens": None}])
    for window in ({}, {"since": "09:00"}):
        rows = ask("engine_hit_ratio_over_time", step_seconds=60, **window)
        assert [(row["ts"], row["prompt_tokens"]) for row in rows] == [
            ("2026-11-30T10:00:00Z", None)
        ]


def test_unknown_question_lists_the_known_ones(cursor: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(registry.UnknownQuestion, match=r"'hit_rate'; known: .*hit_ratio"):
        registry.run(cursor, "hit_rate", {})


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("hit_ratio", {"byy": "tenant"}, "unknown parameter 'byy' .*known parameters: by, since"),
        ("store_state", {"since": "24h"}, "known parameters: none"),
        ("hit_ratio", {"by": "color"}, "'color' is not one of: model, replica"),
        ("hit_ratio", {"by": "x' OR 1=1 --"}, "is not one of"),
        ("hit_ratio", {"by": 3}, "3 is not text"),
        ("movers", {}, "movers needs the parameter by; one of: model"),
        ("movers", {"by": None}, "movers needs the parameter by"),
        ("hit_ratio", {"since": "yesterday"}, "'yesterday' is not a time; write 2026"),
        ("hit_ratio", {"since": ""}, "'' is not a time"),
        ("hit_ratio", {"since": "999999999999d"}, "is not a time"),
        ("hit_ratio", {"since": 1764500000}, "1764500000 is not text"),
        ("requests", {"limit": "ten"}, "parameter limit: invalid literal"),
        ("requests", {"limit": True}, "True is not a whole number"),
        ("requests", {"limit": 2**63}, "is not a whole number of at most 64 bits"),
        ("requests", {"limit": -1}, "-1 is below 0"),
        ("hit_ratio_over_time", {"step_seconds": 0}, "0 is below 1"),
        ("pain", {"zone": "Mars/Olympus"}, "'Mars/Olympus' is no time zone; write UTC or Eur"),
        ("peak_drop", {"zone": "'; --"}, "is no time zone"),
    ],
)
def test_bad_parameters_say_what_to_change(
    cursor: duckdb.DuckDBPyConnection, name: str, params: dict[str, object], message: str
) -> None:
    with pytest.raises(registry.BadParameter, match=message):
        registry.run(cursor, name, params)


def test_dimension_unknown_to_the_file_is_an_error_not_a_null_group(
    cursor: duckdb.DuckDBPyConnection, insert: Insert
) -> None:
    insert("requests", ONE_ROW)
    cursor.execute("""SET VARIABLE "by" = 'color'""")
    with pytest.raises(duckdb.Error, match="unknown dimension color"):
        cursor.execute(registry.question("hit_ratio").sql)


def test_value_carries_the_name_of_its_dimension(
    cursor: duckdb.DuckDBPyConnection, insert: Insert
) -> None:
    insert("requests", ONE_ROW)
    assert registry.run(cursor, "hit_ratio", {"by": "tenant"}).column_names[0] == "tenant"
    assert "value" not in registry.run(cursor, "hit_ratio", {}).column_names
    assert "value" in registry.run(
        cursor, "dimension_values", {"dimension": "tenant"}
    ).column_names  # fmt: skip


def test_no_parameter_stays_for_the_next_question(ask: Ask, insert: Insert) -> None:
    insert("requests", ONE_ROW)
    assert ask("hit_ratio", tenant="b")[0]["requests"] == 0
    assert ask("hit_ratio")[0]["requests"] == 1


@pytest.mark.parametrize(
    "since",
    [
        "2026-11-30T10:00:00Z",
        "2026-11-30 10:00",
        "2026-11-30T19:00:00+09:00",
        datetime(2026, 11, 30, 10, tzinfo=UTC),
        datetime(2026, 11, 30, 19, tzinfo=timezone(timedelta(hours=9))),
    ],
)
def test_times_are_instants_however_they_are_written(
    ask: Ask, insert: Insert, since: object
) -> None:
    insert("requests", [*ONE_ROW, {**ONE_ROW[0], "ts": "09:59:59"}])
    assert ask("hit_ratio", since=since)[0]["requests"] == 1


def test_a_span_counts_back_from_now(
    cursor: duckdb.DuckDBPyConnection, insert: Insert, ask: Ask
) -> None:
    now = datetime.now(UTC)
    insert("requests", [{"ts": (now - timedelta(minutes=m)).isoformat()} for m in (10, 80, 100)])
    assert [ask("hit_ratio", since=s)[0]["requests"] for s in ("90m", "1h", "1.5h", "2h", "1d")] \
        == [2, 1, 2, 3, 3]  # fmt: skip


def test_rows_are_strict_json() -> None:
    table = pa.table({
        "ts": pa.array([1_772_442_904_120_000, None], pa.timestamp("us")),
        "ratio": [float("nan"), float("inf")],
        "flags": pa.array([{"a": 1}, None], pa.map_(pa.string(), pa.int64())),
        "names": [["x"], None],
    })  # fmt: skip
    rows = registry.rows(table)
    assert rows == [
        {"ts": "2026-03-02T09:15:04.120000Z", "ratio": None, "flags": {"a": 1}, "names": ["x"]},
        {"ts": None, "ratio": None, "flags": None, "names": None},
    ]
    json.dumps(rows, allow_nan=False)


def test_rows_of_an_empty_table() -> None:
    assert registry.rows(pa.table({"a": pa.array([], pa.int64())})) == []


def test_headers_are_read_once() -> None:
    assert registry.questions() is registry.questions()
