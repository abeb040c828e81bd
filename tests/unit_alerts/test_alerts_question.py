"""The question `alerts`: each alert silent and firing, and the rules of Prometheus beside it.

Figures are those of the rules: a window with 60,000 prompt tokens is above the 50,000 most ask for.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import resources
from typing import Any

import duckdb
import pytest
import yaml

from queries import registry
from queries.on_call.screen import Looking, look
from tests.running import ROOT
from tests.unit_alerts.hours import MONDAY, RATIOS, put_counted, put_hour, put_page, put_request

NOW = MONDAY + timedelta(hours=1)
DAY, WEEK = timedelta(days=1), timedelta(weeks=1)
RULES = ROOT / "deploy" / "prometheus" / "prefixscope.rules.yml"
# Whoever answers this question is up, and judges.
NOT_ASKED = {"PrefixscopeExporterDown", "PrefixscopeNotJudging"}
Ask = Callable[..., list[dict[str, Any]]]
Told = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    schema = resources.files("exporter.store").joinpath("schema.sql").read_text()
    connection.execute(schema)
    connection.execute(registry.views_sql())
    return connection


@pytest.fixture
def cursor(tables: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """Empty tables; what a test puts in is taken back."""
    made = tables.cursor()
    made.begin()
    yield made
    made.rollback()


@pytest.fixture
def ask(cursor: duckdb.DuckDBPyConnection) -> Ask:
    """The alerts that there are at NOW; with all=1 those of stale KV too, which cost much."""

    def rows(**params: object) -> list[dict[str, Any]]:
        tables = [
            registry.run(cursor, "alerts", {"until": NOW, "part": part, **params})
            for part in (("rest", "stale") if "all" in params else ("rest",))
        ]
        return [row for table in tables for row in registry.rows(table)]

    return rows


@pytest.fixture
def told(cursor: duckdb.DuckDBPyConnection) -> Told:
    """What one alert of the question finds at NOW: asked alone it takes a fraction of the time."""

    def rows(name: str) -> list[dict[str, Any]]:
        found = cursor.sql(f"FROM alert_{name}(CAST(? AS TIMESTAMP))", params=[naive(NOW)])
        return registry.rows(found.to_arrow_table())

    return rows


def naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def one(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [row] = [row for row in rows if row["alert"] == name]
    return row


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_names_severities_and_summaries_are_those_of_the_rules(ask: Ask) -> None:
    asked = {row["alert"]: row for row in ask(all=1)}
    ruled = {name: rule for name, rule in rules().items() if name not in NOT_ASKED}
    assert set(asked) == set(ruled)
    for name, rule in ruled.items():
        assert asked[name]["severity"] == rule["labels"]["severity"]
        assert asked[name]["summary"] == rule["annotations"]["summary"]
        assert (ROOT / asked[name]["runbook"]).is_file()


def test_thresholds_stand_in_the_rules(ask: Ask) -> None:
    for row in ask(all=1):
        if row["threshold"] is not None:
            numbers = {
                float(n) for n in re.findall(r"\b\d+(?:\.\d+)?\b", rules()[row["alert"]]["expr"])
            }
            assert row["threshold"] in numbers, row["alert"]


def test_an_empty_store_can_tell_nothing(ask: Ask) -> None:
    assert ask() == []
    assert {row["state"] for row in ask(all=1)} == {"unknown"}


def test_what_is_there_and_silent_is_inactive(ask: Ask, cursor: duckdb.DuckDBPyConnection) -> None:
    put_hour(cursor, MONDAY, 0.8)
    states = {row["alert"]: row["state"] for row in ask(all=1)}
    assert states["PrefixcacheCoverageLost"] == "inactive"
    assert states["PrefixcacheHitsFrozen"] == "unknown", "no page was read"


def dropped(
    cursor: duckdb.DuckDBPyConnection, until: datetime, dimension: str | None = None
) -> list[dict[str, Any]]:
    """Drops of models, or of values of a dimension."""
    found = cursor.sql(
        "FROM alert_drops(CAST(? AS VARCHAR), CAST(? AS TIMESTAMP), 3600, 'UTC', 20000, 30, NULL)",
        params=[dimension, naive(until)],
    )
    return registry.rows(found.to_arrow_table())


def first_token(basis: str, seconds: float) -> dict[str, object]:
    """Ten requests in six scrapes an hour, all within a bucket that ends there; or each row's."""
    if basis == "log":
        return {"ttft_seconds": float(seconds)}
    return {"ttft_buckets": {float(seconds): 10, float("inf"): 10}}


