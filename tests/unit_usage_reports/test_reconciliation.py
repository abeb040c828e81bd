"""Our rows against reports built from known traffic: each way to differ is named rightly.

The traffic is one list of calls. Rows and reports are both made of it by plain addition here,
each with the fault of its test; what the question says is compared with those sums.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.sources.usage_reports.rows import UsageRow
from exporter.store.provider_usage import replace_usage
from exporter.store.retention import retain
from exporter.store.store import Store
from tests.log_path import Answer, Row, ask, load

DAY = datetime(2026, 3, 2, tzinfo=UTC)
LATER = DAY + timedelta(days=30)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True)
class Call:
    """One call as it really was."""

    ts: datetime
    number: int
    prompt: int
    cached: int
    written: int
    model: str = "gpt-4o-2024-08-06"

    @property
    def hour(self) -> int:
        return self.ts.hour


def calls(days: int = 1, every: timedelta = 5 * MINUTE, model: str | None = None) -> list[Call]:
    """Traffic that grows over each day and from day to day, so that no two spans look alike."""
    per_day = int(timedelta(days=1) / every)
    return [
        Call(
            ts=DAY + number * every,
            number=number,
            prompt=1_000 + 40 * (number % per_day) + 300 * (number // per_day),
            cached=256 + 16 * (number % 11),
            written=64 if number % 4 == 0 else 0,
            model=model or Call.model,
        )
        for number in range(days * per_day)
    ]


def our(call: Call, **other: object) -> Row:
    """The row we have of a call."""
    return {
        "ts": call.ts.isoformat(), "request_id": f"r{call.number}", "provider": "openai",
        "model": call.model, "prompt_tokens": call.prompt, "cached_tokens": call.cached,
        "cache_write_tokens": call.written, "output_tokens": 10, **other,
    }  # fmt: skip


def total(given: Iterable[Call], part: str = "prompt") -> int:
    return sum(getattr(call, part) for call in given)


def report(
    given: Sequence[Call], *, hours: int = 24, begins: timedelta = timedelta(0),
    name: str | None = None,
) -> list[UsageRow]:  # fmt: skip
    """What the provider says of these calls, in buckets of `hours`."""
    length = timedelta(hours=hours)
    buckets: dict[tuple[datetime, str], list[Call]] = {}
    for call in given:
        start = DAY + begins + (call.ts - DAY - begins) // length * length
        buckets.setdefault((start, call.model), []).append(call)
    return [
        UsageRow(
            day=start, bucket_seconds=hours * 3_600, provider="openai", model=name or model,
            requests=len(inside), prompt_tokens=total(inside),
            cached_tokens=total(inside, "cached"), cache_write_tokens=total(inside, "written"),
            output_tokens=10 * len(inside),
        ) for (start, model), inside in buckets.items()
    ]  # fmt: skip


def tell(
    store: Store, rows: Sequence[UsageRow], reporter: str = "openai", read_at: datetime = LATER
) -> None:
    replace_usage(store, reporter, rows, read_at=read_at)


def judge(store: Store, **params: object) -> Answer:
    (row,) = ask(store, "reconciliation", **params)
    return row


def reasons(row: Answer) -> list[str]:
    return row["reasons"].split(", ") if row["reasons"] else []


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


def retried(day: Sequence[Call]) -> list[Call]:
    return [call for call in day if call.number % 10 == 3]


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


def test_missing_hour_and_doubled_retries(store: Store) -> None:
    day = calls()
    lost = [call for call in day if call.hour == 10]
    kept = [call for call in day if call not in lost]
    load(store, [*map(our, kept), *(our(call, attempt=2) for call in retried(kept))])
    tell(store, report(day))
    row = judge(store)
    assert (row["verdict"], reasons(row)) == ("differs", ["repeated_rows", "missing_rows"])
    assert row["difference_tokens"] == total(retried(kept)) - total(lost)
    assert row["unexplained_tokens"] == 0


def test_failed_calls_and_doubled_retries(store: Store) -> None:
    day = calls()
    failed = [call for call in day if call.number % 6 == 0]
    load(store, [
        *(our(call, status="error") if call in failed else our(call) for call in day),
        *(our(call, attempt=2) for call in retried(day) if call not in failed),
    ])  # fmt: skip
    tell(store, report([call for call in day if call not in failed]))
    row = judge(store)
    assert reasons(row) == ["repeated_rows", "failed_rows"]
    assert row["unexplained_tokens"] == 0


def test_missing_hour_and_exclusive_counts(store: Store) -> None:
    day = calls()
    kept = [call for call in day if call.hour != 10]
    load(store, [our(call, prompt_tokens=call.prompt - call.cached) for call in kept])
    tell(store, report(day))
    row = judge(store)
    assert reasons(row) == ["exclusive_counts", "missing_rows"]


def test_exclusive_counts_and_doubled_retries(store: Store) -> None:
    day = calls()
    rows = [our(call, prompt_tokens=call.prompt - call.cached) for call in day]
    load(store, [*rows, *(
        our(c, prompt_tokens=c.prompt - c.cached, attempt=2) for c in retried(day)
    )])  # fmt: skip
    tell(store, report(day))
    row = judge(store)
    assert reasons(row) == ["repeated_rows", "exclusive_counts"]
    assert row["unexplained_tokens"] == 0


def test_doubled_retries_and_traffic_elsewhere(store: Store) -> None:
    day = calls()
    passed = [call for call in day if call.number % 2]
    load(store, [*map(our, passed), *(our(call, attempt=2) for call in retried(passed))])
    tell(store, report(day))
    row = judge(store)
    assert reasons(row) == ["repeated_rows", "elsewhere"]
    assert row["unexplained_tokens"] == total(passed) - total(day)


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


Rows = list[Row]
# What happens to our rows (given the calls some of which are `marked`), and its name.
FAULTS: dict[str, Callable[[list[Call], set[int]], Rows]] = {
    "repeated_rows": lambda day, marked: [
        *map(our, day), *(our(call, attempt=2) for call in day if call.number in marked)
    ],
    "exclusive_counts": lambda day, _: [
        our(call, prompt_tokens=call.prompt - call.cached - call.written) for call in day
    ],
    "counted_twice": lambda day, _: [
        our(call, prompt_tokens=call.prompt + call.cached + call.written) for call in day
    ],
    "elsewhere": lambda day, marked: [our(call) for call in day if call.number not in marked],
    "unexplained": lambda day, marked: [
        *map(our, day), *(our(c, request_id=f"x{c.number}") for c in day if c.number in marked)
    ],
}  # fmt: skip


@given(
    fault=st.sampled_from(sorted(FAULTS)),
    sizes=st.lists(
        st.tuples(st.integers(50, 20_000), st.floats(0, 1), st.booleans()),
        min_size=96,
        max_size=96,
    ),
    every=st.integers(3, 12),
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_fault_in_any_traffic_is_named_or_too_small_to_matter(
    store: Store, fault: str, sizes: list[tuple[int, float, bool]], every: int
) -> None:
    day = [
        Call(DAY + 15 * MINUTE * number, number, prompt, int(prompt * share * 0.9),
             int(prompt * (1 - share) * 0.5) if writes else 0)
        for number, (prompt, share, writes) in enumerate(sizes)
    ]  # fmt: skip
    marked = set(range(0, len(day), every))
    store.cursor().execute("DELETE FROM requests")
    store.cursor().execute("DELETE FROM provider_usage")
    load(store, FAULTS[fault](day, marked))
    tell(store, report(day))
    row = judge(store)
    if abs(row["difference_tokens"]) <= 0.005 * total(day):
        assert row["unexplained_tokens"] == 0
    elif fault in ("elsewhere", "unexplained"):
        # A sum that another cause would give by chance may take its name.
        assert fault in reasons(row) or row["unexplained_tokens"] == 0
    else:
        assert reasons(row) == [fault]


@given(
    lost=st.sets(st.integers(0, 47), max_size=6),
    other=st.sets(st.integers(0, 47), max_size=6),
    tolerance=st.sampled_from([0.0, 0.005, 0.05]),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_sums_and_verdict_hold_for_any_traffic(
    store: Store, lost: set[int], other: set[int], tolerance: float
) -> None:
    """Whatever is missing on either side: sums are exact, and a verdict follows from them."""
    day = calls(every=30 * MINUTE)
    mine = [call for call in day if call.number not in lost]
    theirs = [call for call in day if call.number not in other]
    store.cursor().execute("DELETE FROM requests")
    store.cursor().execute("DELETE FROM provider_usage")
    load(store, map(our, mine))
    tell(store, report(theirs))
    row = judge(store, tolerance_ratio=tolerance)
    assert (row["our_prompt_tokens"], row["their_prompt_tokens"]) == (total(mine), total(theirs))
    assert row["difference_tokens"] == total(mine) - total(theirs)
    apart = abs(total(mine) - total(theirs))
    alike = apart <= tolerance * total(theirs) and all(
        abs(total(mine, part) - total(theirs, part)) <= max(tolerance * total(theirs, part), apart)
        for part in ("cached", "written")
    )
    assert (row["verdict"] == "agrees") == alike
