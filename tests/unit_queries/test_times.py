"""An instant as the store keeps it, whatever zone it was given in."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from queries.times import as_utc, utc_without_zone

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))


@given(
    moment=st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)),  # noqa: DTZ001 - any zone
    zone=ZONES,
)
def test_the_zone_goes_and_the_instant_stays(moment: datetime, zone: timezone) -> None:
    kept = utc_without_zone(moment.replace(tzinfo=zone))
    assert kept.tzinfo is None
    assert kept == moment - (zone.utcoffset(None) or timedelta(0))
    assert as_utc(kept) == moment.replace(tzinfo=zone)


def test_without_a_zone_it_is_utc_already_and_not_this_machines_time() -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert utc_without_zone(noon.replace(tzinfo=None)) == utc_without_zone(noon)
