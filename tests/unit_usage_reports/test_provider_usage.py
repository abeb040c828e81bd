"""What reports said in the store: a report that is read again replaces and never adds."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.errors import PrefixscopeError
from exporter.sources.usage_reports.rows import UsageRow
from exporter.store.provider_usage import replace_usage
from exporter.store.retention import retain
from exporter.store.store import Store
from tests.log_path import ask, utc

DAY = datetime(2026, 11, 3, tzinfo=UTC)


def row(
    tokens: int, *, day: int = 0, hour: int | None = None, model: str | None = "gpt-4o",
    provider: str = "openai", tenant: str | None = None,
) -> UsageRow:  # fmt: skip
    start = DAY + timedelta(days=day, hours=hour or 0)
    seconds = 86_400 if hour is None else 3_600
    return UsageRow(
        day=start, bucket_seconds=seconds, provider=provider, model=model, tenant=tenant,
        prompt_tokens=tokens,
    )  # fmt: skip


def kept(store: Store) -> list[tuple[object, ...]]:
    return store.cursor().execute(
        "SELECT reporter, day, bucket_seconds, provider, model, prompt_tokens"
        " FROM provider_usage ORDER BY ALL"
    ).fetchall()  # fmt: skip


def tokens(store: Store) -> int:
    found = store.cursor().execute("SELECT sum(prompt_tokens) FROM provider_usage").fetchone()
    return int(found[0] or 0) if found else 0


def test_reading_a_report_again_changes_nothing(store: Store) -> None:
    rows = [row(100), row(7, model="gpt-5"), row(50, day=1)]
    assert replace_usage(store, "openai", rows) == 3
    first = kept(store)
    replace_usage(store, "openai", rows)
    assert kept(store) == first
    assert tokens(store) == 157


def test_a_later_report_replaces_the_days_it_covers_and_no_other(store: Store) -> None:
    replace_usage(store, "openai", [row(100), row(7, model="gpt-5"), row(50, day=1)])
    replace_usage(store, "openai", [row(60, day=1), row(1, day=2)])
    assert tokens(store) == 100 + 7 + 60 + 1


def test_a_model_that_left_the_report_leaves_the_store(store: Store) -> None:
    replace_usage(store, "openai", [row(100), row(7, model="gpt-5")])
    replace_usage(store, "openai", [row(100)])
    assert tokens(store) == 100


def test_reporters_and_providers_are_kept_apart(store: Store) -> None:
    replace_usage(store, "openai", [row(100)])
    replace_usage(store, "litellm_daily", [row(90), row(5, provider="anthropic")])
    replace_usage(store, "litellm_daily", [row(95)])
    assert [(r[0], r[3], r[5]) for r in kept(store)] == [
        ("litellm_daily", "anthropic", 5),
        ("litellm_daily", "openai", 95),
        ("openai", "openai", 100),
    ]


def test_two_accounts_of_one_reporter_are_kept_apart(store: Store) -> None:
    """Of each the last word counts, whether it was told by its days or by a window."""
    window = (DAY, DAY + timedelta(days=2))
    for account, told in (("one", 100), ("two", 7), ("one", 110), ("two", 9)):
        replace_usage(store, "openai", [row(told), row(1, day=1)], account=account)
        replace_usage(store, "litellm_daily", [row(told)], account=account, window=window)
    found = store.cursor().execute(
        "SELECT reporter, account, sum(prompt_tokens)::BIGINT FROM provider_usage"
        " GROUP BY ALL ORDER BY ALL"
    ).fetchall()  # fmt: skip
    assert found == [
        ("litellm_daily", "one", 110), ("litellm_daily", "two", 9),
        ("openai", "one", 111), ("openai", "two", 10),
    ]  # fmt: skip


def test_two_accounts_are_compared_as_one_reporter(store: Store) -> None:
    for account, told in (("one", 100), ("two", 7)):
        replace_usage(store, "openai", [row(told)], account=account)
    (told_of,) = ask(store, "provider_usage")
    assert (told_of["reporter"], told_of["prompt_tokens"]) == ("openai", 107)


def test_a_report_of_another_organization_does_not_take_the_place_of_one(store: Store) -> None:
    replace_usage(store, "openai", [row(100, tenant="proj_a"), row(5, tenant="proj_b")])
    before = kept(store)
    with pytest.raises(PrefixscopeError, match=r"proj_[ab], this report proj_c.*--account"):
        replace_usage(store, "openai", [row(7, tenant="proj_c")])
    assert kept(store) == before
    replace_usage(store, "openai", [row(7, tenant="proj_c")], account="other")
    assert tokens(store) == 112


@pytest.mark.parametrize(
    "again",
    [
        [row(110, tenant="proj_a"), row(1, tenant="proj_new")],
        [row(110, tenant="key_1")],  # grouped by something else
        [row(110)],  # not grouped
    ],
)
def test_a_report_that_may_be_the_same_organizations_is_taken(
    store: Store, again: list[UsageRow]
) -> None:
    replace_usage(store, "openai", [row(100, tenant="proj_a"), row(5, tenant="proj_b")])
    replace_usage(store, "openai", again)
    assert tokens(store) == sum(one.prompt_tokens for one in again)


def test_days_that_were_not_told_before_need_no_common_project(store: Store) -> None:
    replace_usage(store, "openai", [row(100, tenant="proj_a")])
    replace_usage(store, "openai", [row(7, day=1, tenant="proj_b")])
    assert tokens(store) == 107


def test_a_window_forgets_days_that_left_the_report(store: Store) -> None:
    replace_usage(store, "litellm_daily", [row(1), row(2, day=1), row(4, day=2)])
    window = (DAY + timedelta(days=1), DAY + timedelta(days=3))
    replace_usage(store, "litellm_daily", [row(8, day=2)], window=window)
    assert [(r[1], r[5]) for r in kept(store)] == [
        (utc("2026-11-03"), 1), (utc("2026-11-05"), 8)
    ]  # fmt: skip


def test_hours_take_the_place_of_their_day_and_the_day_that_of_its_hours(store: Store) -> None:
    hours = [row(10, hour=hour) for hour in range(24)]
    replace_usage(store, "openai", [row(240)])
    replace_usage(store, "openai", hours)
    assert (len(kept(store)), tokens(store)) == (24, 240)
    replace_usage(store, "openai", [row(241)])
    assert (len(kept(store)), tokens(store)) == (1, 241)


def test_a_part_of_a_day_does_not_take_its_place(store: Store) -> None:
    replace_usage(store, "openai", [row(240)])
    before = kept(store)
    with pytest.raises(PrefixscopeError, match="read the report of whole days"):
        replace_usage(store, "openai", [row(10, hour=hour) for hour in range(6)])
    assert kept(store) == before


def test_the_hours_so_far_take_the_place_of_a_day_that_was_still_open(store: Store) -> None:
    six = DAY + timedelta(hours=5, minutes=30)
    replace_usage(store, "openai", [row(55)], read_at=six - timedelta(minutes=5))
    replace_usage(store, "openai", [row(10, hour=hour) for hour in range(6)], read_at=six)
    assert (len(kept(store)), tokens(store)) == (6, 60)


def test_a_day_in_another_zone_is_kept_in_utc(store: Store) -> None:
    zone = DAY.astimezone().tzinfo
    other = row(1).model_copy(update={"day": DAY.astimezone(zone)})
    eastern = row(1).model_copy(update={"day": datetime.fromisoformat("2026-11-03T00:00:00-05:00")})
    replace_usage(store, "a", [other])
    replace_usage(store, "b", [eastern])
    assert [r[1] for r in kept(store)] == [utc("2026-11-03"), utc("2026-11-03 05:00")]


def test_old_reports_go_with_the_roll_ups(store: Store) -> None:
    replace_usage(store, "openai", [row(1), row(2, day=10)])
    retain(store, DAY + timedelta(days=5 + store.settings.rollup_days))
    assert tokens(store) == 2


Report = Sequence[tuple[int, int, int]]


@given(
    reports=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 9)), max_size=8),
        max_size=6,
    )
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_store_holds_the_last_word_on_every_day(
    store: Store, reports: Sequence[Report]
) -> None:
    """Against a dictionary of days: a report overwrites its days as a whole."""
    store.cursor().execute("DELETE FROM provider_usage")
    expected: dict[int, int] = {}
    for report in reports:
        replace_usage(store, "openai", [row(n, day=day, model=f"m{m}") for day, m, n in report])
        expected |= {day: sum(n for d, _, n in report if d == day) for day, _, _ in report}
    assert tokens(store) == sum(expected.values())
    assert len({r[1] for r in kept(store)}) == len(expected)
