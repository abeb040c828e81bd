"""The figures of a report against sums worked out by hand.

The week before: template a 8000 of 10000 from cache, b 1000 of 10000: 9000 of 20000 = 45 %.
The week: a 15000 of 30000 (version v2 instead of v1), b 1000 of 5000, c 1000 of 5000:
17000 of 40000 = 42.5 %. Beside them 10000 prompt tokens do not report (coverage 40000 of 50000),
and a response cache answered three requests of 700 tokens.
"""

from datetime import timedelta

import pytest

from dashboard.report import WeekReport, words
from dashboard.report.figures import ttft_pair
from dashboard.report.week import TtftClass
from dashboard.report.weeks import Slot
from tests.unit_report.conftest import Memory, at, same

PRICE = {
    "provider": None, "model": "m", "input": 3.0, "output": 15.0, "cached_read": 0.3,
    "write_5m": 3.75, "write_1h": 6.0, "write_other": 6.0, "tier_tokens": None, "source": "list",
    "as_of": at("11-01 00:00"), "matched_name": "m", "note": None, "served_here": False,
}  # fmt: skip


NEXT_WEEK = "11-30 10:00"  # so that the week is over


def template(name: str, version: str, prompt: int, cached: int | None) -> dict[str, object]:
    return {"template": name, "template_version": version, "tenant": "t", "prompt_tokens": prompt,
            "cached_tokens": cached}  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Memory:
    made = Memory()
    week = [
        *same(10, "11-18 10:00", **template("a", "v1", 1000, 800)),
        *same(10, "11-18 11:00", **template("b", "v1", 1000, 100)),
        *same(30, "11-24 10:00", **template("a", "v2", 1000, 500)),
        *same(1, "11-24 11:00", **template("b", "v1", 5000, 1000)),
        *same(5, "11-25 09:00", **template("c", "v1", 1000, 200)),
        *same(2, "11-25 09:30", **template("c", "v1", 5000, None)),
    ]
    made.insert("requests", week)
    made.insert("requests", same(1, NEXT_WEEK, **template("a", "v2", 1000, 0)))
    stored = same(3, "11-25 10:00", **template("a", "v2", 700, None))
    made.insert("requests", [{**row, "ineligible_reason": "response_cache"} for row in stored])
    made.insert("model_prices", [PRICE])
    made.insert("block_resets", [
        {"ts": at("11-25 08:00"), "replica": "r1", "reason": "sleep"},
        {"ts": at("11-17 08:00"), "replica": "r1", "reason": "restart"},
    ])  # fmt: skip
    return made


@pytest.fixture(scope="module")
def report(store: Memory) -> WeekReport:
    return store.report()


def test_t12_the_headline_is_a_ratio_of_sums(report: WeekReport) -> None:
    """Not the mean of the 36 requests' ratios, which is (30 x 0.5 + 0.2 + 5 x 0.2) / 36 = 45 %."""
    lead = report.headline
    assert (lead.cached_tokens, lead.reported_prompt_tokens) == (17_000, 40_000)
    assert lead.token_hit_ratio == pytest.approx(0.425)
    assert lead.token_hit_ratio_before == pytest.approx(0.45)
    assert lead.coverage_ratio == pytest.approx(0.8)
    assert lead.sentence == (
        "Token hit ratio 42.5 % in 2026-W48 (17,000 of 40,000 prompt tokens from cache), -2.5 "
        "points against the week before (45.0 %); 80.0 % of the eligible prompt tokens say so "
        "(coverage)."
    )


def test_t39_a_response_cache_is_a_line_of_its_own(report: WeekReport) -> None:
    assert report.headline.ineligible_prompt_tokens == 2_100
    assert report.quality.response_cache_requests == 3
    assert report.quality.ineligible == ()
    assert words.response_cache_words(report).startswith(
        "3 requests answered by a gateway's response cache (2,100 prompt tokens)"
    )


def test_movers_are_those_whose_own_ratio_moved(report: WeekReport) -> None:
    """a: (0.5 - 0.8) x 30000; b: (0.2 - 0.1) x 5000; c is new, which is another mix."""
    assert [(mover.name, mover.within_tokens) for mover in report.up] == [("b", 500)]
    assert [(mover.name, mover.within_tokens) for mover in report.down] == [("a", -9_000)]
    assert report.down[0].why == "version v2 is new: 100.0 % of its tokens at 50.0 %"


def test_billed_saving_is_net_and_speaks_for_what_has_a_price(report: WeekReport) -> None:
    """At 3 USD a million, 0.3 for cached tokens: 17000 x 2.7 / 1e6. The 23000 computed ones and
    the 2100 that the response cache answered cost 3, the 17000 cost 0.3. 10000 are not known."""
    assert report.billed is not None
    assert report.billed.net_saved_usd == pytest.approx(0.0459)
    assert report.billed.input_usd == pytest.approx((23_000 + 2_100) * 3e-6 + 17_000 * 0.3e-6)
    assert report.billed.priced_ratio == pytest.approx(42_100 / 52_100)
    assert report.freed is None, "a model that a provider bills frees no GPU"
    assert [row.model for row in report.prices] == ["m"]


