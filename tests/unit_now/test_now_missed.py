"""Why tokens missed, beside a drop: only where it is known of both hours, and the same everywhere.

In the scene `no-cause` the ratio falls from 0.72 to 0.47 and nothing says why. The hour is 02:05 to
03:05; of 1,000 tokens that have causes 80 were evicted and 200 new a week before, now 210 and 320:
13 and 12 of 25 points.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from queries.on_call.asking import Asking
from queries.on_call.missed import missed
from queries.on_call.screen import Looking, look
from tests.unit_now.scenes import CLOCK, SCENES, Night
from tests.unit_now.test_now_scenes import page, printed

HOUR, WEEK = timedelta(hours=1), timedelta(weeks=1)
LINE = (
    "Missed tokens: evicted 8 % → 21 %, new 20 % → 32 % of the prompt tokens; in all "
    "+25.0 points, against the same hour a week ago."
)
DROPPED = {"class": "no cause found"}


def put(night: Night, at: datetime, evicted: int, new: int, **columns: object) -> None:
    """A minute with 1,000 explained prompt tokens of model llama."""
    row = {"minute": at.replace(tzinfo=None), "model": "llama", "requests": 1,
           "prompt_tokens": 1_000, "cached_tokens": 1_000 - evicted - new,
           "evicted_tokens": evicted, "new_tokens": new, **columns}  # fmt: skip
    night.connection.execute(
        f"INSERT INTO cause_minutes ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
        list(row.values()),
    )


@pytest.fixture(scope="module")
def dropped() -> Night:
    return SCENES["no-cause"]()


@pytest.fixture
def night(dropped: Night) -> Iterator[Night]:
    """The night, without what the test before put in."""
    yield dropped
    dropped.connection.execute("DELETE FROM cause_minutes")


def told(night: Night, lead: dict[str, object] | None = DROPPED) -> str:
    return missed(Asking(night.ask, CLOCK, ZoneInfo("UTC"), {}), lead)


def explained(night: Night) -> None:
    """Both hours, and minutes just beside them that say otherwise."""
    put(night, CLOCK - HOUR, 210, 320)
    put(night, CLOCK - WEEK - timedelta(minutes=1), 80, 200)
    for beside in (CLOCK, CLOCK - HOUR - timedelta(minutes=1), CLOCK - WEEK):
        put(night, beside, 1_000, 0)


def test_every_surface_says_which_causes_grew(night: Night) -> None:
    before = look(night.ask, Looking(), CLOCK)
    assert before.missed == ""
    assert "Missed tokens" not in page(before) + printed(before)
    explained(night)
    shown = look(night.ask, Looking(), CLOCK)
    assert shown.missed == LINE
    assert LINE.replace(" %", "\N{NO-BREAK SPACE}%") in page(shown)
    assert LINE in " ".join(printed(shown).split())
    # What the causes say changes nothing of the judgement.
    assert (shown.lead, shown.tone, shown.verdict) == (before.lead, before.tone, before.verdict)


@pytest.mark.parametrize(
    "lead", [None, {"class": None}, {"class": "telemetry"}], ids=["no traffic", "no drop", "counts"]
)
def test_where_nothing_fell_or_counts_are_lost_nothing_is_said(
    night: Night, lead: dict[str, object] | None
) -> None:
    explained(night)
    assert told(night) == LINE
    assert told(night, {"class": "memory pressure as expected"}) == LINE
    assert told(night, lead) == ""


def test_one_hour_alone_is_no_evidence(night: Night) -> None:
    put(night, CLOCK - HOUR, 210, 320)
    assert told(night) == ""


def test_a_small_part_of_the_traffic_is_no_evidence(night: Night) -> None:
    """Of 2,001 tokens that report a count 1,000 have causes."""
    explained(night)
    put(night, CLOCK - HOUR, 0, 0, prompt_tokens=0, cached_tokens=0, late_prompt_tokens=1_001)
    assert told(night) == ""


def test_where_as_much_was_cached_another_split_is_no_evidence(night: Night) -> None:
    """Evicted 20 points more, new 20 points less."""
    put(night, CLOCK - HOUR, 400, 0)
    put(night, CLOCK - WEEK - HOUR, 200, 200)
    assert told(night) == ""


def test_the_same_hour_is_that_of_the_local_clock(night: Night) -> None:
    """New York's clocks were set back on 1 November: 22:05 there was an hour earlier in UTC."""
    at = datetime(2026, 11, 5, 3, 5, tzinfo=CLOCK.tzinfo)
    put(night, at - HOUR, 210, 320)
    put(night, at - WEEK - 2 * HOUR, 80, 200)
    asking = Asking(night.ask, at, ZoneInfo("America/New_York"), {})
    assert missed(asking, DROPPED) == LINE
    assert missed(Asking(night.ask, at, ZoneInfo("UTC"), {}), DROPPED) == ""
