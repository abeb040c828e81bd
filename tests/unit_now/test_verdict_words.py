"""The verdict sentence, class by class, from rows as `peak_drop` gives them."""

from datetime import UTC, datetime
from typing import get_args
from zoneinfo import ZoneInfo

import pytest

from queries.on_call.onset import Onset
from queries.on_call.verdict import NO_CAUSE, Told, Tone, sentence, tone
from queries.registry import questions

BERLIN = ZoneInfo("Europe/Berlin")
# 02:00 UTC on Sunday 29 November is 03:00 in Berlin.
UNTIL = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
SINCE = Onset(datetime(2026, 11, 29, 1, 41, tzinfo=UTC))
Row = dict[str, object]


def row(**changes: object) -> Row:
    """A drop without a cause; 38 % where 69 to 74 % are expected."""
    base: Row = {
        "ts": "2026-11-29T01:00:00Z", "model": "m", "basis": "log",
        "reported_prompt_tokens": 400_000, "token_hit_ratio": 0.38, "coverage_ratio": 0.98,
        "expected_ratio": 0.715, "expected_low_ratio": 0.69, "expected_high_ratio": 0.74,
        "history_weeks": 4, "method": "same hours", "pressure_ratio": 0.41,
        "usual_pressure_ratio": 0.4, "load_part_ratio": 0.0, "drop_ratio": 0.335, "is_drop": True,
        "class": NO_CAUSE, "evidence": None, "contributor": None, "contributor_share_ratio": None,
        "hurts": None, "severity": "ticket", "is_recovering": False,
    }  # fmt: skip
    return base | changes


def said(given: Row | None, onset: Onset | None = SINCE) -> str:
    return sentence(given, Told(UNTIL, BERLIN, onset))


DROP = "Hit ratio 38 %, expected 69–74 % for Sunday 03:00 at this load, since 02:41."


def test_the_rows_here_are_as_the_question_has_them() -> None:
    assert set(row()) == set(questions()["peak_drop"].columns) - {"value"}


def test_a_template_is_named_with_its_share() -> None:
    given = row(**{"class": "template version or layout", "contributor": "checkout v8",
                   "contributor_share_ratio": 0.81, "severity": "page",
                   "evidence": "template checkout v8 keeps 12 % of its usual ratio"})  # fmt: skip
    assert said(given) == (f"{DROP} Not memory pressure. 81 % of the drop is template checkout v8.")
    assert tone(given) == "page"


def test_of_a_recovering_drop_its_cause_is_told_and_not_who_loses_most_now() -> None:
    evidence = "recovering; before: template checkout v8 keeps 12 % of its usual ratio"
    given = row(**{"class": "template version or layout", "contributor": "checkout v7",
                   "contributor_share_ratio": 0.81, "evidence": evidence,
                   "is_recovering": True})  # fmt: skip
    assert said(given) == (f"{DROP} Not memory pressure. Template version or layout: {evidence}.")


def test_no_cause_is_said_as_such() -> None:
    assert said(row()) == f"{DROP} Not memory pressure. Dropped; no cause found."
    assert tone(row()) == "ticket"


@pytest.mark.parametrize(
    ("kind", "evidence", "ends"),
    [
        ("routing spread", "31 % of later turns on another replica, usually 2 %",
         "Routing spread: 31 % of later turns on another replica, usually 2 %."),
        ("reset", "3 resets, usually 0", "Reset: 3 resets, usually 0."),
        ("deploy", "another model fingerprint than in the weeks before",
         "Deploy: another model fingerprint than in the weeks before."),
        ("traffic mix", "64 % of the fall is another mix of templates",
         "Traffic mix: 64 % of the fall is another mix of templates."),
        ("isolation", "0.98 scopes a session, usually 0.10",
         "Isolation: 0.98 scopes a session, usually 0.10."),
        ("reuse stopped", "1 % where 71 % is expected",
         "Reuse stopped: 1 % where 71 % is expected."),
        ("template version or layout", "template a keeps 9 % of its usual ratio",
         "Template version or layout: template a keeps 9 % of its usual ratio."),
        ("a class of later days", None, "A class of later days."),
    ],
)  # fmt: skip
def test_other_causes_are_told_with_their_figures(
    kind: str, evidence: str | None, ends: str
) -> None:
    given = row(**{"class": kind, "evidence": evidence})
    assert said(given) == f"{DROP} Not memory pressure. {ends}"


