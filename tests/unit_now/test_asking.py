"""Windows and filters of the screen: what each question is asked."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from queries.on_call.asking import Asking
from queries.on_call.words import Rows


def asking(zone: str, until: datetime, asked: list[Mapping[str, object]]) -> Asking:
    def ask(_name: str, params: Mapping[str, object]) -> Rows:
        asked.append(params)
        return []

    return Asking(ask, until, ZoneInfo(zone), {"tenant": "t", "replica": "r"})


def test_t78_a_week_earlier_is_the_same_local_time() -> None:
    """Berlin's clocks went back on 25 October: 03:00 is 02:00 UTC after, 01:00 before."""
    until = datetime(2026, 10, 28, 2, tzinfo=UTC)
    assert asking("Europe/Berlin", until, []).week_before(until) == datetime(
        2026, 10, 21, 1, tzinfo=UTC
    )
    assert asking("UTC", until, []).week_before(until) == until - timedelta(days=7)


def test_a_question_gets_the_filters_it_knows() -> None:
    asked: list[Mapping[str, object]] = []
    until = datetime(2026, 11, 29, 3, 5, tzinfo=UTC)
    made = asking("UTC", until, asked)
    made.rows("hit_ratio")
    made.rows("memory_split", by="replica")
    made.rows("peak_drop", timedelta(hours=6))
    ends = {"since": until - timedelta(hours=1), "until": until}
    assert asked[0] == {**ends, "tenant": "t", "replica": "r"}
    assert asked[1] == {**ends, "replica": "r", "by": "replica"}
    assert asked[2]["since"] == until - timedelta(hours=6)
    assert (asked[2]["zone"], asked[2]["tenant"]) == ("UTC", "t")
