"""Pain, faults, strip, contributors and marks in words, from rows as the questions give them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from queries.on_call import words
from queries.on_call.chart import Chart, chart, marks
from queries.on_call.contributors import contributors, replica_contributors
from queries.on_call.expected import Expected
from queries.on_call.pain import Pain, pain
from queries.on_call.strip import faults, strip

UTC_ZONE = ZoneInfo("UTC")
CLOCK = datetime(2026, 11, 29, 3, 5, tzinfo=UTC)
TIMES = (CLOCK, CLOCK)
Row = dict[str, object]

PAIN: Row = {
    "ttft_p90_seconds": 1.2, "usual_ttft_p90_seconds": 0.8, "ttft_weeks": 4, "ttft_requests": 90,
    "ttft_point": "gateway", "computed_tokens_per_second": 800.0,
    "peak_computed_tokens_per_second": 2_000.0, "peak_hour": "2026-11-25T19:00:00Z",
    "computed_basis": "log",
}  # fmt: skip


def hurt(
    changes: Row | None = None, *, dropped: bool = True, waiting: tuple[int | None, ...] = (3, 4)
) -> Pain:
    replicas = [{"observer": "engine", "waiting_requests": count} for count in waiting]
    return pain(PAIN | (changes or {}), replicas, UTC_ZONE, dropped=dropped)


def test_slow_first_tokens_hurt() -> None:
    found = hurt()
    assert (found.hurts, found.words) == (True, "It hurts: slow first tokens")
    ttft, computed, waiting = found.measures
    assert (ttft.value, ttft.bad) == ("1.20 s", True)
    assert ttft.against == ("+50 % of the usual 800 ms in these hours (4 weeks), at the gateway")
    assert (computed.value, computed.bad) == ("800", False)
    assert computed.against == (
        "40 % of its highest hour in four weeks, 2,000 (Wednesday 19:00, 25 Nov)"
    )
    assert (waiting.value, waiting.against) == ("7", "over 2 replicas")


@pytest.mark.parametrize(
    ("changes", "words_"),
    [
        # The borders of `hurts` in peak_drop: 1.25 times the usual, 0.9 of the highest.
        ({"ttft_p90_seconds": 1.0}, "It does not hurt: first tokens and prefill as usual"),
        ({"ttft_p90_seconds": 1.01}, "It hurts: slow first tokens"),
        (
            {"ttft_p90_seconds": 0.8, "computed_tokens_per_second": 1_801.0},
            "It hurts: prefill near its highest",
        ),
        (
            {"computed_tokens_per_second": 1_900.0},
            "It hurts: slow first tokens and prefill near its highest",
        ),
    ],
)
def test_what_hurts(changes: Row, words_: str) -> None:
    assert hurt(changes).words == words_


def test_trouble_without_a_drop_is_not_blamed_on_it() -> None:
    assert hurt(dropped=False).words == "Slow first tokens, not because of a drop"


def test_of_a_drop_its_own_judgement_counts() -> None:
    """Whoever was paged because it hurts must not read beneath that it does not."""
    calm = PAIN | {"ttft_p90_seconds": 0.8}
    judged = pain(calm, [], UTC_ZONE, dropped=True, judged=True)
    assert (judged.hurts, judged.words) == (True, "It hurts, by the judgement of the drop")
    assert pain(PAIN, [], UTC_ZONE, dropped=True, judged=False).hurts is False
    assert pain(PAIN, [], UTC_ZONE, dropped=True, judged=None).hurts is True
    assert pain(calm, [], UTC_ZONE, dropped=False, judged=True).hurts is False


def test_unknown_is_said_as_unknown() -> None:
    nothing = dict.fromkeys(PAIN) | {"ttft_weeks": 0}
    found = hurt(nothing, waiting=(None,))
    assert (found.hurts, found.words) == (None, "Not known whether it hurts")
    assert [measure.value for measure in found.measures] == ["unknown"] * 3
    assert [measure.against for measure in found.measures] == [
        "no row and no engine measures it", "nothing counts cached tokens",
        "no engine tells its queue",
    ]  # fmt: skip


def test_without_history_figures_stand_alone() -> None:
    found = hurt(
        {"usual_ttft_p90_seconds": None, "ttft_weeks": 0, "peak_computed_tokens_per_second": None}
    )
    assert found.hurts is None
    assert [measure.value for measure in found.measures[:2]] == ["1.20 s", "800"]
    assert "no earlier week" in found.measures[0].against
    assert "no earlier hour" in found.measures[1].against


def test_waiting_says_how_many_replicas_tell() -> None:
    assert hurt(waiting=(3, None, 4)).measures[2].against == "over 2 of 3 replicas"


STATE: Row = {"level": 1, "last_ts": "2026-11-29T03:04:40Z", "engine_last_ts": None}
REPLICA: Row = {"replica": "a", "target": "a:1", "up": True, "frozen": False, "missing_metrics": [],
                "observer": "engine", "last_success": "2026-11-29T03:04:00Z", "error": None,
                "prompt_tokens": 100}  # fmt: skip


def found_faults(
    state: Row = STATE, replicas: tuple[Row, ...] = (), lead: Row | None = None,
    alerts: tuple[Row, ...] = (), fixed: bool = False, asked: bool = False,
) -> tuple[str, ...]:  # fmt: skip
    return faults(
        state, replicas, lead, alerts, CLOCK, words.plain, fixed=fixed, asked_of_engines=asked
    )


def test_healthy_telemetry_has_no_faults() -> None:
    assert found_faults(replicas=(REPLICA,)) == ()


def test_replicas_down_frozen_or_incomplete_are_named() -> None:
    down = [REPLICA | {"replica": name, "up": False} for name in "bcde"]
    found = found_faults(
        replicas=(*down, REPLICA | {"frozen": True}, REPLICA | {"missing_metrics": ["x", "y"]},
                  REPLICA | {"replica": None, "target": None, "up": None})
    )  # fmt: skip
    assert found == (
        "Not answering: b, c, d and 1 more; the last of them for 60 s.",
        "Counters stand still while traffic flows: a.",
        "a lacks x, y.",
    )


def test_a_target_that_never_answered_goes_by_its_address() -> None:
    row = REPLICA | {"replica": None, "up": False, "last_success": None}
    assert found_faults(replicas=(row,)) == ("Not answering: a:1.",)


def test_who_does_not_answer_is_told_with_the_time_and_the_error() -> None:
    """What somebody who is woken asks next: since when, and what does it say?"""
    down = {"up": False, "last_success": "2026-11-29T03:01:00Z", "error": "connection refused"}
    assert found_faults(replicas=(REPLICA | down,)) == (
        "Not answering for 4 minutes: a (connection refused).",
    )


def test_a_router_is_no_replica_but_its_silence_is_told() -> None:
    router = REPLICA | {"replica": "router", "observer": "router", "up": False}
    assert dict(strip(STATE, (REPLICA, router), None, TIMES, ZoneInfo("UTC")))[
        "replicas answering"
    ] == "1 of 1"  # fmt: skip
    assert found_faults(replicas=(REPLICA, router)) == ("Not answering for 60 s: router.",)


def test_old_data_is_a_fault() -> None:
    state = STATE | {"last_ts": "2026-11-29T02:00:00Z"}
    assert found_faults(state) == ("The newest data is 65 minutes old.",)


def test_one_kind_of_data_may_fall_silent_while_the_other_goes_on() -> None:
    state = {"level": 1, "last_ts": "2026-11-29T02:40:00Z",
             "engine_last_ts": "2026-11-29T03:05:00Z"}  # fmt: skip
    assert found_faults(state, asked=True) == ("The request log has been silent for 25 minutes.",)
    # No row is no fault while nobody asks the engines anything.
    assert found_faults(state) == ()
    turned = {"level": 1, "last_ts": "2026-11-29T03:05:00Z",
              "engine_last_ts": "2026-11-29T02:00:00Z"}  # fmt: skip
    assert found_faults(turned) == ("The engine pages have been silent for 65 minutes.",)


def test_lost_counts_and_our_own_alerts_are_faults() -> None:
    lead: Row = {"class": "telemetry", "evidence": "coverage 50 %, usually 98 %"}
    alerts: tuple[Row, ...] = tuple(
        {"alert": name, "state": state, "summary": "rows are refused"}
        for name, state in (
            ("PrefixscopeRejecting", "firing"), ("PrefixcacheHitDrop", "firing"),
            ("PrefixscopeLagging", "pending"), ("PrefixcacheCoverageLost", "firing"),
            ("PrefixscopeTargetDown", "firing"),
        )
    )  # fmt: skip
    assert found_faults(lead=lead, alerts=alerts) == (
        "Rows lost their cached counts: coverage 50 %, usually 98 %.",
        "PrefixscopeRejecting: rows are refused.",
    )
    # Of an earlier moment only alerts can tell that a target was down.
    assert found_faults(alerts=alerts, fixed=True) == (
        "PrefixscopeRejecting: rows are refused.",
        "PrefixcacheCoverageLost: rows are refused.",
        "PrefixscopeTargetDown: rows are refused.",
    )


def test_what_is_down_now_was_not_down_then() -> None:
    old = STATE | {"last_ts": "2026-11-01T00:00:00Z"}
    assert found_faults(old, replicas=(REPLICA | {"up": False},), fixed=True) == ()


def test_the_strip_says_where_it_stands() -> None:
    state = STATE | {"level": 2, "engine_last_ts": "2026-11-29T03:01:00Z"}
    lead: Row = {"basis": "log", "coverage_ratio": 0.987}
    replicas = (REPLICA, REPLICA | {"up": False}, REPLICA | {"up": None})
    assert strip(state, replicas, lead, TIMES, ZoneInfo("Asia/Kolkata")) == (
        ("time", "Sunday 2026-11-29 08:35 (Asia/Kolkata)"),
        ("age of data", "log 20 s, engines 4 minutes"),
        ("replicas answering", "1 of 2"),
        ("basis", "request log"),
        ("coverage", "99 %"),
        ("level", "2, with KV-cache events"),
    )


def test_the_strip_of_engine_counters_and_of_nothing() -> None:
    engine = dict(strip(STATE, (), {"basis": "engine", "coverage_ratio": None}, TIMES, UTC_ZONE))
    assert (engine["basis"], engine["coverage"]) == ("engine counters", "all (engine counters)")
    assert engine["replicas answering"] == "none is scraped"
    empty = {"level": None, "last_ts": None, "engine_last_ts": None}
    nothing = dict(strip(empty, (), None, TIMES, UTC_ZONE))
    assert (nothing["age of data"], nothing["basis"]) == ("no data", "nothing reports")
    assert (nothing["coverage"], nothing["level"]) == ("–", "empty store")


def test_an_earlier_moment_names_the_clock_too() -> None:
    told = dict(strip(STATE, (), None, (CLOCK, CLOCK - timedelta(days=1)), UTC_ZONE))
    assert told["time"] == "Saturday 2026-11-28 03:05 (UTC), seen at Sunday 2026-11-29 03:05"


def part(name: str, change: float | None, **changes: object) -> Row:
    row: Row = {
        "template": name, "change_ratio": change, "seen": "both", "token_hit_ratio": 0.29,
        "token_hit_ratio_before": 0.72, "traffic_share_ratio": 0.5,
        "traffic_share_ratio_before": 0.4, "within_tokens": -30, "mix_tokens": -10,
    }  # fmt: skip
    return row | changes


def test_the_three_that_lost_most_are_told_in_points() -> None:
    rows = [
        part("gains", 0.3), part("checkout", -0.21), part("mix", -0.04, mix_tokens=-31),
        part("new", -0.02, seen="appeared"), part("gone", -0.01, seen="vanished"),
    ]  # fmt: skip
    found = contributors("template", rows, "last week", words.plain)
    assert [(p.name, words.points(p.change_ratio), p.why) for p in found.parts] == [
        ("checkout", "-21.0 points", "its ratio 72 % → 29 %"),
        ("mix", "-4.0 points", "its share of the traffic 40 % → 50 %, at 72 %"),
        ("new", "-2.0 points", "new: 50 % of the traffic at 29 %"),
    ]
    assert found.change_ratio == pytest.approx(0.02)


def test_nothing_lost_or_nothing_to_compare_names_nobody() -> None:
    rows = [part("a", 0.1), part("b", -0.0004)]
    assert contributors("template", rows, "x", words.plain).parts == ()
    assert contributors("template", [part("a", None)], "x", words.plain).parts == ()
    gone = contributors("template", [part("gone", -0.1, seen="vanished")], "x", words.plain)
    assert gone.parts[0].why == "gone: was 40 % of the traffic at 72 %"


def test_replicas_are_told_by_what_each_lost_against_its_own_expectation() -> None:
    def judged(replica: str, tokens: int, drop: float | None, now: float | None) -> Row:
        return {"replica": replica, "reported_prompt_tokens": tokens, "drop_ratio": drop,
                "token_hit_ratio": now, "expected_ratio": 0.8}  # fmt: skip

    rows = [
        judged("r2", 100, -0.02, 0.82),
        judged("r1", 300, 0.5, 0.3),
        judged("r3", 50, None, None),
    ]
    found = replica_contributors(rows, words.plain)
    assert [(p.dimension, p.value, p.why) for p in found.parts] == [
        ("replica", "r1", "its ratio 30 %, expected 80 %")
    ]
    assert found.parts[0].change_ratio == pytest.approx(-0.5 * 300 / 400)
    assert found.change_ratio == pytest.approx((-0.5 * 300 + 0.02 * 100) / 400)
    assert replica_contributors([judged("r1", 300, None, None)], words.plain).parts == ()


def test_marks_are_in_order_once_each_and_only_of_the_chart() -> None:
    ends = (CLOCK - timedelta(hours=6), CLOCK)
    reset = {"ts": "2026-11-29T01:00:00Z", "replica": "a", "reason": "restart"}
    version = {"ts": "2026-11-29T00:30:00Z", "kind": "template", "subject": "checkout",
               "version": "v8", "version_before": "v7"}  # fmt: skip
    alerts = [
        {"alert": "PrefixcacheHitDrop", "state": state, "since": since}
        for state, since in (
            ("firing", "2026-11-29T02:00:00Z"), ("pending", "2026-11-29T02:00:00Z"),
            ("firing", "2026-11-28T02:00:00Z"), ("firing", None),
        )
    ]  # fmt: skip
    found = marks([reset, reset | {"tier": "host"}], [version], alerts, ends, words.plain)
    assert [(mark.letter, f"{mark.at:%H:%M}", mark.words) for mark in found] == [
        ("A", "00:30", "template checkout: v7 → v8"),
        ("B", "01:00", "reset of a (restart)"),
        ("C", "02:00", "alert PrefixcacheHitDrop"),
    ]


def drawn() -> Chart:
    since = CLOCK - timedelta(hours=6)
    at = since + timedelta(minutes=10)
    ratio = [{"ts": at, "token_hit_ratio": 0.5}]
    load = [{"ts": at, "prompt_tokens_per_second": 120.0, "basis": "engine"}]
    band = [Expected(CLOCK - timedelta(hours=1), CLOCK, 0.7, 0.8, 0.75)]
    return chart((since, CLOCK), UTC_ZONE, ratio, load, band, ())


def test_t57_steps_without_traffic_are_gaps() -> None:
    found = drawn()
    assert len(found.times) == len(found.ratios) == len(found.loads) == 72
    assert [place for place, ratio in enumerate(found.ratios) if ratio is not None] == [2]
    assert found.ratios[2] == 0.5


def test_the_chart_begins_with_a_whole_step() -> None:
    ends = (CLOCK - timedelta(hours=6, seconds=-20), CLOCK)
    found = chart(ends, UTC_ZONE, [], [], [], ())
    assert found.times[0] == CLOCK - timedelta(hours=6, minutes=-5)
    assert found.times[-1] == CLOCK - timedelta(minutes=5)


def test_the_chart_is_told_in_words() -> None:
    assert drawn().words == (
        "Hit ratio over six hours: lowest 50 % at Saturday 21:15, highest 50 % at Saturday 21:15; "
        "expected in the last hour 70–80 %. Highest load 120 prompt tokens/s by engine counters."
    )
    empty = chart((CLOCK - timedelta(hours=6), CLOCK), UTC_ZONE, [], [], [], ())
    assert empty.words == "No hit ratio in these six hours."


def test_numbers_never_round_to_nothing_or_all() -> None:
    assert [words.percent(value) for value in (None, 0.0, 0.004, 0.996, 1.0, 0.375)] == [
        "–", "0 %", "< 1 %", "> 99 %", "100 %", "38 %",
    ]  # fmt: skip
    assert words.band(0.688, 0.741) == "69–74 %"
    assert words.band(0.701, 0.704) == "70 %"
    assert words.band(None, 0.5) == "–"
    assert [words.age(timedelta(seconds=s)) for s in (-3, 119, 120, 7_199, 7_200, 200_000)] == [
        "0 s", "119 s", "2 minutes", "119 minutes", "2 hours", "2 days",
    ]  # fmt: skip