@pytest.mark.parametrize("basis", ["log", "engine"])
def test_a_drop_fires_since_it_began_and_names_its_class(
    ask: Ask, cursor: duckdb.DuckDBPyConnection, basis: str
) -> None:
    """At 9 and 10 o'clock the ratio is 0.1 where it was 0.8, and the first token takes longer. The
    first row comes a minute after the hour."""
    put = put_hour if basis == "log" else put_counted
    for hours in (0, 1):
        for week, ratio in enumerate(RATIOS, 1):
            begin = MONDAY - week * WEEK - timedelta(hours=hours)
            put(cursor, begin, ratio, **first_token(basis, 1))
        put(cursor, MONDAY - timedelta(hours=hours), 0.1, **first_token(basis, 4))
    row = one(ask(), "PrefixcachePeakHitDrop")
    assert (row["state"], row["model"], row["subject"]) == ("firing", "m", basis)
    assert row["since"] == f"2026-11-30T09:0{int(basis == 'log')}:00Z"
    assert row["value"] == pytest.approx(0.7)
    shown = "10 % where 80 % is expected"
    mark = " (engine counters)" if basis == "engine" else ""
    assert row["description"].startswith(
        f"token hit ratio {shown}{mark}; class: reuse stopped, {shown}"
    )
    assert "PrefixcacheHitDrop" not in [other["alert"] for other in ask()]


def test_a_drop_says_how_little_history_it_stands_on(cursor: duckdb.DuckDBPyConnection) -> None:
    for week, ratio in enumerate(RATIOS[:2], 1):
        for day in (0, 1):
            put_hour(cursor, MONDAY - week * WEEK - day * DAY, ratio)
    put_hour(cursor, MONDAY, 0.1)
    [row] = dropped(cursor, NOW)
    assert row["description"] == (
        "token hit ratio 10 % where 80 % is expected; class: reuse stopped, 10 % where 80 % is"
        " expected; most lost by t; 2 weeks of history."
    )


def test_a_drop_of_a_template_within_a_model_that_does_not_drop(
    ask: Ask, cursor: duckdb.DuckDBPyConnection
) -> None:
    """80,000 of 2,080,000 tokens at 0.05 for 0.8: three points of all, not of it."""
    for week, ratio in enumerate(RATIOS, 1):
        put_hour(cursor, MONDAY - week * WEEK, ratio, 2_000_000, template="big")
        put_hour(cursor, MONDAY - week * WEEK, 0.8, 80_000, template="small")
    put_hour(cursor, MONDAY, 0.8, 2_000_000, template="big")
    put_hour(cursor, MONDAY, 0.05, 80_000, template="small")
    assert dropped(cursor, NOW) == []
    assert dropped(cursor, NOW, "tenant") == [], "nobody gave one"
    found = registry.rows(registry.run(cursor, "alerts", {"until": NOW, "part": "template"}))
    assert [(row["template"], row["route"], row["tenant"]) for row in found] == [
        ("small", None, None)
    ]


def by_the_minute(cursor: duckdb.DuckDBPyConnection, ratios: Sequence[float]) -> None:
    """Four weeks at 0.8 in the four hours before NOW; then these ratios by the minute."""
    begin = NOW - timedelta(minutes=len(ratios))
    for week, ratio in enumerate(RATIOS, 1):
        for hours in range(1, 5):
            put_hour(cursor, NOW - week * WEEK - timedelta(hours=hours), ratio)
    for minute, ratio in enumerate(ratios):
        put_request(cursor, begin + timedelta(minutes=minute), 2_000, round(2_000 * ratio))


