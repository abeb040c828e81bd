"""`peak_drop` on small tables whose figures are worked out by hand.

Four Mondays at 10:00 had ratios of 0.80, 0.80, 0.79 and 0.81 on 100,000 tokens, 30 November is the
fifth. Their median is 0.80. Between weeks the ratio strays by 0, 0.01 and 0.02: times the harmonic
tokens 0, 5 and 20, in the median 5. So by chance it strays by
sqrt(2.198 x 5 x (1/100,000 + 1/400,000)) = 0.0117, and by twice that where the load is new.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any

import pytest

from queries import registry
from tests import empty_store
from tests.unit_alerts.hours import (
    MONDAY,
    RATIOS,
    REQUESTS,
    TOKENS,
    put_hour,
    put_page,
    put_request,
)

CHANCE = (2.198 * 5 * (1 / 100_000 + 1 / 400_000)) ** 0.5


class Table:
    """The tables of a store, filled and asked."""

    def __init__(self, threads: int = 1) -> None:
        self._connection = empty_store.in_memory(threads)
        self.hour = partial(put_hour, self._connection)
        self.request = partial(put_request, self._connection)
        self.page = partial(put_page, self._connection)

    def judge(self, begin: datetime = MONDAY, **params: object) -> dict[str, Any]:
        """The row of the hour that begins then; it must be the only one."""
        [row] = self.rows(until=begin + timedelta(hours=1), **params)
        return row

    def rows(self, **params: object) -> list[dict[str, Any]]:
        return registry.rows(registry.run(self._connection.cursor(), "peak_drop", params))


@pytest.fixture
def table() -> Table:
    """The four weeks before, without the Monday itself."""
    made = Table()
    for week, ratio in enumerate(RATIOS, 1):
        made.hour(MONDAY - timedelta(weeks=week), ratio, model_fingerprint="w1")
    return made


def test_a_fall_beyond_chance_is_a_drop(table: Table) -> None:
    table.hour(MONDAY, 0.5, model_fingerprint="w1")
    row = table.judge()
    assert (row["history_weeks"], row["method"], row["basis"]) == (4, "same hours", "log")
    assert row["reported_prompt_tokens"] == TOKENS
    assert row["token_hit_ratio"] == pytest.approx(0.5)
    assert row["expected_ratio"] == pytest.approx(0.8)
    assert row["expected_low_ratio"] == pytest.approx(0.8 - 3 * 2 * CHANCE, abs=1e-6)
    assert row["drop_ratio"] == pytest.approx(0.3)
    assert row["is_drop"] is True
    assert row["contributor"] == "t"
    assert row["contributor_share_ratio"] == pytest.approx(1)


def test_a_fall_within_chance_is_none(table: Table) -> None:
    """Five points are not enough: 3.5 x 2 x 0.0117 are 8.2."""
    table.hour(MONDAY, 0.74)
    row = table.judge()
    assert row["drop_ratio"] == pytest.approx(0.06)
    assert (row["is_drop"], row["class"], row["severity"]) == (False, None, None)


def test_t58_little_traffic_is_not_judged(table: Table) -> None:
    table.hour(MONDAY, 0.0, tokens=10_000)
    row = table.judge()
    assert (row["is_drop"], row["class"], row["severity"]) == (None, None, None)
    assert table.judge(min_tokens=5_000)["is_drop"] is True
    assert table.rows(until=MONDAY + timedelta(hours=5)) == []


def test_hours_of_the_week_are_local(table: Table) -> None:
    """Berlin put its clocks back on 25 October: 10:00 UTC of 2 November was 11:00 there, the Monday
    before 12:00. The same local hour is 09:00 UTC then."""
    third = datetime(2026, 11, 2, 10, tzinfo=UTC)
    made = Table()
    for week in (1, 2, 3, 4):
        made.hour(third - timedelta(weeks=week, hours=1), 0.9)
        made.hour(third - timedelta(weeks=week), 0.1)
    made.hour(third, 0.9)
    assert made.judge(third, zone="Europe/Berlin")["expected_ratio"] == pytest.approx(0.9)
    assert made.judge(third, zone="UTC")["expected_ratio"] == pytest.approx(0.1)


def test_without_a_week_equal_pressure_is_compared() -> None:
    """Thirteen hours at 40 % KV usage had 0.7, others at 10 % had 0.9: at 40 % 0.7 is expected."""
    made = Table()
    for hour in range(1, 14):
        made.hour(MONDAY - timedelta(hours=2 * hour), 0.7)
        made.page(MONDAY - timedelta(hours=2 * hour), 0.4)
        made.hour(MONDAY - timedelta(hours=2 * hour + 1), 0.9)
        made.page(MONDAY - timedelta(hours=2 * hour + 1), 0.1)
    made.hour(MONDAY, 0.7)
    made.page(MONDAY, 0.42)
    row = made.judge()
    assert (row["history_weeks"], row["method"]) == (0, "equal pressure")
    assert row["expected_ratio"] == pytest.approx(0.7)
    assert row["severity"] is None


@pytest.mark.parametrize("weeks", [1, 2, 3])
def test_with_fewer_weeks_fewer_are_compared(weeks: int) -> None:
    """Ratios of 0.81, 0.79 and 0.80. The day before, 0.81 too, tells with one week what strays by
    chance: nothing, so that 3 points would do; with more weeks the weeks tell."""
    made = Table()
    for week in range(1, weeks + 1):
        made.hour(MONDAY - timedelta(weeks=week), RATIOS[week - 1])
        made.hour(MONDAY - timedelta(weeks=week, days=1), RATIOS[week - 1])
    made.hour(MONDAY, 0.5, ttft_seconds=1.0)
    row = made.judge()
    assert (row["history_weeks"], row["method"]) == (weeks, "same hours")
    assert row["expected_ratio"] == pytest.approx(median(RATIOS[:weeks]))
    assert (row["is_drop"], row["severity"]) == (True, "page")


def test_a_fault_that_lasts_does_not_become_usual() -> None:
    """Three days of four hours at 0.8 or 0.805, then five hours at 0.3."""
    made = Table()
    for day in (3, 2, 1):
        for hour in range(4):
            begin = MONDAY - timedelta(days=day) + timedelta(hours=hour)
            made.hour(begin, 0.8 + 0.005 * (hour % 2))
    for hour in range(5):
        made.hour(MONDAY + timedelta(hours=hour), 0.3, template_version="v2")
    judged = [made.judge(MONDAY + timedelta(hours=hour)) for hour in range(5)]
    assert [row["method"] for row in judged] == ["equal pressure"] * 5
    assert [row["is_drop"] for row in judged] == [True] * 5


def test_one_restart_of_many_explains_nothing(table: Table) -> None:
    """Of ten replicas one restarted: a fall of four points stays within chance."""
    for week in range(1, 5):
        for name in range(10):
            table.page(MONDAY - timedelta(weeks=week), 0.1, replica=f"r{name}")
    for name in range(10):
        table.page(MONDAY, 0.1, replica=f"r{name}", reset=name == 0)
    table.hour(MONDAY, 0.76)
    assert table.judge()["is_drop"] is False
    for name in range(1, 4):
        table.page(MONDAY, 0.1, replica=f"r{name}", reset=True)
    assert (table.judge()["is_drop"], table.judge()["class"]) == (True, "reset")


def test_a_small_drop_with_a_cause_is_no_page() -> None:
    """Four points below 0.80 with other weights; it hurts, and is a ticket all the same."""
    made = Table()
    for week, ratio in enumerate(RATIOS, 1):
        made.hour(MONDAY - timedelta(weeks=week), ratio, model_fingerprint="w1", ttft_seconds=1.0)
    made.hour(MONDAY, 0.76, model_fingerprint="w2", ttft_seconds=2.0)
    row = made.judge()
    assert (row["class"], row["hurts"], row["severity"]) == ("deploy", True, "ticket")


def test_what_load_explains_is_no_drop(table: Table) -> None:
    """Thirteen hours of last week at 60 % KV usage had 0.6; so has this one, usually at 20 %."""
    for week in range(1, 5):
        table.page(MONDAY - timedelta(weeks=week), 0.2)
    for hour in range(13):
        begin = MONDAY - timedelta(days=3, hours=hour)
        table.hour(begin, 0.6)
        table.page(begin, 0.6)
    table.hour(MONDAY, 0.6)
    table.page(MONDAY, 0.6)
    row = table.judge()
    assert row["load_part_ratio"] == pytest.approx(0.2)
    assert row["expected_ratio"] == pytest.approx(0.6)
    assert row["drop_ratio"] == pytest.approx(0, abs=1e-9)
    assert (row["is_drop"], row["class"]) == (False, "memory pressure as expected")
    assert row["evidence"] == "KV usage 60 %, usually 20 %"


def test_without_a_kv_figure_nothing_is_said_of_memory(table: Table) -> None:
    for hour in range(13):
        table.hour(MONDAY - timedelta(days=3, hours=hour), 0.6)
    table.hour(MONDAY, 0.6)
    row = table.judge()
    assert row["load_part_ratio"] == pytest.approx(0.2)
    assert (row["is_drop"], row["class"]) == (False, None)


CAUSES: dict[str, tuple[dict[str, Any], str]] = {
    "deploy": (
        {"model_fingerprint": "w2"}, "another model fingerprint than in the weeks before"
    ),
    "template version or layout": (
        {"template_version": "v9", "ratio": 0.4}, "template t v9 keeps 50 % of its usual ratio"
    ),
    "reuse stopped": ({"ratio": 0.1}, "10 % where 80 % is expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_causes_in_evidence_name_the_drop(table: Table, name: str) -> None:
    columns, evidence = CAUSES[name]
    given = {"model_fingerprint": "w1", "ratio": 0.7, **columns}
    table.hour(MONDAY, given.pop("ratio"), **given)
    row = table.judge()
    assert (row["is_drop"], row["class"], row["evidence"]) == (True, name, evidence)


def test_sessions_that_change_replicas_are_routing_spread(table: Table) -> None:
    """Twenty sessions of two turns each; 16 of the 20 second turns are on the other replica."""
    for place in range(20):
        for turn in (1, 2):
            replica = "r2" if turn == 2 and place < 16 else "r1"
            table.request(MONDAY + timedelta(minutes=2 * place + turn), 2_500, 1_750,
                          session=f"s{place}", turn=turn, replica=replica)  # fmt: skip
    row = table.judge()
    assert (row["is_drop"], row["class"]) == (True, "routing spread")
    assert row["evidence"] == (
        "80 % of later turns on another replica than the one before, usually 0 %"
    )


def test_sessions_with_scopes_of_their_own_are_isolation(table: Table) -> None:
    for place in range(REQUESTS):
        table.request(MONDAY + timedelta(minutes=place), 2_500, 1_750,
                      session=f"s{place}", scope=f"scope-{place}")  # fmt: skip
    row = table.judge()
    assert (row["is_drop"], row["class"]) == (True, "isolation")
    assert row["evidence"] == "1.00 scopes a session, usually 0.00"


def test_resets_are_named(table: Table) -> None:
    table.hour(MONDAY, 0.7)
    for _ in range(3):
        table.page(MONDAY, 0.1, reset=True)
    row = table.judge()
    assert (row["is_drop"], row["class"], row["evidence"]) == (True, "reset", "3 resets, usually 0")


def test_another_mix_is_named(table: Table) -> None:
    """A template nobody asked before takes 60 % of the traffic without any reuse: of the fall of 48
    points all is mix, since the old one keeps its 0.8."""
    table.hour(MONDAY, 0.8, tokens=40_000)
    table.hour(MONDAY, 0.0, tokens=60_000, template="campaign")
    row = table.judge()
    assert row["token_hit_ratio"] == pytest.approx(0.32)
    assert (row["is_drop"], row["class"]) == (True, "traffic mix")
    assert row["evidence"] == "100 % of the fall is another mix of templates"


def test_lost_counts_are_telemetry_and_never_a_page(table: Table) -> None:
    table.hour(MONDAY, 0.8, tokens=60_000)
    for place in range(8):
        table.request(MONDAY + timedelta(minutes=place), 5_000, None, ttft_seconds=9.0)
    row = table.judge()
    assert (row["is_drop"], row["class"], row["severity"]) == (True, "telemetry", "ticket")
    assert row["evidence"] == "coverage 60 %, usually 100 %"


def test_only_a_drop_that_hurts_is_a_page(table: Table) -> None:
    slow, fast = Table(), Table()
    for made, seconds in ((slow, 1.3), (fast, 1.2)):
        for week, ratio in enumerate(RATIOS, 1):
            made.hour(MONDAY - timedelta(weeks=week), ratio, ttft_seconds=1.0)
        made.hour(MONDAY - timedelta(days=1), 0.0, tokens=200_000)  # the highest computed
        made.hour(MONDAY, 0.5, ttft_seconds=seconds)
    assert [made.judge()["severity"] for made in (slow, fast)] == ["page", "ticket"]
    assert [made.judge()["hurts"] for made in (slow, fast)] == [True, False]
    # Half of it computed, 50,000 tokens: more than any hour before. Only timed it is known to hurt.
    table.hour(MONDAY, 0.5)
    assert (table.judge()["hurts"], table.judge()["severity"]) == (None, "ticket")
    made = Table()
    for week, ratio in enumerate(RATIOS, 1):
        made.hour(MONDAY - timedelta(weeks=week), ratio)
    made.hour(MONDAY, 0.5, ttft_seconds=1.0)
    assert (made.judge()["hurts"], made.judge()["severity"]) == (True, "page")


def test_what_has_no_cause_pages_of_whole_models_only() -> None:
    """30 points of two templates alike, so that no template explains it."""
    made = Table()
    for week, ratio in enumerate(RATIOS, 1):
        for name in ("t", "u"):
            begin = MONDAY - timedelta(weeks=week)
            made.hour(begin, ratio, template=name, route="a", ttft_seconds=1.0)
    for name in ("t", "u"):
        made.hour(MONDAY, 0.5, template=name, route="a", ttft_seconds=2.0)
    assert (made.judge()["class"], made.judge()["severity"]) == ("no cause found", "page")
    assert made.judge(by="model")["severity"] == "page"
    row = made.judge(by="route")
    assert (row["class"], row["hurts"], row["severity"]) == ("no cause found", True, "ticket")


def test_a_template_that_collapses_shows_in_fewer_requests() -> None:
    """Twelve requests of a new version without any reuse; of a fall to half so few say nothing."""
    made = Table()
    for week, ratio in enumerate(RATIOS, 1):
        made.hour(MONDAY - timedelta(weeks=week), ratio, template_version="v1")
        made.hour(MONDAY - timedelta(weeks=week, hours=-1), ratio, template_version="v1")
    for hour, cached in ((0, 1_250), (1, 0)):
        for place in range(12):
            moment = MONDAY + timedelta(hours=hour, minutes=place)
            made.request(moment, 2_500, cached, template_version="v2")
    assert made.judge(by="template")["is_drop"] is None
    later = MONDAY + timedelta(hours=1)
    row = made.judge(later, by="template")
    assert (row["is_drop"], row["class"]) == (True, "template version or layout")
    assert row["evidence"] == "template t v2 hits 0 % where 80 % is expected"
    assert made.judge(later)["is_drop"] is None, "of the whole model the guard stands"


@pytest.mark.parametrize("names", ["tu", "ut"])
def test_ties_of_contributors_are_settled_by_name(names: str) -> None:
    """Two templates lose alike, whichever came first and however many threads look."""
    made = Table(threads=2)
    for week, ratio in enumerate(RATIOS, 1):
        for name in names:
            made.hour(MONDAY - timedelta(weeks=week), ratio, template=name)
    for name in names:
        made.hour(MONDAY, 0.5, template=name)
    row = made.judge()
    assert (row["contributor"], row["contributor_share_ratio"]) == ("u", pytest.approx(0.5))


def test_few_requests_are_not_judged(table: Table) -> None:
    for place in range(29):
        table.request(MONDAY + timedelta(minutes=place), 2_500, 0)
    assert table.judge()["is_drop"] is None
    table.request(MONDAY + timedelta(minutes=29), 2_500, 0)
    assert table.judge()["is_drop"] is True


def test_another_mix_pages_only_on_top_of_the_usual(table: Table) -> None:
    """The usual 100,000 tokens and 60,000 of a campaign: 80,000 of 160,000 are cached."""
    table.hour(MONDAY, 0.8, ttft_seconds=1.0)
    table.hour(MONDAY, 0.0, tokens=60_000, template="campaign")
    row = table.judge()
    assert (row["class"], row["hurts"], row["severity"]) == ("traffic mix", True, "page")
    swapped = Table()
    for week, ratio in enumerate(RATIOS, 1):
        swapped.hour(MONDAY - timedelta(weeks=week), ratio)
    swapped.hour(MONDAY, 0.8, tokens=40_000, ttft_seconds=1.0)
    swapped.hour(MONDAY, 0.0, tokens=60_000, template="campaign")
    row = swapped.judge()
    assert (row["class"], row["hurts"], row["severity"]) == ("traffic mix", True, "ticket")


def test_an_unusual_pressure_is_told_but_wakes_nobody(table: Table) -> None:
    """KV usage at 90 % where 20 % is usual; never seen, and the slope is not known."""
    for week in range(1, 5):
        table.page(MONDAY - timedelta(weeks=week), 0.2)
    table.hour(MONDAY, 0.5)
    table.page(MONDAY, 0.9)
    row = table.judge()
    assert (row["class"], row["severity"]) == ("memory pressure beyond expected", "ticket")
    assert row["evidence"] == "KV usage 90 %, usually 20 %"


def test_nothing_less_than_zero_is_expected(table: Table) -> None:
    """80 % at 20 % KV usage and 50 % at 40 % make 1.5 points less for each more: at 90 % that were
    80 - 105."""
    for week in range(1, 5):
        table.page(MONDAY - timedelta(weeks=week), 0.2)
        table.hour(MONDAY - timedelta(weeks=week, hours=5), 0.5)
        table.page(MONDAY - timedelta(weeks=week, hours=5), 0.4)
    table.hour(MONDAY, 0.1)
    table.page(MONDAY, 0.9)
    row = table.judge()
    assert (row["expected_ratio"], row["load_part_ratio"]) == (0, pytest.approx(0.8))
    assert row["drop_ratio"] == pytest.approx(-0.1)


def test_a_route_is_compared_with_itself() -> None:
    """Route a always had 0.95 and falls to 0.82, beside a route of 0.65 that makes 0.80 in all."""
    made = Table()
    for week, (a, b) in enumerate(((0.96, 0.64), (0.94, 0.66), (0.95, 0.65), (0.95, 0.65)), 1):
        made.hour(MONDAY - timedelta(weeks=week), a, route="a")
        made.hour(MONDAY - timedelta(weeks=week), b, route="b")
    for hour in range(1, 20):
        made.hour(MONDAY - timedelta(hours=3 * hour), 0.80, route="c")
    made.hour(MONDAY, 0.82, route="a")
    made.hour(MONDAY, 0.65, route="b")
    made.hour(MONDAY, 0.30, route="new")
    rows = {row["route"]: row for row in made.rows(until=MONDAY + timedelta(hours=1), by="route")}
    assert rows["a"]["expected_ratio"] == pytest.approx(0.95)
    assert (rows["a"]["is_drop"], rows["b"]["is_drop"]) == (True, False)
    assert (rows["new"]["method"], rows["new"]["is_drop"]) == ("none", None)


def test_requests_without_sessions_are_no_routing_spread(table: Table) -> None:
    for place in range(REQUESTS):
        table.request(MONDAY + timedelta(minutes=place), 2_500, 1_750, replica=f"r{place % 2}")
    assert table.judge()["class"] != "routing spread"


def test_what_begins_to_be_logged_is_not_new() -> None:
    made = Table()
    for week, ratio in enumerate(RATIOS, 1):
        made.hour(MONDAY - timedelta(weeks=week), ratio)
    made.hour(MONDAY, 0.4, model_fingerprint="w1", template_version="v1")
    row = made.judge()
    assert row["is_drop"] is True
    assert row["class"] == "template version or layout", "by the one template's own fall"
    assert made.judge(min_requests=41)["severity"] is None


def test_fewer_replicas_are_no_drop_by_themselves(table: Table) -> None:
    for week in range(1, 5):
        for name in ("r1", "r2"):
            table.page(MONDAY - timedelta(weeks=week), 0.2, replica=name)
    table.hour(MONDAY, 0.8)
    table.page(MONDAY, 0.2, replica="r1")
    row = table.judge()
    assert (row["is_drop"], row["class"], row["severity"]) == (False, None, None)


def test_every_window_of_a_span_is_judged(table: Table) -> None:
    table.hour(MONDAY, 0.5)
    table.hour(MONDAY - timedelta(hours=1), 0.8)
    rows = table.rows(since=MONDAY - timedelta(hours=2), until=MONDAY + timedelta(hours=1))
    assert [row["ts"] for row in rows] == ["2026-11-30T10:00:00Z", "2026-11-30T09:00:00Z"]
    assert [row["is_drop"] for row in rows] == [True, None]
    assert [row["method"] for row in rows] == ["same hours", "none"]
