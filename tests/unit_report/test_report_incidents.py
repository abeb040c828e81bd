"""What happened and the worst hour: from rows as the question peak_drop gives them."""

from datetime import timedelta

import pytest

from dashboard.report import incidents, suspects
from dashboard.report.span import Course, Sums
from dashboard.report.weeks import Slot, Week

WEEK = Week.parse("2026-W48", "UTC")
MONDAY = WEEK.since.replace(tzinfo=None)  # as rows have it


def hour(number: int, **columns: object) -> dict[str, object]:
    """A judged hour of the week: 50 % of 100,000 tokens where 80 % is expected."""
    return {
        "ts": MONDAY + timedelta(hours=number), "model": "m", "basis": "log",
        "reported_prompt_tokens": 100_000, "token_hit_ratio": 0.5, "coverage_ratio": 1.0,
        "expected_ratio": 0.8, "expected_low_ratio": 0.75, "expected_high_ratio": 0.85,
        "load_part_ratio": 0.0, "drop_ratio": 0.3, "pressure_ratio": 0.4, "is_drop": True,
        "class": "reset", "evidence": "11 resets, usually 0", "contributor": "a v2",
        "severity": "ticket", **columns,
    }  # fmt: skip


def test_the_worst_hour_lost_most_tokens_against_its_usual_ratio() -> None:
    """10,000 tokens x 0.6 are fewer than 100,000 x 0.3; an hour above its usual ratio is none."""
    rows = [
        hour(0, token_hit_ratio=0.2, reported_prompt_tokens=10_000), hour(1),
        hour(2, token_hit_ratio=0.95, drop_ratio=-0.15), hour(3, is_drop=None),
    ]  # fmt: skip
    found = incidents.peak(WEEK, rows)
    assert found is not None
    assert found.ts.hour == 1
    assert found.was_expected is False
    assert found.sentence == (
        "Mon 2026-11-23 01:00, model m: 50.0 % where these hours usually reach 80.0 %. Not "
        "expected (75.0 %–85.0 % at 40.0 % KV usage): reset (11 resets, usually 0)."
    )
    assert incidents.peak(WEEK, rows[2:]) is None


def test_a_fall_that_load_explains_is_said_to_be_expected() -> None:
    """Usually 80 %, 52 % at this load: of the fall of 30 points load explains 28."""
    row = hour(20, is_drop=False, expected_ratio=0.52, load_part_ratio=0.28, drop_ratio=0.02,
               pressure_ratio=0.91)  # fmt: skip
    row["class"] = "memory pressure as expected"
    found = incidents.peak(WEEK, [row])
    assert found is not None
    assert found.was_expected is True
    assert found.sentence.endswith(
        "Expected: load at 91.0 % KV usage explains 28.0 points, the rest is within chance."
    )


def test_hours_in_a_row_are_one_drop_told_by_the_worst() -> None:
    """Hour 3 lost all its counts; hour 9 is another drop, and pages."""
    lost = hour(3, token_hit_ratio=None, drop_ratio=None, evidence="every count is lost")
    lost["class"] = "telemetry"
    rows = [hour(1, token_hit_ratio=0.6), hour(2), lost, hour(9, severity="page")]
    first, second = incidents._drop_incidents(rows)
    assert first.sentence == (
        "50.0 % where 80.0 % was expected, for 3 hours: reset (11 resets, usually 0)"
    )
    assert (first.severity, second.severity) == ("ticket", "page")
    (alone,) = incidents._drop_incidents([lost])
    assert alone.sentence == "no ratio is told: telemetry (every count is lost)"
    assert incidents.peak(WEEK, [lost]) is None


