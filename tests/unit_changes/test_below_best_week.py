"""Templates, tenants and routes below their own best week, by hand and by brute force.

By hand: 700,000 tokens an hour, one hour a week. With ratios 0.6, 0.7 and 0.8 one, two and three
weeks before and 0.5 now, this week's tokens would have won 70,000, 140,000 and 210,000: 10,000,
20,000 and 30,000 a day. Half of the four weeks (0, 10,000, 20,000, 30,000) reached 10,000.
"""

from collections import defaultdict
from datetime import datetime, timedelta
from math import ceil, floor, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit_changes.changes_store import SINCE, UNTIL, WEEK, ChangesStore, bounds

TOKENS = 700_000
NOON = SINCE + timedelta(hours=12)


@pytest.fixture
def store() -> ChangesStore:
    made = ChangesStore()
    made.reach()
    return made


def put_weeks(store: ChangesStore, *ratios: float, **columns: object) -> None:
    """One hour a week, the window's first, then backwards."""
    for week, ratio in enumerate(ratios):
        store.hour(NOON - week * WEEK, TOKENS, round(TOKENS * ratio), **columns)


def test_between_the_middle_and_the_best_week(store: ChangesStore) -> None:
    put_weeks(store, 0.5, 0.6, 0.7, 0.8, template="t")
    [row] = store.changes()
    assert bounds(row) == ("below best week", "t", 10_000, 30_000)
    assert (row["rank"], row["dimension"], row["model"]) == (1, "template", "m")
    assert (row["sentence_key"], row["basis"], row["overlaps"]) == (
        "below_best_week", "estimated", None,
    )  # fmt: skip
    assert row["sentence"] == "Bring template t back to what it reached before"
    assert row["evidence"] == (
        "Hit ratio 50.0 %; at the mix and load of now it would be 80.0 % by the week from "
        "2026-11-02 on, its best of 3, and 60.0 % by the middle one (100.0 % of its tokens can be "
        "compared)."
    )
    assert row["next_step"] == (
        "prefixscope explain --by template_version --since 2026-11-23T00:00:00Z "
        "--until 2026-11-30T00:00:00Z --baseline 2026-11-02T00:00:00Z "
        "--baseline-until 2026-11-09T00:00:00Z"
    )


def test_t78_days_are_those_of_the_zone(store: ChangesStore) -> None:
    """The window begins at 23:00 UTC on a Sunday, which is Monday in Berlin."""
    put_weeks(store, 0.5, 0.6, 0.7, 0.8, template="t")
    earlier = {"since": SINCE - timedelta(hours=1), "until": UNTIL - timedelta(hours=1)}
    told = [store.changes(zone=zone, **earlier)[0] for zone in ("UTC", "Europe/Berlin")]
    assert "week from 2026-11-01 on" in told[0]["evidence"]
    assert "week from 2026-11-02 on" in told[1]["evidence"]


def test_one_week_before_tells_no_lower_bound(store: ChangesStore) -> None:
    """That week may have been the odd one."""
    put_weeks(store, 0.5, 0.8, template="t")
    assert [bounds(row) for row in store.changes()] == [("below best week", "t", 0, 30_000)]


def test_one_good_week_of_several_may_be_chance(store: ChangesStore) -> None:
    put_weeks(store, 0.5, 0.5, 0.8, 0.5, template="t")
    assert store.changes() == []


def test_weeks_beyond_those_asked_for_do_not_count(store: ChangesStore) -> None:
    put_weeks(store, 0.5, 0.6, 0.7, 0.8, template="t")
    assert [bounds(row)[2:] for row in store.changes(weeks=2)] == [(10_000, 20_000)]


