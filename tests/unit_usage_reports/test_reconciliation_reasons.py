"""Each way in which our rows and a report may differ is named rightly."""

from datetime import timedelta

import pytest

from exporter.store.store import Store
from tests.log_path import ask, load
from tests.unit_usage_reports.known_traffic import (
    DAY,
    HOUR,
    MINUTE,
    calls,
    judge,
    our,
    reasons,
    report,
    retried,
    tell,
    total,
)


@pytest.mark.parametrize("begins", [timedelta(0), timedelta(minutes=17)])
def test_a_missing_hour_is_named_with_its_time(store: Store, begins: timedelta) -> None:
    """At the full hour and in the midst of two."""
    day = calls()
    since = DAY + 10 * HOUR + begins
    lost = [call for call in day if since <= call.ts < since + HOUR]
    load(store, [our(call) for call in day if call not in lost])
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["missing_rows"])
    assert row["difference_tokens"] == -total(lost)
    assert row["unexplained_tokens"] == 0
    # The estimate: half of what came in the hour before it and in the hour after it.
    lost_minutes = {call.ts for call in lost}
    first, last = min(lost_minutes), max(lost_minutes)
    before = max(call.ts for call in day if call.ts < first) + MINUTE
    near = [c for c in day if first - HOUR <= c.ts < first or last < c.ts <= last + HOUR]
    told = int(row["evidence"].split("about ")[1].split(" ")[0].replace(",", ""))
    assert told == pytest.approx(total(near) / 2, rel=0.12)
    after = min(call.ts for call in day if call.ts > last)
    assert f"no rows of ours from {before:%H:%M} to {after:%H:%M} UTC" in row["evidence"]


def test_recovered_after_the_missing_hour_was_taken_in(store: Store) -> None:
    day = calls()
    lost = [call for call in day if call.hour == 10]
    load(store, [our(call) for call in day if call not in lost])
    tell(store, report(day))
    assert judge(store)["verdict"] == "differs"
    load(store, map(our, lost))
    row = judge(store)
    assert (row["verdict"], row["reasons"], row["difference_tokens"]) == ("agrees", None, 0)


def test_doubled_retries_are_named(store: Store) -> None:
    day = calls()
    twice = retried(day)
    load(store, [*map(our, day), *(our(call, attempt=2) for call in twice)])
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["repeated_rows"])
    assert row["difference_tokens"] == total(twice) == row["our_prompt_tokens"] - total(day)
    assert row["unexplained_tokens"] == 0
    assert f"{len(twice)} of our rows repeat a call" in row["evidence"]
    assert f"{total(twice):,} prompt tokens" in row["evidence"]


def test_calls_taken_in_from_two_logs_are_named(store: Store) -> None:
    """The application and the gateway both wrote them, each in its own words."""
    day = calls()
    load(store, map(our, day), source="gateway")
    load(store, [our(c, response_id=f"r{c.number}", request_id=f"app{c.number}",
                     template="support") for c in day], source="app")  # fmt: skip
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["repeated_rows"])
    assert row["difference_tokens"] == total(day)
    assert row["unexplained_tokens"] == 0


@pytest.mark.parametrize("left_out", [("cached",), ("cached", "written")])
def test_exclusive_counts_are_named(store: Store, left_out: tuple[str, ...]) -> None:
    day = calls()
    load(store, [
        our(call, prompt_tokens=call.prompt - sum(getattr(call, part) for part in left_out))
        for call in day
    ])  # fmt: skip
    tell(store, report(day))
    row = judge(store)
    missing = sum(total(day, part) for part in left_out)
    assert (row["verdict"], reasons(row)) == ("differs", ["exclusive_counts"])
    assert row["difference_tokens"] == -missing
    assert row["unexplained_tokens"] == 0
    assert f"ours + {missing:,} = {total(day):,}" in row["evidence"]
    assert ("or written" in row["evidence"]) == ("written" in left_out)


@pytest.mark.parametrize("added", [("cached",), ("cached", "written")])
def test_counts_with_cached_tokens_in_them_twice_are_named(
    store: Store, added: tuple[str, ...]
) -> None:
    day = calls()
    load(store, [
        our(call, prompt_tokens=call.prompt + sum(getattr(call, part) for part in added))
        for call in day
    ])  # fmt: skip
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["counted_twice"])
    assert row["difference_tokens"] == sum(total(day, part) for part in added)
    assert row["unexplained_tokens"] == 0


def test_traffic_that_passes_us_by_is_named_with_how_often(store: Store) -> None:
    traffic = calls(days=3)
    load(store, [our(call) for call in traffic if call.number % 4])
    tell(store, report(traffic))
    for number, row in enumerate(ask(store, "reconciliation")):
        day = [call for call in traffic if (call.ts - DAY).days == number]
        past = total(call for call in day if call.number % 4 == 0)
        assert (row["verdict"], reasons(row)) == ("differs", ["elsewhere"])
        assert row["difference_tokens"] == row["unexplained_tokens"] == -past
        assert f"{past:,} of their prompt tokens" in row["evidence"]
        assert row["evidence"].endswith("So on 3 of 3 days")