def course(*hours: tuple[int, int, str, int, int]) -> Course:
    """Weeks back, hour of the week, model, reported tokens, cached tokens."""
    made = Course("log", tuple(WEEK.back(n) for n in range(12, -1, -1)))
    for start in range(168):
        made.slot_since[Slot(start // 24, start % 24)] = WEEK.since + timedelta(hours=start)
    for back, start, model, reported, cached in hours:
        week, slot = WEEK.back(back), Slot(start // 24, start % 24)
        sums = Sums(100, reported, 0, reported, cached, 1)
        made.by_model[week.name, slot, model] = sums
        made.by_slot[week.name, slot] = sums
        made.by_week[week.name] = sums
    return made


def spans(made: Course) -> list[tuple[int, int]]:
    """Judged spans as hours of the week."""
    hour_ = timedelta(hours=1)
    found = suspects.runs(made, WEEK)
    return [(int((a - WEEK.since) / hour_), int((b - WEEK.since) / hour_)) for a, b in found]


def test_the_hours_that_fell_are_judged_and_hours_between_with_them() -> None:
    """Hours 10 and 12 fell, 11 did not; of model n only hour 90; hour 50 has too few tokens."""
    earlier = [(1, start, "m", 100_000, 80_000) for start in (10, 11, 12, 50)]
    now = [(0, 10, "m", 100_000, 40_000), (0, 11, "m", 100_000, 81_000),
           (0, 12, "m", 100_000, 50_000), (0, 50, "m", 19_000, 0)]  # fmt: skip
    other = [(1, 90, "n", 100_000, 50_000), (0, 90, "n", 100_000, 49_000)]
    assert spans(course(*earlier, *now, *other)) == [(10, 13), (90, 91)]


def test_an_hour_that_lost_its_telemetry_is_judged() -> None:
    made = course((1, 5, "m", 100_000, 80_000), (0, 5, "m", 40_000, 36_000))
    made.by_model[WEEK.name, Slot(0, 5), "m"].prompt_tokens = 100_000
    assert spans(made) == [(5, 6)]
    made.by_model[WEEK.name, Slot(0, 5), "m"] = Sums(100, 100_000, 100_000, 0, 0, 1)
    assert spans(made) == [], "all of it was ineligible: nothing could report"


def test_not_more_than_a_day_of_hours_in_four_spans_is_judged() -> None:
    every_fifth = [(back, start, "m", 100_000, 80_000 - 20_000 * (back == 0) - start)
                   for start in range(0, 168, 5) for back in (0, 1)]  # fmt: skip
    assert len(spans(course(*every_fifth))) == suspects.MOST_RUNS
    all_hours = [(back, start, "m", 100_000, 80_000 - (20_000 + start) * (back == 0))
                 for start in range(168) for back in (0, 1)]  # fmt: skip
    assert spans(course(*all_hours)) == [(144, 168)], "the last ones fell furthest"


@pytest.mark.parametrize(("busy_weeks", "found"), [(2, ["no data"]), (1, [])])
def test_hours_that_always_have_traffic_and_have_none_are_told(
    busy_weeks: int, found: list[str]
) -> None:
    """One earlier week is not enough to call an hour busy."""
    earlier = [(back, start, "m", 9, 9) for back in range(1, 1 + busy_weeks) for start in (30, 31)]
    made = course(*earlier, (0, 29, "m", 9, 9))
    told = list(incidents._gaps(WEEK, made, WEEK.until))
    assert [each.kind for each in told] == found
    assert [each.ts for each in told] == [WEEK.since + timedelta(hours=30) for _ in found]


def test_hours_after_the_last_fact_are_no_gap() -> None:
    """Data ends in hour 31: of the two hours only the first is over."""
    earlier = [(back, start, "m", 9, 9) for back in (1, 2) for start in (30, 31)]
    made = course(*earlier, (0, 29, "m", 9, 9))
    end = WEEK.since + timedelta(hours=31, minutes=30)
    assert [each.sentence[:21] for each in incidents._gaps(WEEK, made, end)] == [
        "no traffic for 1 hour"
    ]
    assert list(incidents._gaps(WEEK, made, WEEK.since)) == []
