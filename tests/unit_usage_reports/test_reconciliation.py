"""Our rows against reports: what is compared with what, by which days, names and counts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from exporter.store.retention import retain
from exporter.store.store import Store
from tests.log_path import ask, load
from tests.unit_usage_reports.known_traffic import (
    DAY,
    HOUR,
    LATER,
    MINUTE,
    Call,
    calls,
    judge,
    our,
    reasons,
    report,
    tell,
    total,
)


def test_equal_counts_agree(store: Store) -> None:
    day = calls()
    load(store, map(our, day))
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], row["reasons"], row["evidence"]) == ("agrees", None, None)
    assert row["our_prompt_tokens"] == row["their_prompt_tokens"] == total(day)
    assert row["our_cached_tokens"] == row["their_cached_tokens"] == total(day, "cached")
    assert row["our_cache_write_tokens"] == total(day, "written")
    assert (row["difference_tokens"], row["unexplained_tokens"]) == (0, 0)
    assert (row["our_requests"], row["their_requests"]) == (288, 288)
    assert (row["day"], row["compared_hours"]) == ("2026-03-02T00:00:00Z", 24.0)


@pytest.mark.parametrize(("ours", "theirs", "key"), [
    ("gpt-4o", "gpt-4o-2024-08-06", "gpt-4o"),
    ("openai/GPT-4o", "gpt-4o-2024-08-06", "gpt-4o"),
    ("claude-sonnet-4.5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
    ("claude-3-5-haiku-latest", "claude-3-5-haiku@20241022", "claude-3-5-haiku"),
    ("gpt-4", "gpt-4-0613", "gpt-4"),
])  # fmt: skip
def test_model_names_are_compared_without_their_date_and_that_is_said(
    store: Store, ours: str, theirs: str, key: str
) -> None:
    day = calls()
    load(store, [our(call, model=ours) for call in day])
    tell(store, report(day, name=theirs))
    row = judge(store)
    assert (row["verdict"], reasons(row), row["model"]) == ("agrees", ["model_names"], key)
    assert row["evidence"] == f"compared by name without date: our {ours}, their {theirs}"


def test_two_snapshots_of_theirs_are_one_model_of_ours(store: Store) -> None:
    day = calls()
    half = [replace(c, model="gpt-4o-2024-05-13") if c.number % 2 else c for c in day]
    load(store, [our(call, model="gpt-4o") for call in day])
    tell(store, report(half))
    row = judge(store)
    assert (row["verdict"], row["their_models"]) == (
        "agrees",
        "gpt-4o-2024-05-13, gpt-4o-2024-08-06",
    )


def test_a_name_of_the_gateways_own_is_suspected_by_its_tokens(store: Store) -> None:
    day = calls()
    load(store, [our(call, model="house-model") for call in day])
    tell(store, report(day))
    mine, theirs = sorted(ask(store, "reconciliation"), key=lambda row: row["model"], reverse=True)
    assert (mine["model"], theirs["model"]) == ("house-model", "gpt-4o")
    for row in (mine, theirs):
        assert (row["verdict"], reasons(row)) == ("differs", ["other_name"])
        assert (
            f"our house-model and their {Call.model} have the same {total(day):,}"
            in (row["evidence"])
        )


@pytest.mark.parametrize("hours", [-5, 8])
def test_day_borders_of_another_zone_are_named(store: Store, hours: int) -> None:
    """A table of days that are those of New York or Singapore, taken for days of UTC."""
    traffic = calls(days=5)
    load(store, map(our, traffic))
    moved = [replace(call, ts=call.ts + timedelta(hours=hours)) for call in traffic]
    whole = [r for r in report(moved) if DAY < r.day < DAY + timedelta(days=4)]
    tell(store, whole, "litellm_daily")
    rows = ask(store, "reconciliation")
    assert len(rows) == 3
    for row in rows:
        assert (row["verdict"], reasons(row)) == ("differs", ["day_border"])
        word = "earlier" if hours > 0 else "later"
        assert f"days that begin {abs(hours)} hours {word} give" in row["evidence"]
        assert row["unexplained_tokens"] == 0


def test_buckets_that_begin_at_another_hour_are_compared_as_they_are(store: Store) -> None:
    traffic = calls(days=2)
    load(store, map(our, traffic))
    borders = [r for r in report(traffic, begins=5 * HOUR) if r.day == DAY + 5 * HOUR]
    tell(store, borders)
    assert judge(store)["verdict"] == "agrees"


def test_a_day_that_was_still_open_is_not_compared(store: Store) -> None:
    traffic = calls(days=2)
    load(store, map(our, traffic))
    read_at = DAY + timedelta(days=1, hours=15)
    tell(store, report([call for call in traffic if call.ts < read_at]), read_at=read_at)
    first, last = ask(store, "reconciliation")
    assert first["verdict"] == "agrees"
    assert (last["verdict"], reasons(last)) == ("cannot be compared", ["open_bucket"])
    assert "the report was made 2026-03-03 15:00 UTC" in last["evidence"]
    assert last["unexplained_tokens"] is None
    tell(store, report(traffic), read_at=LATER)
    assert [row["verdict"] for row in ask(store, "reconciliation")] == ["agrees", "agrees"]


def test_of_hours_only_those_that_had_ended_are_compared(store: Store) -> None:
    day = calls()
    load(store, map(our, day))
    read_at = DAY + 15 * HOUR + 30 * MINUTE
    tell(store, report([c for c in day if c.ts < read_at], hours=1), read_at=read_at)
    row = judge(store)
    # Hour 14 ended at 15:00, half an hour before the report; hour 15 was open.
    assert (row["verdict"], reasons(row)) == ("agrees", ["open_buckets_left_out"])
    assert row["compared_hours"] == 14.0
    assert row["our_prompt_tokens"] == total(c for c in day if c.hour < 14)


def test_without_rows_nothing_is_compared(store: Store) -> None:
    tell(store, report(calls()))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("cannot be compared", ["no_rows"])
    assert row["their_prompt_tokens"] == total(calls())
    assert row["our_prompt_tokens"] is None


def test_the_day_our_log_began_is_not_compared(store: Store) -> None:
    traffic = calls(days=2)
    load(store, [our(call) for call in traffic if call.ts >= DAY + 14 * HOUR])
    tell(store, report(traffic))
    first, second = ask(store, "reconciliation")
    assert (first["verdict"], reasons(first)) == ("cannot be compared", ["partly_covered"])
    assert "our rows go from 2026-03-02 14:00 to" in first["evidence"]
    assert second["verdict"] == "agrees"


def test_reporters_are_compared_apart(store: Store) -> None:
    day = calls()
    load(store, map(our, day))
    tell(store, report(day))
    tell(store, report([call for call in day if call.number % 2]), "litellm_daily")
    found = {row["reporter"]: row["verdict"] for row in ask(store, "reconciliation")}
    assert found == {"openai": "agrees", "litellm_daily": "differs"}
    assert judge(store, reporter="openai")["our_prompt_tokens"] == total(day)


def test_a_report_without_models_is_compared_as_a_whole(store: Store) -> None:
    day, other = calls(), calls(every=HOUR, model="gpt-5")
    load(store, map(our, day))
    load(store, [our(call, request_id=f"o{call.number}") for call in other], source="other")
    tell(store, [row.model_copy(update={"model": None}) for row in report([*day, *other])])
    row = judge(store)
    assert (row["model"], row["verdict"]) == ("", "agrees")
    assert row["our_prompt_tokens"] == total(day) + total(other)


def test_rows_without_a_provider_belong_to_who_reports_their_model(store: Store) -> None:
    day = calls()
    load(store, [our(call, provider=None) for call in day])
    load(store, [our(call, provider=None, model="llama", request_id=f"l{call.number}")
                 for call in day], source="engine")  # fmt: skip
    tell(store, report(day))
    assert judge(store)["verdict"] == "agrees"


def test_rows_of_another_provider_are_left_alone(store: Store) -> None:
    day = calls()
    load(store, map(our, day))
    load(store, [our(c, provider="azure", request_id=f"z{c.number}") for c in day], source="azure")
    tell(store, report(day))
    assert judge(store)["verdict"] == "agrees"


def test_rows_that_do_not_say_what_was_cached_are_named(store: Store) -> None:
    day = calls()
    silent = [call for call in day if call.number % 2]
    load(store, [our(call, cached_tokens=None) if call in silent else our(call) for call in day])
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["cached_unreported"])
    assert (
        f"rows with {total(silent):,} prompt tokens do not say what was cached" in (row["evidence"])
    )


def test_what_no_row_of_ours_reports_is_not_compared(store: Store) -> None:
    day = calls()
    load(store, [our(call, cached_tokens=None, cache_write_tokens=None) for call in day])
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("agrees", ["cached_unreported", "writes_unreported"])
    assert (row["our_cached_tokens"], row["our_cache_write_tokens"]) == (None, None)


def test_cached_and_written_tokens_that_differ_are_named(store: Store) -> None:
    day = calls()
    load(store, [our(c, cached_tokens=c.cached // 2, cache_write_tokens=2 * c.written)
                 for c in day])  # fmt: skip
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["cached_differs", "writes_differ"])
    assert f"theirs {total(day, 'cached'):,}" in row["evidence"]


def test_roll_ups_are_compared_as_far_as_they_go(store: Store) -> None:
    day = calls()
    load(store, map(our, day))
    tell(store, report(day))
    retain(store, DAY + timedelta(days=store.settings.hot_days + 2))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("agrees", ["rolled_up"])
    assert (row["our_cached_tokens"], row["our_cache_write_tokens"]) == (
        total(day, "cached"), None
    )  # fmt: skip


def test_a_missing_hour_shows_in_roll_ups_too(store: Store) -> None:
    day = calls()
    lost = [call for call in day if call.hour == 10]
    load(store, [our(call) for call in day if call not in lost])
    tell(store, report(day))
    retain(store, DAY + timedelta(days=store.settings.hot_days + 2))
    assert reasons(judge(store)) == ["missing_rows", "rolled_up"]


# Two faults at once: neither hides the other.


def test_a_small_difference_within_the_tolerance_agrees_and_the_tolerance_is_a_parameter(
    store: Store,
) -> None:
    day = calls()
    load(store, [our(call) for call in day if call.number])
    tell(store, report(day))
    assert 0 < -judge(store)["difference_ratio"] < 0.005
    assert judge(store)["verdict"] == "agrees"
    assert judge(store, tolerance_ratio=0)["verdict"] == "differs"


def test_the_window_is_one_of_days(store: Store) -> None:
    traffic = calls(days=3)
    load(store, map(our, traffic))
    tell(store, report(traffic))
    window = {"since": DAY + timedelta(days=1), "until": DAY + timedelta(days=2)}
    (row,) = ask(store, "reconciliation", **window)
    assert (row["day"], row["verdict"]) == ("2026-03-03T00:00:00Z", "agrees")
    assert row["our_prompt_tokens"] == total(c for c in traffic if (c.ts - DAY).days == 1)


def test_usage_of_providers_is_told_and_never_added_to_requests(store: Store) -> None:
    day = calls()
    tell(store, report(day, hours=1), read_at=DAY + 30 * HOUR)
    (row,) = ask(store, "provider_usage")
    assert (row["reporter"], row["model"], row["still_open"]) == ("openai", Call.model, False)
    assert row["prompt_tokens"] == total(day)
    assert row["token_hit_ratio"] == pytest.approx(total(day, "cached") / total(day))
    (ours,) = ask(store, "hit_ratio")
    assert (ours["prompt_tokens"], ours["token_hit_ratio"]) == (0, None)