def test_segments_add_up_to_the_whole(report: WeekReport) -> None:
    by = {each.by: each.rows for each in report.segments}
    assert set(by) == {"template", "tenant", "model"}
    for rows in by.values():
        assert sum(row.cached_tokens for row in rows) == 17_000
        assert sum(row.prompt_tokens for row in rows) == 52_100
    c = next(row for row in by["template"] if row.name == "c")
    assert (c.token_hit_ratio, c.token_hit_ratio_before) == (0.2, None)
    assert c.coverage_ratio == pytest.approx(5_000 / 15_000)


def test_t58_hours_without_traffic_are_not_0(report: WeekReport) -> None:
    cells = {cell.slot: cell for cell in report.hours}
    assert len(cells) == 168
    assert cells[Slot(1, 10)].token_hit_ratio == pytest.approx(0.5)
    assert cells[Slot(2, 9)].coverage_ratio == pytest.approx(5_000 / 15_000)
    assert cells[Slot(2, 10)].token_hit_ratio is None, "only a response cache answered"
    assert cells[Slot(3, 0)].prompt_tokens is None
    told = [cell for cell in report.hours if cell.token_hit_ratio is not None]
    assert len(told) == 3


def test_thirteen_weeks_end_with_the_headline(report: WeekReport) -> None:
    assert [point.week.name for point in report.weeks][::12] == ["2026-W36", "2026-W48"]
    ratios = [point.token_hit_ratio for point in report.weeks]
    assert ratios[-2:] == [pytest.approx(0.45), report.headline.token_hit_ratio]
    assert set(ratios[:-2]) == {None}
    assert report.weeks[-2].incident_words == "1 reset"


def test_t24_a_cleared_cache_is_told_beside_the_ratio(report: WeekReport) -> None:
    (incident,) = report.incidents
    assert (incident.kind, incident.subject) == ("reset", "r1")
    assert incident.sentence == "cache cleared: sleep"


def test_t68_late_rows_reach_their_week_which_is_marked_revised(store: Memory) -> None:
    """Four of a's rows arrive on 2 December: without them 15000 of 36000."""
    store.connection.execute(
        "UPDATE requests SET arrived = TIMESTAMP '2026-12-02 09:00'"
        " WHERE ts >= TIMESTAMP '2026-11-24 10:26' AND ts < TIMESTAMP '2026-11-24 10:30'"
    )
    made = store.report().quality
    store.connection.execute("UPDATE requests SET arrived = ts")
    assert (made.late_requests, made.late_prompt_tokens) == (4, 4_000)
    assert made.ratio_before_late == pytest.approx(15_000 / 36_000)
    assert made.revised == (
        "Revised: 4 rows with 4,000 prompt tokens arrived more than a day after the week, the last "
        "Wed 2026-12-02 09:00. A report made before them said 41.7 %, now 42.5 %."
    )


def test_the_same_rows_in_another_order_give_the_same_report(
    store: Memory, report: WeekReport
) -> None:
    store.connection.execute("CREATE TEMP TABLE turned AS FROM requests ORDER BY ts DESC")
    store.connection.execute("DELETE FROM requests; INSERT INTO requests FROM turned")
    assert store.report() == report


def test_a_week_from_another_zone_holds_other_rows(store: Memory) -> None:
    """In Auckland (UTC+13) the rows of Tuesday 11:00 UTC are of Wednesday."""
    made = store.report(zone="Pacific/Auckland")
    assert made.headline.cached_tokens == 17_000
    cells = {cell.slot: cell for cell in made.hours}
    assert cells[Slot(2, 0)].reported_prompt_tokens == 5_000


def test_hits_and_misses_are_compared_within_classes_of_length() -> None:
    """Weighted by hits: (30 x 0.1 + 10 x 0.3) / 40 and (30 x 0.4 + 10 x 0.8) / 40; the last class
    has too few misses to say anything."""
    classes = [
        TtftClass(512, 725, 30, 10, 0.1, 0.4),
        TtftClass(725, 1025, 10, 20, 0.3, 0.8),
        TtftClass(1025, 1450, 900, 9, 5.0, 5.0),
    ]
    pair = ttft_pair("gateway", classes)
    assert pair is not None
    assert (pair.hit_seconds, pair.miss_seconds) == (pytest.approx(0.15), pytest.approx(0.5))
    assert (pair.hit_requests, pair.miss_requests) == (40, 30)
    assert ttft_pair("gateway", classes[2:]) is None


def test_an_unfinished_week_is_compared_with_the_same_part_of_the_one_before(
    store: Memory, report: WeekReport
) -> None:
    """Without the next week's row data ends on Wednesday 10:02. Until then a had three requests."""
    assert report.data.partial == ""
    next_week = "ts >= TIMESTAMP '2026-11-30'"
    store.connection.execute(f"CREATE TEMP TABLE later AS FROM requests WHERE {next_week}")
    store.connection.execute(f"DELETE FROM requests WHERE {next_week}")
    made = store.report()
    store.connection.execute("INSERT INTO requests FROM later")
    assert made.data.partial == "data ends Wed 2026-11-25 10:02"
    assert made.weeks[-1].partial
    lead = made.headline
    assert lead.compared_since == report.week.back(1).since
    assert lead.compared_until == report.week.since - timedelta(days=7) + timedelta(
        days=2, hours=10, minutes=2
    )
    assert lead.token_hit_ratio_before == pytest.approx(0.8), "not 0.45: b came later"
    assert "-37.5 points against the same part of the week before (80.0 %)" in lead.sentence
