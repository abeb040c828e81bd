"""What is forgotten when, and that no figure and no counter notices."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from exporter.store import rollup
from exporter.store.retention import compact, retain, run_maintenance
from exporter.store.store import Store, StoreSettings
from queries import registry
from tests.unit_retention.aged import Row, at, one, put

SETTINGS = StoreSettings(hot_days=1, rollup_days=30)
NOW = at("03-03 12:34")  # one day before, the whole hour: 03-02 12:00


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path, SETTINGS)
    yield opened
    opened.close()


def _row(name: str, ts: str, **fields: object) -> Row:
    return {"request_id": name, "ts": ts, "prompt_tokens": 100, "cached_tokens": 40} | fields


def _hour(text: str) -> datetime:
    """As the columns keep it: UTC without a zone."""
    return at(text).replace(tzinfo=None)


def test_requests_go_by_whole_hours_of_event_time(store: Store) -> None:
    put(store, [_row("a", "03-02 11:59"), _row("b", "03-02 12:00"), _row("c", "03-03 12:30")])
    retain(store, NOW)
    kept = store.cursor().execute("SELECT request_id FROM requests ORDER BY ALL").fetchall()
    assert kept == [("b",), ("c",)]
    assert store.cursor().execute("FROM hot_since").fetchall() == [(_hour("03-02 12:00"),)]


def test_hot_since_moves_only_where_rows_went(store: Store) -> None:
    hot_since = "SELECT hour FROM hot_since"
    put(store, [_row("b", "03-02 12:00")])
    retain(store, NOW)
    assert store.cursor().execute(hot_since).fetchall() == []
    retain(store, NOW + timedelta(hours=1))
    assert store.cursor().execute(hot_since).fetchall() == [(_hour("03-02 13:00"),)]
    # Nothing to forget an hour later, and a clock that was set back.
    retain(store, NOW + timedelta(hours=2))
    put(store, [_row("c", "03-02 13:10")])
    retain(store, NOW + timedelta(hours=2))
    # As a fold that came late leaves it.
    put(store, [_row("d", "03-02 15:00")])
    with store.write() as cursor:
        cursor.execute(
            """INSERT INTO requests BY NAME
            SELECT * REPLACE (TIMESTAMP '2026-03-02 09:00' AS ts) FROM requests"""
        )
    retain(store, NOW)
    assert one(store, "SELECT count(*) FROM requests") == 1
    assert store.cursor().execute(hot_since).fetchall() == [(_hour("03-02 14:00"),)]


def test_figures_agree_before_and_after(store: Store) -> None:
    rows = [
        _row("a", "03-02 09:01", tenant="t1", route="r", replica="p1", cached_tokens=0),
        _row("b", "03-02 09:59", tenant="t2", route="r", replica="p2", prompt_tokens=70),
        _row("c", "03-02 10:10", tenant="t1", replica="p1", cached_tokens=None, ttft_seconds=0.5),
        _row("d", "03-02 10:30", tenant="t1", replica="p1", ineligible_reason="lookup_skipped"),
        _row("e", "03-02 11:00", model="m", replica="p2", cached_tokens=100, output_tokens=7),
        _row("f", "03-02 11:30", replica_role="decode"),
        _row("g", "03-02 13:00", tenant="t2", replica="p1"),
    ]
    put(store, rows)
    asked: list[tuple[str, dict[str, object]]] = [
        ("hit_ratio", {}),
        ("hit_ratio", {"by": "tenant"}),
        ("hit_ratio", {"by": "route"}),
        ("hit_ratio", {"by": "model"}),
        ("hit_ratio", {"by": "replica"}),
        ("hit_ratio", {"tenant": "t1", "until": "2026-03-02T10:00:00Z"}),
        ("hit_ratio_over_time", {"step_seconds": 3600}),
        ("hit_ratio_over_time", {"step_seconds": 3600, "by": "replica"}),
    ]
    before = [registry.run(store.cursor(), *question).to_pylist() for question in asked]
    # 100 + 70 + 100 + 100 + 100 + 100 tokens; a, b, e and g are reported: 0 + 40 + 100 + 40.
    assert before[0][0]["prompt_tokens"] == 570
    assert before[0][0]["token_hit_ratio"] == pytest.approx(180 / 370)
    run_maintenance(store, NOW)
    assert one(store, "SELECT count(*) FROM requests") == 1
    after = [registry.run(store.cursor(), *question).to_pylist() for question in asked]
    assert after == before


def test_rows_not_folded_yet_are_not_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "_fold", lambda *_: None)
        put(store, [_row("a", "03-02 09:00")])
        retain(store, NOW)
        assert one(store, "SELECT count(*) FROM requests") == 1
    retain(store, NOW)
    assert one(store, "SELECT count(*) FROM requests") == 0
    assert one(store, "SELECT sum(prompt_tokens) FROM hour_rollup") == 100


def test_roll_ups_samples_and_offsets_go_after_rollup_days(store: Store) -> None:
    # Thirty days before, the whole hour: 02-01 12:00.
    put(store, [_row("a", "02-01 11:59"), _row("b", "02-01 12:00")])
    with store.write() as cursor:
        for ts in ("11:59", "12:00"):
            cursor.execute(
                f"""INSERT INTO engine_samples BY NAME SELECT 't' AS target, 'p' AS replica,
                'vllm' AS engine, 'unified' AS role, TIMESTAMP '2026-02-01 {ts}' AS ts,
                false AS reset, false AS gap"""
            )
            cursor.execute(f"INSERT INTO offsets VALUES ('log', '{ts}', 9, 1, '2026-02-01 {ts}')")
    retain(store, NOW)
    noon = _hour("02-01 12:00")
    for column, table in (("hour", "hour_rollup"), ("minute", "minute_rollup"),
                          ("ts", "engine_samples"), ("updated", "offsets")):  # fmt: skip
        left = store.cursor().execute(f"SELECT {column} FROM {table}").fetchall()
        assert left == [(noon,)], table


def _counted(store: Store) -> dict[str, object]:
    """What /metrics shows of request logs, and what they brought."""
    shown = store.counters.snapshot()
    return {
        "requests": shown.requests,
        "ingested": shown.ingested,
        "late_tokens": shown.late_tokens,
        "ttft": shown.ttft,
    }


def test_counters_survive_maintenance_and_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s", SETTINGS)
    put(store, [_row("a", "03-01 09:00", ttft_seconds=0.3)], at("03-01 09:01"))
    put(store, [_row("b", "03-01 09:02", ttft_seconds=0.2)], at("03-01 09:03"))
    put(store, [_row("late", "01-20 09:00")], at("03-01 09:04"))
    store.fold()
    before = _counted(store)
    ((series, row),) = store.counters.snapshot().requests.items()
    assert (series, row.prompt_tokens, row.cached_tokens) == (("", "", "", ""), 200, 80)
    assert (before["ingested"], before["late_tokens"]) == ({("log", "ndjson"): 3}, 100)
    run_maintenance(store, NOW + timedelta(days=60))
    assert one(store, "SELECT count(*) FROM requests") == 0
    assert _counted(store) == before
    store.close()
    store = Store.open(tmp_path / "s", SETTINGS)
    assert _counted(store) == before
    store.close()


def test_rejects_go_and_their_number_stays(store: Store) -> None:
    put(store, [{"level": "info"}, {"level": "info"}], at("03-02 11:00"))
    put(store, [{"level": "info"}], at("03-03 11:00"))
    for _ in range(2):
        retain(store, NOW)
    assert one(store, "SELECT count(*) FROM rejects") == 1
    totals = "SELECT source, reason, sum(rejects) FROM reject_totals GROUP BY ALL"
    assert store.cursor().execute(totals).fetchall() == [("log", "no_known_field", 3)]
    put(store, [{"level": "info"}], at("03-02 11:00"))
    retain(store, NOW)
    assert store.cursor().execute(totals).fetchall() == [("log", "no_known_field", 4)]


def test_rejected_counter_survives_retention_and_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s", SETTINGS)
    put(store, [{"level": "info"}], at("03-01 11:00"))
    retain(store, NOW)
    store.close()
    store = Store.open(tmp_path / "s", SETTINGS)
    rejected = store.counters.snapshot().rejected
    store.close()
    assert rejected == {("log", "no_known_field"): 1}


def test_rows_of_forgotten_hours_are_rejected(store: Store) -> None:
    """Whether they were here before cannot be told any more."""
    put(store, [_row("a", "03-02 11:59")])
    retain(store, NOW)
    again = [_row("a", "03-02 11:59"), _row("new", "03-02 11:00"), _row("b", "03-02 12:00")]
    result = put(store, again)
    store.fold()
    assert (result.accepted, result.reasons) == (1, {"before_retention": 2})
    assert one(store, "SELECT sum(prompt_tokens) FROM hour_rollup") == 200
    rejected = store.cursor().execute("SELECT reason, line_number FROM rejects ORDER BY ALL")
    assert rejected.fetchall() == [("before_retention", 1), ("before_retention", 2)]


def test_old_rows_are_welcome_where_nothing_was_forgotten(store: Store) -> None:
    retain(store, NOW)
    assert put(store, [_row("a", "02-20 09:00")], NOW).accepted == 1


def test_compaction_changes_no_sum(store: Store) -> None:
    for n in range(3):
        text = [_row(f"r{n}", f"03-03 12:0{n}"), {"request_id": f"n{n}", "prompt_tokens": 10}]
        put(store, text, at("03-03 12:10"))
        store.fold()
    put(store, [_row("x", "03-03 12:05", tenant="t")], at("03-03 13:10"))
    store.fold()
    asked = "SELECT count(*), sum(requests), sum(prompt_tokens) FROM hour_rollup"
    assert store.cursor().execute(asked).fetchall()[0][1:] == (7, 430)
    health = registry.run(store.cursor(), "ingest_health").to_pylist()
    # The flag of rows without a time, three times.
    assert dict(health[0]["flags"])["no_time"] == 3
    for _ in range(2):
        compact(store)
        assert store.cursor().execute(asked).fetchall() == [(2, 7, 430)]
        assert registry.run(store.cursor(), "ingest_health").to_pylist() == health
        assert one(store, "SELECT count(*) FROM ingest_batches") == 2


def test_a_key_of_which_all_was_taken_back_goes(store: Store) -> None:
    """Its only row turned out to be another tenant's: nothing is left to tell of the first one."""
    put(store, [_row("a", "03-03 12:00", tenant="t"), _row("b", "03-03 12:00", tenant="u")], NOW)
    with store.write() as cursor:
        mine = "(SELECT * FROM requests WHERE tenant = 't')"
        rollup.add(cursor, mine, sign=-1)
        rollup.add(cursor, mine.replace("*", "* REPLACE ('u' AS tenant)"))
    compact(store)
    kept = store.cursor().execute("SELECT tenant, requests FROM hour_rollup").fetchall()
    assert kept == [("u", 2)]
    retain(store, NOW + timedelta(days=3))
    assert one(store, "SELECT count(*) FROM requests") == 0
    rows = registry.run(store.cursor(), "hit_ratio", {"by": "tenant"}).to_pylist()
    assert [(row["tenant"], row["requests"]) for row in rows] == [("u", 2)]