def seen_on_call(cursor: duckdb.DuckDBPyConnection) -> str:
    """Since when the on-call screen says that it lasts."""

    def answer(name: str, params: Mapping[str, object]) -> list[dict[str, Any]]:
        if name in ("alerts", "explain"):
            return []
        return registry.rows(registry.run(cursor, name, params))

    began = look(answer, Looking(at=NOW), NOW).onset
    assert began is not None
    return began.at.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("ratios", "since"),
    [
        ([0.8] * 200 + [0.0] * 20, "2026-11-30T10:40:00Z"),
        (
            [0.8] * 100 + [0.2] + [0.8] * 19 + [0.2] * 50 + [0.8] + [0.2] * 49,
            "2026-11-30T09:20:00Z",
        ),
    ],
    ids=["twenty minutes", "a good minute within, a bad one before"],
)
def test_a_drop_began_when_it_did_and_as_on_call(
    cursor: duckdb.DuckDBPyConnection, ratios: Sequence[float], since: str
) -> None:
    """Not when the hour did in which it was found."""
    by_the_minute(cursor, ratios)
    [row] = dropped(cursor, NOW)
    assert row["since"] == since == seen_on_call(cursor)


@pytest.mark.parametrize(("minutes", "known"), [(1, True), (6, False)])
def test_a_drop_lasts_since_the_exporter_first_saw_it(
    cursor: duckdb.DuckDBPyConnection, minutes: int, known: bool
) -> None:
    by_the_minute(cursor, [0.8] * 200 + [0.0] * 20)
    first = NOW - 3 * DAY
    cursor.execute(
        "INSERT INTO open_drops VALUES ('log', 'm', '', '', '', $since, $judged),"
        " ('log', 'm', '', 't', '', TIMESTAMP '2026-01-01', $judged)",
        {"since": naive(first), "judged": naive(NOW - timedelta(minutes=minutes))},
    )
    [row] = dropped(cursor, NOW)
    assert row["since"] == ("2026-11-27T11:00:00Z" if known else "2026-11-30T10:40:00Z")


def test_a_drop_that_does_not_hurt_is_the_ticket(
    ask: Ask, cursor: duckdb.DuckDBPyConnection
) -> None:
    put_hour(cursor, MONDAY - DAY, 0.0, 200_000)
    for week, ratio in enumerate(RATIOS, 1):
        put_hour(cursor, MONDAY - week * WEEK, ratio, ttft_seconds=1.0)
    put_hour(cursor, MONDAY, 0.5, ttft_seconds=1.0)
    rows = ask()
    assert one(rows, "PrefixcacheHitDrop")["severity"] == "ticket"
    assert "PrefixcachePeakHitDrop" not in [row["alert"] for row in rows]