def test_pressure_as_a_cause_is_not_denied() -> None:
    given = row(**{"class": "memory pressure beyond expected", "pressure_ratio": 0.93,
                   "evidence": "KV usage 93 %, usually 40 %"})  # fmt: skip
    assert said(given) == f"{DROP} Memory pressure beyond expected: KV usage 93 %, usually 40 %."


def test_pressure_beside_another_cause_is_told() -> None:
    given = row(pressure_ratio=0.7)
    assert "KV pressure 70 %, usually 40 %. Dropped; no cause found." in said(given)


def test_unknown_pressure_is_not_called_none() -> None:
    """Without pages there is no load to speak of either."""
    assert said(row(pressure_ratio=None, usual_pressure_ratio=None)) == (
        "Hit ratio 38 %, expected 69–74 % for Sunday 03:00, since 02:41. "
        "Memory pressure unknown. Dropped; no cause found."
    )


def test_expected_pressure_is_no_drop() -> None:
    given = row(**{"class": "memory pressure as expected", "is_drop": False, "severity": None,
                   "token_hit_ratio": 0.52, "pressure_ratio": 0.91, "usual_pressure_ratio": 0.6,
                   "expected_ratio": 0.53, "load_part_ratio": 0.17})  # fmt: skip
    assert said(given, None) == (
        "As expected: 52 % at 91 % KV pressure; usual for Sunday 03:00 is 70 % at 60 %."
    )
    assert tone(given) == "good"


USUAL = "expected 69–74 % for Sunday 03:00 at this load"


def test_a_load_that_is_traffic_is_not_called_pressure() -> None:
    given = row(**{"class": "memory pressure as expected", "is_drop": False, "severity": None,
                   "token_hit_ratio": 0.54, "pressure_ratio": 0.02, "usual_pressure_ratio": 0.0,
                   "expected_ratio": 0.56, "load_part_ratio": 0.2})  # fmt: skip
    assert said(given, None) == ("As expected: 54 % at this load; usual for Sunday 03:00 is 76 %.")


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.71, f"As expected: hit ratio 71 %, {USUAL}."),
        (0.88, f"Better than expected: hit ratio 88 %, {USUAL}."),
        (0.67, f"Hit ratio 67 %, {USUAL}: lower, but not by enough to call it a drop."),
    ],
)
def test_no_drop(ratio: float, words: str) -> None:
    given = row(**{"is_drop": False, "class": None, "severity": None, "token_hit_ratio": ratio})
    assert said(given, None) == words


@pytest.mark.parametrize(("weeks", "words"), [(1, "1 week"), (2, "2 weeks"), (3, "3 weeks")])
def test_fewer_weeks_are_said(weeks: int, words: str) -> None:
    assert f"at this load ({words} of history), since" in said(row(history_weeks=weeks))


def test_under_a_week_equal_pressure_is_what_is_compared() -> None:
    given = row(method="equal pressure", history_weeks=0)
    assert said(given).startswith(
        "Hit ratio 38 %, expected 69–74 % at this load (under one week of history), since 02:41."
    )


def test_telemetry_comes_before_any_ratio() -> None:
    given = row(**{"class": "telemetry", "evidence": "coverage 50 %, usually 98 %",
                   "token_hit_ratio": 0.7})  # fmt: skip
    assert said(given, None) == (
        "Telemetry fault, no finding about the cache: coverage 50 %, usually 98 %. Of what still "
        "reports: hit ratio 70 %, expected 69–74 % for Sunday 03:00 at this load."
    )