def test_compaction_of_nothing(store: Store) -> None:
    run_maintenance(store, NOW)
    assert one(store, "SELECT count(*) FROM ingest_batches") == 0


def test_t73_the_file_levels_off(tmp_path: Path) -> None:
    """30 days, 29 of them forgotten, and then a week of days that come and go."""
    store = Store.open(tmp_path / "s", StoreSettings(hot_days=1, rollup_days=1))
    day, sizes = at("04-01 00:00"), []

    def load_a_day() -> None:
        nonlocal day
        day += timedelta(days=1)
        rows: list[Row] = [
            _row(f"{day:%j}-{n}", f"{day + timedelta(seconds=80 * n):%m-%d %H:%M}",
                 session=f"s{n * 7919 % 1009}", tenant=f"t{n % 50}")
            for n in range(1000)
        ]  # fmt: skip
        put(store, rows, day + timedelta(days=1))

    def keep_house() -> int:
        run_maintenance(store, day + timedelta(days=1))
        return store.path.stat().st_size

    for _ in range(30):
        load_a_day()
    compact(store)
    with store.write() as cursor:
        cursor.execute("CHECKPOINT")
    full = store.path.stat().st_size
    assert one(store, "SELECT count(*) FROM requests") == 30_000
    sizes.append(keep_house())
    assert one(store, "SELECT count(*) FROM requests") == 1000
    for _ in range(7):
        load_a_day()
        sizes.append(keep_house())
    assert one(store, "SELECT count(*) FROM requests") == 1000
    store.close()
    print(full, sizes)
    # Never more than a tenth above the most that was kept, give or take one of the blocks
    # DuckDB takes room by, and no growth from day to day.
    assert max(sizes) <= 1.1 * full + 262_144
    assert max(sizes[4:]) <= max(sizes[:4])


def test_a_question_under_way_does_not_stop_upkeep(store: Store) -> None:
    """Rows that it reads were changed since it began: DuckDB then refuses to write its log off."""
    put(store, [_row("a", "03-02 12:00", tenant="t1"), _row("b", "03-02 12:10", tenant="t1")])
    reader = store.cursor()
    reader.begin()
    assert reader.execute("SELECT count(*) FROM requests").fetchall() == [(2,)]
    with store.write() as cursor:
        cursor.execute("UPDATE requests SET session = 's'")
    with pytest.raises(duckdb.TransactionException), store.write() as cursor:
        cursor.execute("CHECKPOINT")
    run_maintenance(store, NOW)
    reader.rollback()
    assert store.cursor().execute(_ADMITTED_TENANTS).fetchall() == [("t1",)]
    put(store, [_row("c", "03-02 12:20")])
    assert one(store, "SELECT count(*) FROM requests") == 3


_ADMITTED_TENANTS = "SELECT value FROM label_values WHERE label = 'tenant'"