def test_t2_t11_hits_that_stand_still_are_frozen(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    """Of 240,000 tokens an hour 80,000 fall into 20 minutes; the day before 40,000 were cached."""
    put_counted(cursor, MONDAY - DAY, 0.5, 240_000)
    put_counted(cursor, MONDAY, 0.0, 240_000)
    row = one(told("frozen"), "PrefixcacheHitsFrozen")
    assert (row["replica"], row["value"]) == ("r", 0)
    assert row["description"].endswith("of the day before it reused 40,000.")


def test_t58_hits_without_traffic_are_not_frozen(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    put_counted(cursor, MONDAY - DAY, 0.5, 240_000)
    put_counted(cursor, MONDAY, 0.0, 0)
    assert told("frozen") == []


def test_a_replica_that_never_reused_is_not_frozen(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    put_counted(cursor, MONDAY - DAY, 0.0, 240_000)
    put_counted(cursor, MONDAY, 0.0, 240_000)
    assert "PrefixcacheHitsFrozen" not in [row["alert"] for row in told("frozen")]


@pytest.mark.parametrize(("known", "fires"), [(40, True), (60, False)])
def test_coverage_is_lost_below_half_of_the_day_before(
    told: Told, cursor: duckdb.DuckDBPyConnection, known: int, fires: bool
) -> None:
    put_hour(cursor, MONDAY - timedelta(hours=5), 0.5, route="a")
    for place in range(100):
        cached = 100 if place < known else None
        put_request(cursor, NOW - timedelta(seconds=10 * place + 10), 1_000, cached, route="a")
    found = [row for row in told("coverage") if row["alert"] == "PrefixcacheCoverageLost"]
    assert [(row["route"], row["value"]) for row in found] == (
        [("a", pytest.approx(0.4))] if fires else []
    )


def test_t39_tokens_that_no_cache_could_serve_are_no_lost_coverage(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    """80,000 eligible tokens all carry a count; 200,000 more never could."""
    put_hour(cursor, MONDAY - timedelta(hours=5), 0.5, route="a")
    for place in range(20):
        ts = NOW - timedelta(seconds=10 * place + 10)
        put_request(cursor, ts, 4_000, 2_000, route="a")
        put_request(cursor, ts, 10_000, None, route="a", ineligible_reason="response cache")
    assert told("coverage") == []


@pytest.mark.parametrize(("tokens", "fires"), [(700, True), (600, False)])
def test_least_tokens_grow_with_the_window(
    told: Told, cursor: duckdb.DuckDBPyConnection, tokens: int, fires: bool
) -> None:
    """The rule asks for 50,000 in half an hour: 60,000 in 40 minutes may be fewer, 70,000 not."""
    put_hour(cursor, MONDAY - timedelta(hours=5), 0.5, route="a")
    for place in range(100):
        put_request(cursor, NOW - timedelta(seconds=10 * place + 10), tokens, None, route="a")
    assert bool(told("coverage")) is fires


def full(cursor: duckdb.DuckDBPyConnection, begin: datetime, usage_ratio: float) -> None:
    """An hour of six scrapes at that usage, with evictions in the last."""
    put_counted(
        cursor, begin, 0.5, kv_usage_ratio=usage_ratio, block_size=16,
        evicted={"device/blocks": 60},
    )  # fmt: skip


@pytest.mark.parametrize(("usual_ratio", "fires"), [(0.5, True), (0.97, False)])
def test_full_memory_is_told_where_it_is_not_usual(
    told: Told, cursor: duckdb.DuckDBPyConnection, usual_ratio: float, fires: bool
) -> None:
    full(cursor, MONDAY - DAY, usual_ratio)
    full(cursor, MONDAY, 0.98)
    found = [row for row in told("saturated") if row["alert"] == "PrefixcacheKvSaturated"]
    assert [(row["replica"], row["value"]) for row in found] == (
        [("r", pytest.approx(0.98))] if fires else []
    )


def evicted(cursor: duckdb.DuckDBPyConnection, minute: datetime, blocks: int, wanted: int) -> None:
    cursor.execute(
        "INSERT INTO block_minutes (minute, heard, source, replica, model, tier, evicted_blocks,"
        " evicted_reuse_gap) VALUES (?, ?, 's', 'r', 'm', 'device', ?, MAP {3: ?::BIGINT})",
        [naive(minute), naive(minute), blocks, wanted],
    )


@pytest.mark.parametrize(("before", "fires"), [(20, True), (100, False)])
def test_evictions_that_are_regretted(
    told: Told, cursor: duckdb.DuckDBPyConnection, before: int, fires: bool
) -> None:
    """160 of 400 wanted again are 40 %; the day before 5 % or 25 % and one."""
    evicted(cursor, NOW - timedelta(minutes=20), 400, 160)
    evicted(cursor, NOW - DAY, 400, before + 1)
    found = [row for row in told("regret") if row["alert"] == "PrefixcacheEvictionRegret"]
    assert [(row["replica"], row["value"]) for row in found] == ([("r", 0.4)] if fires else [])


def test_few_evictions_are_not_regretted(told: Told, cursor: duckdb.DuckDBPyConnection) -> None:
    evicted(cursor, NOW - timedelta(minutes=20), 200, 200)
    assert told("regret") == []


def test_one_replica_far_below_the_others(told: Told, cursor: duckdb.DuckDBPyConnection) -> None:
    """0.1 where the two others have 0.8."""
    for name, ratio in (("r1", 0.8), ("r2", 0.8), ("r3", 0.1)):
        put_counted(cursor, MONDAY, ratio, 120_000, replica=name)
    row = one(told("outliers"), "PrefixcacheReplicaOutlier")
    assert row["replica"] == "r3"
    assert row["value"] == pytest.approx(0.1 / 0.8, abs=1e-3)
    put_page(cursor, MONDAY + timedelta(minutes=20), 0.1, replica="r3", reset=True)
    assert "PrefixcacheReplicaOutlier" not in [row["alert"] for row in told("outliers")]


def test_the_busiest_replica_can_be_the_outlier(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    """Nine tenths of the traffic at 0.1 pull the mean of all down to 0.17, those of others not."""
    put_counted(cursor, MONDAY, 0.1, 1_080_000, replica="busy")
    put_counted(cursor, MONDAY, 0.8, 120_000, replica="idle")
    row = one(told("outliers"), "PrefixcacheReplicaOutlier")
    assert (row["replica"], row["value"]) == ("busy", pytest.approx(0.125, abs=1e-3))


def test_a_replica_beside_one_without_traffic_is_no_outlier(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    put_counted(cursor, MONDAY, 0.1, 1_080_000, replica="busy")
    put_counted(cursor, MONDAY, 0.8, 96_000, replica="idle")
    assert told("outliers") == []


def test_a_template_that_collapses(told: Told, cursor: duckdb.DuckDBPyConnection) -> None:
    """0.2 is less than a third of 0.8; half of the four weeks' hours were at 0.8."""
    for week, ratio in enumerate(RATIOS, 1):
        put_hour(cursor, MONDAY - week * WEEK, ratio)
        put_hour(cursor, MONDAY - week * WEEK + timedelta(hours=1), ratio)
    put_hour(cursor, MONDAY, 0.2)
    row = one(told("collapses"), "PrefixcacheTemplateHitCollapse")
    assert (row["template"], row["description"]) == (
        "t", "token hit ratio 20 %, usually 80 % at this hour.",
    )  # fmt: skip
    assert row["value"] == pytest.approx(0.25)


def test_a_storm_of_resets(told: Told, cursor: duckdb.DuckDBPyConnection) -> None:
    for minutes in (0, 10):
        put_page(cursor, MONDAY + timedelta(minutes=minutes), 0.1, reset=True)
    assert told("resets") == []
    put_page(cursor, MONDAY + timedelta(minutes=20), 0.1, reset=True)
    row = one(told("resets"), "PrefixcacheResetStorm")
    assert (row["replica"], row["value"]) == ("r", 3)


def test_t13_targets_that_do_not_answer_or_miss_a_metric(
    ask: Ask, cursor: duckdb.DuckDBPyConnection
) -> None:
    rows = [
        ("gone", False, NOW - timedelta(minutes=6), []),
        ("away", False, NOW - timedelta(minutes=2), []),
        ("renamed", True, NOW, ["vllm:prefix_cache_hits"]),
        ("restarted", True, NOW, ["vllm:prefix_cache_hits"]),
        ("blank", True, NOW, ["vllm:prefix_cache_hits"]),
        ("fine", True, NOW, []),
    ]
    for target, up, success, missing in rows:
        cursor.execute(
            "INSERT INTO targets (target, up, last_attempt, last_success, missing_metrics)"
            " VALUES (?, ?, ?, ?, ?)",
            [target, up, naive(NOW), naive(success), missing],
        )
    put_page(cursor, NOW - timedelta(hours=3), 0.1, target="renamed")
    put_page(cursor, NOW - timedelta(hours=3), 0.1, target="restarted")
    put_page(cursor, NOW - timedelta(minutes=40), 0.1, target="restarted", reset=True)
    assert [(row["alert"], row["state"], row["subject"]) for row in ask()] == [
        ("PrefixscopeMetricMissing", "firing", "blank vllm:prefix_cache_hits"),
        ("PrefixscopeMetricMissing", "firing", "renamed vllm:prefix_cache_hits"),
        ("PrefixscopeTargetDown", "firing", "gone"),
        ("PrefixscopeMetricMissing", "pending", "restarted vllm:prefix_cache_hits"),
        ("PrefixscopeTargetDown", "pending", "away"),
    ]
    assert ask(until=NOW + DAY) == [], "of a day later they say nothing"


@pytest.mark.parametrize(("minutes", "fires"), [(20, True), (10, False)])
def test_rows_that_do_not_come_while_engines_compute(
    told: Told, cursor: duckdb.DuckDBPyConnection, minutes: int, fires: bool
) -> None:
    put_counted(cursor, MONDAY, 0.5, 240_000)
    put_request(cursor, NOW - timedelta(minutes=minutes), 1_000, 500)
    found = [row["value"] for row in told("lag") if row["alert"] == "PrefixscopeLagging"]
    assert found == ([minutes * 60] if fires else [])


def logged(cursor: duckdb.DuckDBPyConnection, until: datetime, tokens: int) -> None:
    """So many prompt tokens in the hour before."""
    put_request(cursor, until - timedelta(minutes=30), tokens, 0)


@pytest.mark.parametrize(
    ("day_before", "week_before", "earlier", "fires"),
    [
        (60_000, None, False, True),
        (50_000, None, False, False),
        (60_000, 60_000, True, True),
        (60_000, 40_000, True, False),
        (60_000, None, True, False),
    ],
    ids=["busy yesterday", "quiet", "busy always", "quieter a week ago", "idle a week ago"],
)
def test_a_log_that_stops_where_no_engine_is_scraped(
    told: Told, cursor: duckdb.DuckDBPyConnection,
    day_before: int, week_before: int | None, earlier: bool, fires: bool,
) -> None:  # fmt: skip
    logged(cursor, NOW - DAY, day_before)
    if week_before is not None:
        logged(cursor, NOW - WEEK, week_before)
    if earlier:
        logged(cursor, NOW - WEEK - timedelta(hours=6), 10)
    logged(cursor, NOW - timedelta(hours=2), 60_000)
    found = [row["description"] for row in told("lag")]
    text = "no request row arrived for 150 minutes, and at this hour of the day before there were"
    assert found == ([f"{text} 60,000 prompt tokens."] if fires else [])


def test_a_log_that_was_given_up_a_day_ago_is_not_missed(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    """As in the rule; engines that go on computing do not tell of it for ever."""
    put_counted(cursor, MONDAY, 0.5, 240_000)
    logged(cursor, NOW - timedelta(hours=25), 60_000)
    assert told("lag") == []


def test_rows_are_first_waited_for(ask: Ask, cursor: duckdb.DuckDBPyConnection) -> None:
    """The rule waits 15 minutes beyond its 15."""
    put_counted(cursor, MONDAY, 0.5, 240_000)
    put_request(cursor, NOW - timedelta(minutes=20), 1_000, 500)
    assert one(ask(), "PrefixscopeLagging")["state"] == "pending"
    later = NOW + timedelta(minutes=11)
    put_counted(cursor, NOW, 0.5, 240_000)
    assert one(ask(until=later), "PrefixscopeLagging")["state"] == "firing"


def test_rows_that_come_late(told: Told, cursor: duckdb.DuckDBPyConnection) -> None:
    """The day before 60,000 tokens in time; now 20,000 in time and 40,000 an hour late."""
    put_request(cursor, NOW - DAY - timedelta(minutes=5), 60_000, 0)
    put_request(cursor, NOW - timedelta(minutes=5), 20_000, 0)
    late = NOW - timedelta(minutes=65)
    put_request(cursor, late, 40_000, 0, arrived=NOW - timedelta(minutes=5))
    row = one(told("lag"), "PrefixscopeLagging")
    assert row["description"].startswith("40,000 prompt tokens of half an hour came more than 10")


@pytest.mark.parametrize(("rejected", "fires"), [(3, True), (2, False)])
def test_rows_that_are_rejected(
    told: Told, cursor: duckdb.DuckDBPyConnection, rejected: int, fires: bool
) -> None:
    """3 of 43 are 7 %, 2 of 42 are 4.8 %."""
    put_hour(cursor, NOW - timedelta(minutes=55), 0.5)
    cursor.execute("UPDATE requests SET arrived = ?", [naive(NOW)])
    for _ in range(rejected):
        cursor.execute(
            "INSERT INTO rejects (arrived, source, reason) VALUES (?, 's', 'bad')", [naive(NOW)]
        )
    found = [row for row in told("rejects") if row["alert"] == "PrefixscopeRejecting"]
    assert [row["subject"] for row in found] == (["s"] if fires else [])


@pytest.mark.parametrize(("names", "fires"), [(21, True), (20, False)])
def test_a_label_that_takes_on_ever_more_names(
    told: Told, cursor: duckdb.DuckDBPyConnection, names: int, fires: bool
) -> None:
    """Request ids taken for tenants. Who has a series, or was there the day before, is none."""
    for label, value in (("tenant", "shown"), ("model", "m"), ("template", "t")):
        cursor.execute("INSERT INTO label_values (label, value) VALUES (?, ?)", [label, value])
    put_request(cursor, NOW - timedelta(hours=30), 10, 5, tenant="old")
    for name in ("shown", "old", *(f"id-{number}" for number in range(names))):
        put_request(cursor, NOW - timedelta(minutes=30), 10, 5, tenant=name)
    found = [row for row in told("folded") if row["alert"] == "PrefixscopeLabelsFolded"]
    assert [(row["subject"], row["value"]) for row in found] == ([("tenant", 21)] if fires else [])


def test_stale_kv_pages_and_what_only_may_be_stale_does_not(
    told: Told, cursor: duckdb.DuckDBPyConnection
) -> None:
    """A chain written under weights w1 is read under w2."""
    chain = {"block_hashes": [1, 2, 3, 4], "block_size": 16, "hash_key_id": "k", "replica": "r"}
    put_request(cursor, MONDAY, 64, 0, model_fingerprint="w1", **chain)
    put_request(cursor, MONDAY + timedelta(minutes=30), 64, 48, model_fingerprint="w2", **chain)
    [row] = [row for row in told("stale") if row["alert"].startswith("PrefixcacheStale")]
    assert (row["alert"], row["subject"], row["value"]) == (
        "PrefixcacheStaleReuse", "model_fingerprint", 48,
    )  # fmt: skip


def test_reuse_across_scopes(told: Told, ask: Ask, cursor: duckdb.DuckDBPyConnection) -> None:
    """99 tokens within the hour are silent, 100 are not; without a request that was checked nobody
    can tell."""

    def put(minutes: int, replica: str, checked: int, tokens: int) -> None:
        cursor.execute(
            "INSERT INTO cross_scope_minutes BY NAME SELECT $minute AS minute, 'm' AS model,"
            " $replica AS replica, true AS found, $checked AS checked_requests,"
            " 0 AS checked_cached_tokens, 1 AS reused_requests, $tokens AS reused_at_least_tokens,"
            " $tokens AS reused_at_most_tokens, 0 AS cannot_tell_requests, 0 AS cannot_tell_tokens",
            {"minute": naive(MONDAY + timedelta(minutes=minutes)), "replica": replica,
             "checked": checked, "tokens": tokens},
        )  # fmt: skip

    def state() -> str:
        (row,) = [r for r in ask(all=1) if r["alert"] == "PrefixcacheCrossScopeReuse"]
        return str(row["state"])

    put(20, "young", 0, 0)
    assert state() == "unknown"
    put(-61, "r", 1, 5000)
    put(10, "r", 1, 60)
    put(30, "r", 1, 39)
    assert state() == "inactive"
    put(40, "r", 1, 1)
    row = one(told("crossed"), "PrefixcacheCrossScopeReuse")
    assert (row["model"], row["replica"], row["value"]) == ("m", "r", 100)
    assert row["since"] == "2026-11-30T10:10:00Z"


def test_alerts_of_one_model(ask: Ask, cursor: duckdb.DuckDBPyConnection) -> None:
    for name in ("m", "n"):
        for minutes in (0, 10, 20):
            begin = MONDAY + timedelta(minutes=minutes)
            put_page(cursor, begin, 0.1, reset=True, model=name, replica=f"of {name}")
    assert [row["replica"] for row in ask()] == ["of m", "of n"]
    assert [row["replica"] for row in ask(model="n")] == ["of n"]
