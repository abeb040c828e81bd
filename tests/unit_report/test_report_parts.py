"""What parts of a report make of the rows that questions answer: trust, headline, which week."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from dashboard.report import default_week
from dashboard.report.asking import Asking
from dashboard.report.figures import trust
from dashboard.report.span import headline
from dashboard.report.week import Headline
from dashboard.report.weeks import Week
from tests.unit_report.conftest import at

WEEK = Week.parse("2026-W48", "America/New_York")
PAIR = {
    "kind": "log_and_engine", "first_prompt_tokens": 1000, "second_prompt_tokens": 1010,
    "first_cached_tokens": 600, "second_cached_tokens": 610,
}  # fmt: skip
DAY = {
    "reporter": "openai", "day": at("11-24 00:00"), "model": "gpt", "verdict": "agrees",
    "reasons": None, "evidence": None, "our_prompt_tokens": 5000, "their_prompt_tokens": 5000,
    "difference_tokens": 0,
}  # fmt: skip
DIFFERS = {
    **DAY, "day": at("11-25 00:00"), "verdict": "differs", "reasons": "retries, model_names",
    "our_prompt_tokens": 6000, "their_prompt_tokens": 5000, "difference_tokens": 1000,
}  # fmt: skip
OPEN = {**DAY, "verdict": "cannot be compared", "evidence": "no rows of ours"}
AGREES = (
    "Log and engine counters agree in the last day both tell of: 1,000 and 1,010 prompt tokens "
    "(+1.0 %), 600 and 610 of them cached."
)
PROVIDER_AGREES = (
    "Agrees with OpenAI on all compared days and models (1): 5,000 prompt tokens here, 5,000 there "
    "(apart by less than 0.1 %)."
)


class Told:
    """Answers that a test says, and what was asked."""

    def __init__(self, **rows: list[dict[str, object]]) -> None:
        self.rows = rows
        self.asked: dict[str, Mapping[str, object]] = {}

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        self.asked[name] = params
        return pa.Table.from_pylist(self.rows.get(name, []))


def lead() -> Headline:
    row = {"token_hit_ratio": 0.6, "reported_prompt_tokens": 1000, "computed_tokens": 400}
    return headline(Asking(Told(hit_ratio=[row]), WEEK), "log")


def sentences(**rows: list[dict[str, object]]) -> list[tuple[str, str]]:
    found = trust(Asking(Told(**rows), WEEK), lead(), WEEK.until)
    return [(each.verdict, each.sentence) for each in found]


def test_log_and_engine_are_compared_over_their_sums() -> None:
    """1010 for 1000 is within 2 %; with 900 more of a second model it is not."""
    assert sentences(source_pairs=[PAIR]) == [("agrees", AGREES)]
    other = {**PAIR, "second_prompt_tokens": 1900}
    ((verdict, said),) = sentences(source_pairs=[PAIR, other])
    assert verdict == "differs"
    assert "2,000 and 2,910 prompt tokens (+45.5 %)" in said


def test_log_and_engine_are_compared_in_the_last_day_with_traffic() -> None:
    """Traffic ends on Friday 18:00; in the first hours of a week there is less than a day."""
    told = Told()
    for last in (WEEK.since + timedelta(days=4, hours=18), WEEK.since + timedelta(hours=2)):
        trust(Asking(told, WEEK), lead(), last)
        asked = told.asked["source_pairs"]
        since = max(WEEK.since, last - timedelta(days=1))
        assert (asked["since"], asked["until"]) == (since.isoformat(), last.isoformat())


def test_a_provider_that_agrees_wherever_it_is_compared() -> None:
    assert sentences(reconciliation=[DAY, OPEN]) == [("agrees", PROVIDER_AGREES)]


def test_a_provider_that_differs_is_told_with_the_largest_day_and_why() -> None:
    ((verdict, said),) = sentences(reconciliation=[DAY, DIFFERS])
    assert verdict == "differs"
    assert said == (
        "Differs from OpenAI on 1 of 2 days and models: 11,000 prompt tokens here, 10,000 "
        "there (+10.0 %). Largest: gpt on 2026-11-25, likely retries, model names."
    )


def test_nothing_to_compare_is_said_with_its_reason() -> None:
    assert sentences(reconciliation=[OPEN]) == [
        ("cannot be compared", "OpenAI: nothing to compare (no rows of ours).")
    ]


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Pacific/Auckland"])
def test_t78_a_provider_is_compared_on_the_utc_days_of_the_same_dates(zone: str) -> None:
    """Not on those the week begins and ends in, which in New York are a day later."""
    told = Told()
    trust(Asking(told, Week.parse("2026-W48", zone)), lead(), WEEK.until)
    asked = told.asked["reconciliation"]
    assert (asked["since"], asked["until"]) == (
        "2026-11-23T00:00:00+00:00",
        "2026-11-30T00:00:00+00:00",
    )


def test_rows_that_do_not_report_have_no_ratio_and_say_why() -> None:
    row = {"token_hit_ratio": None, "requests": 5, "prompt_tokens": 1200, "computed_tokens": 0}
    made = headline(Asking(Told(hit_ratio=[row]), WEEK), "none")
    assert (made.token_hit_ratio, made.cached_tokens, made.change_ratio) == (None, None, None)
    assert made.sentence == (
        "No token hit ratio in 2026-W48: 5 requests with 1,200 prompt tokens, and none says what "
        "came from cache."
    )


@pytest.mark.parametrize(
    ("last", "week"),
    [("10-07 12:00", "2026-W41"), ("12-02 12:00", "2026-W48"), (None, "2026-W48")],
)
def test_without_a_week_it_is_the_latest_full_one_that_has_data(
    last: str | None, week: str
) -> None:
    """Now is Wednesday of 2026-W49: the week under way is not over."""
    state = [{"last_ts": at(last) if last else None, "level": 1}]
    now = datetime(2026, 12, 2, 13, tzinfo=UTC)
    assert default_week(Told(store_state=state), now, "UTC").name == week
    assert default_week(Told(), now, "UTC").name == "2026-W48"


def test_data_that_began_this_week_is_reported_rather_than_an_empty_week() -> None:
    """Now is Wednesday of 2026-W49; the engines are watched since its Monday."""
    state = [{"engine_first_ts": at("11-30 22:39"), "engine_last_ts": at("12-02 12:00"),
              "level": 0}]  # fmt: skip
    now = datetime(2026, 12, 2, 13, tzinfo=UTC)
    assert default_week(Told(store_state=state), now, "UTC").name == "2026-W49"
    long = [state[0] | {"first_ts": at("10-07 12:00")}]
    assert default_week(Told(store_state=long), now, "UTC").name == "2026-W48"