@pytest.mark.parametrize("quiet", ["half of each hour", "nights"])
def test_pauses_that_are_usual_are_no_missing_rows(store: Store, quiet: str) -> None:
    """Jobs that run in the first half of each hour; an office that sleeps at night."""
    traffic = [
        call for call in calls(days=3)
        if (call.ts.minute < 25 if quiet == "half of each hour" else 7 <= call.hour < 20)
    ]  # fmt: skip
    load(store, [our(call) for call in traffic if call.number % 4])
    tell(store, report(traffic))
    rows = ask(store, "reconciliation")
    assert [reasons(row) for row in rows] == [["elsewhere"]] * len(rows)


def test_a_missing_hour_is_seen_between_usual_pauses(store: Store) -> None:
    traffic = [call for call in calls(days=3, every=2 * MINUTE) if call.ts.minute < 25]
    lost = [c for c in traffic if c.ts.day == 3 and c.hour == 10]
    load(store, [our(call) for call in traffic if call not in lost])
    tell(store, report(traffic))
    rows = ask(store, "reconciliation")
    assert [reasons(row) for row in rows] == [[], ["missing_rows"], []]


def test_a_model_that_never_comes_our_way_is_named(store: Store) -> None:
    day, other = calls(), calls(every=HOUR, model="gpt-5")
    load(store, map(our, day))
    tell(store, report([*day, *other]))
    first, second = ask(store, "reconciliation")
    assert first["verdict"] == "agrees"
    assert (second["model"], second["verdict"], reasons(second)) == (
        "gpt-5", "differs", ["elsewhere"]
    )  # fmt: skip
    assert second["unexplained_tokens"] == -total(other)
    assert second["our_prompt_tokens"] is None


def test_a_model_they_do_not_have_is_named(store: Store) -> None:
    day, other = calls(), calls(every=HOUR, model="gpt-5")
    load(store, map(our, day))
    load(store, [our(call, request_id=f"o{call.number}") for call in other], source="other")
    tell(store, report(day))
    second = ask(store, "reconciliation")[1]
    assert (second["model"], second["verdict"], reasons(second)) == (
        "gpt-5", "differs", ["not_in_report"]
    )  # fmt: skip


def test_answers_of_a_response_cache_are_ours_alone(store: Store) -> None:
    """They never reached the provider; their rows count as requests and carry no tokens."""
    day = calls()
    stored = [call for call in day if call.number % 6 == 0]
    load(store, [
        our(call, ineligible_reason="response_cache") if call in stored else our(call)
        for call in day
    ])  # fmt: skip
    tell(store, report([call for call in day if call not in stored]))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("agrees", ["response_cache_rows"])
    assert (row["our_requests"], row["their_requests"]) == (288, 240)
    assert row["evidence"].startswith("48 of our rows were answered by a response cache")


def test_a_table_that_counts_answers_of_a_response_cache_is_told_so(store: Store) -> None:
    day = calls()
    load(store, [
        our(call, ineligible_reason=None if call.number % 6 else "response_cache") for call in day
    ])  # fmt: skip
    tell(store, report(day), "litellm_daily")
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["response_cache_rows"])
    replayed = [call for call in day if call.number % 6 == 0]
    assert row["difference_tokens"] == -total(replayed)
    mean = (total(day) - total(replayed)) / (len(day) - len(replayed))
    assert f"about {round(mean * len(replayed)):,} prompt tokens" in row["evidence"]
    assert row["unexplained_tokens"] == 0


def test_streams_without_usage_are_named(store: Store) -> None:
    day = calls()
    blank = [call for call in day if call.number % 5 == 1]
    nothing = {"prompt_tokens": None, "cached_tokens": None, "cache_write_tokens": None}
    load(store, [our(call, **nothing) if call in blank else our(call) for call in day])
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["rows_without_counts"])
    assert row["difference_tokens"] == -total(blank)
    assert f"{len(blank)} of our rows have no prompt count" in row["evidence"]
    mean = (total(day) - total(blank)) / (len(day) - len(blank))
    assert f"about {round(mean * len(blank)):,} prompt tokens" in row["evidence"]


def test_failed_calls_that_were_not_billed_are_named(store: Store) -> None:
    day = calls()
    failed = [call for call in day if call.number % 8 == 5]
    load(store, [our(call, status="error") if call in failed else our(call) for call in day])
    tell(store, report([call for call in day if call not in failed]))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["failed_rows"])
    assert row["difference_tokens"] == total(failed)


def test_failed_calls_that_were_billed_agree(store: Store) -> None:
    day = calls()
    load(store, [our(call, status="error" if call.number % 8 else "ok") for call in day])
    tell(store, report(day))
    assert judge(store)["verdict"] == "agrees"


def test_more_than_they_have_without_a_reason_stays_unexplained(store: Store) -> None:
    day = calls()
    load(store, map(our, day))
    some = [call for call in day if call.number % 3]
    tell(store, report(some))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["unexplained"])
    assert row["unexplained_tokens"] == total(day) - total(some)