def test_other_mix_is_nothing_to_win(store: ChangesStore) -> None:
    """Tenant a always has 0.9 and b 0.1; it is their shares that changed: 0.26 against 0.74."""
    for week, tokens_of_a in enumerate((140_000, 560_000, 560_000)):
        hour = NOON - week * WEEK
        tokens_of_b = TOKENS - tokens_of_a
        store.hour(hour, tokens_of_a, tokens_of_a * 9 // 10, template="t", tenant="a")
        store.hour(hour, tokens_of_b, tokens_of_b // 10, template="t", tenant="b")
    assert store.changes() == []


def test_growth_is_not_compared_with_less_load(store: ChangesStore) -> None:
    """Twice the tokens an hour is another class of load: nothing of it can be compared."""
    store.hour(NOON, 2 * TOKENS, TOKENS, template="t")
    for week in (1, 2):
        store.hour(NOON - week * WEEK, TOKENS, TOKENS * 8 // 10, template="t")
    assert store.changes() == []


def test_growth_is_compared_at_equal_kv_usage(store: ChangesStore) -> None:
    """Where pages tell the pressure, it is the load: 2 x 700,000 x 0.3 tokens a week."""
    store.hour(NOON, 2 * TOKENS, TOKENS, template="t")
    for week in (1, 2):
        store.hour(NOON - week * WEEK, TOKENS, TOKENS * 8 // 10, template="t")
    for week in range(3):
        store.sample(NOON - week * WEEK + timedelta(minutes=30), kv_usage_ratio=0.55)
    assert [bounds(row)[2:] for row in store.changes()] == [(60_000, 60_000)]


def test_hours_of_higher_kv_usage_are_not_compared(store: ChangesStore) -> None:
    put_weeks(store, 0.5, 0.8, 0.8, template="t")
    for week, usage in enumerate((0.95, 0.55, 0.55)):
        store.sample(NOON - week * WEEK + timedelta(minutes=30), kv_usage_ratio=usage)
    assert store.changes() == []


def test_longer_prompts_are_other_traffic(store: ChangesStore) -> None:
    """1000 tokens a request before, 1400 now; 1200 would be alike enough."""
    for template, requests in (("alike", 583), ("longer", 500)):
        store.hour(NOON, TOKENS, TOKENS // 2, template=template, requests=requests)
        for week in (1, 2):
            store.hour(NOON - week * WEEK, TOKENS, TOKENS * 8 // 10, template=template)
    assert [row["subject"] for row in store.changes()] == ["alike"]


def test_no_token_stands_under_template_and_tenant(store: ChangesStore) -> None:
    """Template t loses 210,000 a week for tenant a, who without a template loses as much again."""
    put_weeks(store, 0.5, 0.8, 0.8, template="t", tenant="a")
    put_weeks(store, 0.5, 0.8, 0.8, tenant="a")
    assert [bounds(row)[1:] for row in store.changes()] == [
        ("t", 30_000, 30_000), ("a", 30_000, 30_000),
    ]  # fmt: skip
    assert [row["overlaps"] for row in store.changes()] == [None, None]


def test_small_templates_of_a_tenant_count_together(store: ChangesStore) -> None:
    """Three templates of 30,000 a day each: below a floor of 50,000, the tenant is above it."""
    for template in ("t", "u", "v"):
        put_weeks(store, 0.5, 0.8, 0.8, template=template, tenant="a")
    rows = store.changes(least_tokens_per_day=50_000)
    assert [(row["dimension"], *bounds(row)[1:]) for row in rows] == [
        ("tenant", "a", 90_000, 90_000)
    ]


def test_without_template_and_tenant_it_is_the_route(store: ChangesStore) -> None:
    put_weeks(store, 0.5, 0.8, 0.8, route="chat")
    assert [(row["dimension"], row["subject"]) for row in store.changes()] == [("route", "chat")]


def test_nothing_below_the_floor(store: ChangesStore) -> None:
    put_weeks(store, 0.5, 0.6, 0.7, 0.8, template="t")
    """Two weeks must have reached it: 20,000 a day."""
    assert len(store.changes(least_tokens_per_day=19_999)) == 1
    assert store.changes(least_tokens_per_day=20_001) == []


def test_the_floor_grows_with_the_traffic(store: ChangesStore) -> None:
    """100,000 tokens a day: 0.5 % are 500, so the least is 10,000. A hundred times: 50,000."""
    put_weeks(store, 0.5, 0.6, 0.7, 0.8, template="t")
    assert len(store.changes(least_tokens_per_day=None)) == 1
    store.hour(NOON + timedelta(hours=1), 100 * TOKENS, 0, model="other")
    assert store.changes(least_tokens_per_day=None) == []


def test_a_week_under_way_is_divided_by_its_days(store: ChangesStore) -> None:
    """Data ends after two days: 70,000 to 210,000 tokens in two days."""
    early = ChangesStore()
    early.reach(SINCE + timedelta(days=2) - timedelta(microseconds=1))
    put_weeks(early, 0.5, 0.6, 0.7, 0.8, template="t")
    assert [bounds(row)[2:] for row in early.changes()] == [(35_000, 105_000)]


def test_without_borders_it_is_the_last_seven_days(store: ChangesStore) -> None:
    put_weeks(store, 0.5, 0.6, 0.7, 0.8, template="t")
    assert [bounds(row)[2:] for row in store.changes(since=None, until=None)] == [(10_000, 30_000)]


def test_no_data_no_rows() -> None:
    assert ChangesStore().changes() == []
    assert ChangesStore().changes(since=None, until=None) == []


# Brute force: the same rules in plain Python, for one dimension (templates).

HOUR = st.tuples(
    st.integers(0, 3), st.integers(0, 1), st.sampled_from("tu"), st.sampled_from("ab"),
    st.sampled_from((40, 50, 100)), st.integers(0, 100),
)  # fmt: skip


@given(st.lists(HOUR, min_size=2, max_size=24))
@settings(max_examples=8)
def test_bounds_agree_with_brute_force(hours: list[tuple[int, int, str, str, int, int]]) -> None:
    store = ChangesStore()
    store.reach()
    store.hours([
        {
            "hour": NOON + timedelta(hours=hour) - week * WEEK, "template": template,
            "tenant": tenant, "tokens": 1000 * requests,
            "cached_tokens": 1000 * requests * percent // 100,
        }
        for week, hour, template, tenant, requests, percent in hours
    ])  # fmt: skip
    found = {
        row["subject"]: bounds(row) for row in store.changes() if row["dimension"] == "template"
    }
    expected = _by_force(hours)
    assert set(found) == set(expected)
    for template, pair in expected.items():
        assert found[template][2:] == pytest.approx(pair, abs=1)


def _by_force(hours: list[tuple[int, int, str, str, int, int]]) -> dict[str, tuple[float, float]]:
    loads: dict[tuple[int, int], int] = defaultdict(int)
    for week, hour, _, _, requests, _ in hours:
        loads[week, hour] += 1000 * requests
    cells: dict[tuple[int, str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for week, hour, template, tenant, requests, percent in hours:
        load = ceil(2 ** (floor(2 * log2(loads[week, hour])) / 2))
        cell = cells[week, template, tenant, load]
        cell[0] += 1000 * requests
        cell[1] += 1000 * requests * percent // 100
    return {t: pair for t in "tu" if (pair := _template_by_force(t, cells)) is not None}


def _template_by_force(
    template: str, cells: dict[tuple[int, str, str, int], list[int]]
) -> tuple[float, float] | None:
    now = {key[2:]: cell for key, cell in cells.items() if key[:2] == (0, template)}
    gains = []
    for week in (1, 2, 3):
        gain = compared = 0.0
        for (tenant, load), (tokens, cached) in now.items():
            before = cells.get((week, template, tenant, load))
            if before is not None and before[0] >= 0.1 * tokens:
                gain += tokens * (before[1] / before[0] - cached / tokens)
                compared += tokens
        if now and compared >= 0.5 * sum(tokens for tokens, _ in now.values()) and compared:
            gains.append(gain / 7)
    ordered = sorted(gains, reverse=True)
    if not ordered or ordered[min(2, len(ordered)) - 1] < 1:
        return None
    with_now = sorted([*gains, 0.0])
    return max(0.0, with_now[(len(with_now) - 1) // 2]), ordered[0]


def test_the_week_is_the_window(store: ChangesStore) -> None:
    """The last microsecond before the window belongs to the week before, its first to it."""
    assert UNTIL - SINCE == WEEK
    edge: list[datetime] = [SINCE, SINCE - WEEK, SINCE - 2 * WEEK]
    for hour, ratio in zip(edge, (0.5, 0.8, 0.8), strict=True):
        store.hour(hour, TOKENS, round(TOKENS * ratio), template="t")
    assert [bounds(row)[2:] for row in store.changes()] == [(30_000, 30_000)]
