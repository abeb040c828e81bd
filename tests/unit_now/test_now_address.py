"""What `/now` can be asked, and that pages are shared for a few seconds and no longer."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from exporter.endpoints.now import NowPage, wrong_page
from exporter.endpoints.now_address import WrongAddress, address, looking
from queries.on_call.screen import Looking
from queries.on_call.words import Rows

CLOCK = datetime(2026, 11, 30, 4, 0, tzinfo=UTC)


def test_an_alerts_link_is_understood() -> None:
    found = looking(
        [("model", "llama 70b/x&y"), ("replica", "a"), ("at", "2026-11-30T03:00Z")], CLOCK
    )
    assert found == Looking(
        datetime(2026, 11, 30, 3, tzinfo=UTC), None, {"model": "llama 70b/x&y", "replica": "a"}
    )


def test_labels_an_alert_does_not_have_are_no_filters() -> None:
    assert looking([("model", "m"), ("tenant", ""), ("at", "")], CLOCK) == Looking(
        None, None, {"model": "m"}
    )


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-30T03:00:30Z", "03:00:30"),
        ("2026-11-30T03:00", "03:00:00"),
        ("2026-11-30 03:00", "03:00:00"),
        ("2026-11-30T04:30+01:00", "03:30:00"),
        ("2026-11-30T04:30 01:00", "03:30:00"),  # a plus sign, as addresses decode it
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, utc: str) -> None:
    at = looking([("at", text)], CLOCK).at
    assert at is not None
    assert f"{at.astimezone(UTC):%H:%M:%S}" == utc


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ([("modle", "x")], "unknown parameter modle; known: model, replica, route"),
        ([("model", "a"), ("model", "b")], "model is given twice"),
        ([("model", "x" * 301)], "model is longer than 300 characters"),
        ([("at", "yesterday")], "write at=2026-11-30T03:00Z"),
        ([("at", "2026-13-30T03:00Z")], "at=2026-13-30T03:00Z is no time"),
        ([("at", "2026-11-30T04:01Z")], "has not come yet; it is 2026-11-30T04:00Z"),
        ([("at", "0001-01-01T00:00+23:00")], "is no time"),
        ([("zone", "Mars/Olympus")], "zone=Mars/Olympus is no time zone"),
        ([("zone", "../../etc/passwd")], "is no time zone"),
        ([("zone", "a" * 300)], "is no time zone"),
        ([("<script>", "x")], "unknown parameter <script>"),
    ],
)
def test_what_is_wrong_is_named(params: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(WrongAddress) as caught:
        looking(params, CLOCK)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "<script" not in wrong_page(str(caught.value))


def test_an_address_gives_its_view_again() -> None:
    given = {"model": "a&b", "at": "2026-11-30T03:00:00Z", "zone": "Europe/Berlin"}
    found = looking(list(given.items()), CLOCK)
    assert found.zone == ZoneInfo("Europe/Berlin")
    assert address(found) == given
    assert address(found, replica="r", model=None) == {
        "replica": "r", "at": "2026-11-30T03:00:00Z", "zone": "Europe/Berlin",
    }  # fmt: skip


class Counting:
    """Answers of an empty store, counted."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, _name: str, _params: Mapping[str, object]) -> Rows:
        self.asked += 1
        return [{"level": None, "demo": False, "zone": "UTC", "last_ts": None,
                 "engine_last_ts": None}]  # fmt: skip


def test_t75_readers_share_a_page_of_the_same_view_and_moment() -> None:
    counting = Counting()
    pages = NowPage(counting, "1")
    first = pages.page([], CLOCK)
    assert pages.page([], CLOCK + timedelta(seconds=14)) == first
    assert counting.asked == 1
    assert "No data yet." in first
    pages.page([("model", "m")], CLOCK)
    pages.page([], CLOCK + timedelta(seconds=15))
    assert counting.asked == 3
    for number in range(100):
        pages.page([("model", str(number))], CLOCK)
    # The oldest were let go.
    asked = counting.asked
    pages.page([], CLOCK)
    assert counting.asked == asked + 1