def test_engine_counters_are_named() -> None:
    assert said(row(basis="engine", coverage_ratio=None)).startswith(
        "Hit ratio by engine counters 38 %, expected 69–74 %"
    )


def test_t58_no_traffic_is_its_own_answer() -> None:
    assert said(None) == "No traffic in the hour to Sunday 03:00: no hit ratio."
    assert tone(None) == "unknown"


def test_t5_nothing_reported_is_no_ratio_of_nought() -> None:
    given = row(token_hit_ratio=None, reported_prompt_tokens=0, is_drop=None, severity=None)
    assert said(given).startswith("No hit ratio: nothing in the hour to Sunday 03:00 reported")


def test_too_little_traffic_says_how_much_is_needed() -> None:
    given = row(is_drop=None, reported_prompt_tokens=12_000, **{"class": None}, severity=None)
    least = questions()["peak_drop"].params["min_tokens"].default
    assert said(given) == (
        f"Too little traffic to judge: 12,000 reported prompt tokens in the hour, {least:,} are "
        "needed; hit ratio 38 %."
    )


@pytest.mark.parametrize("tokens", [9_000, 400_000])
def test_too_little_coverage_is_named_before_too_little_traffic(tokens: int) -> None:
    given = row(is_drop=None, coverage_ratio=0.31, reported_prompt_tokens=tokens, severity=None,
                **{"class": None})  # fmt: skip
    assert said(given) == (
        "Too little coverage to judge: 31 % of the prompt tokens report a cached count, "
        f"{tokens:,} in the hour; hit ratio 38 % of those."
    )


def test_a_judgement_on_little_coverage_says_so() -> None:
    assert said(row(coverage_ratio=0.31)).endswith(
        "no cause found. Only 31 % of the prompt tokens report a cached count."
    )
    assert "Only" not in said(row(coverage_ratio=0.5))
    assert "Only" not in said(row(coverage_ratio=None))


def test_nothing_to_compare_with() -> None:
    given = row(is_drop=None, method="none", history_weeks=0, severity=None, **{"class": None})
    assert said(given) == (
        "Hit ratio 38 %; nothing to compare it with: under one week of history, and too few hours "
        "at this load."
    )
    assert tone(given) == "unknown"


def test_few_requests() -> None:
    given = row(is_drop=None, severity=None, **{"class": None})
    assert said(given) == "Too few requests in the hour to judge; hit ratio 38 %."


def test_a_drop_older_than_the_chart_says_before() -> None:
    onset = Onset(datetime(2026, 11, 28, 20, 0, tzinfo=UTC), earlier=True)
    assert ", since before Saturday 21:00." in said(row(), onset)
    assert ", since" not in said(row(), None)


def test_t78_a_night_with_two_hours_of_three_is_told_by_the_local_clock() -> None:
    """On 25 October Berlin's clocks went from 03:00 back to 02:00, at 01:00 UTC."""
    until = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    told = Told(until, BERLIN, Onset(datetime(2026, 10, 25, 0, 30, tzinfo=UTC)))
    assert "for Sunday 02:30" in sentence(row(), told)


def test_names_go_through_the_callers_quotes() -> None:
    given = row(**{"class": "template version or layout", "contributor": "<b>x</b>",
                   "contributor_share_ratio": 0.9})  # fmt: skip
    told = Told(UNTIL, BERLIN, None, lambda name: f"[{name}]")
    assert "90 % of the drop is template [<b>x</b>]." in sentence(given, told)


def test_a_name_cannot_steer_a_terminal_or_break_the_line() -> None:
    given = row(**{"class": "template version or layout", "contributor": "a\x1b[2J\nb" + "c" * 500,
                   "contributor_share_ratio": 0.9})  # fmt: skip
    line = said(given)
    assert line.isprintable()
    assert len(line) < 400


def test_every_tone_is_reached() -> None:
    rows = [row(severity="page"), row(), row(is_drop=False), None]
    assert [tone(given) for given in rows] == list(get_args(Tone))
