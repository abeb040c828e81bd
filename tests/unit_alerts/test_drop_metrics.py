"""What /metrics says of drops: bounded, one definition, a class that is no label of the alert."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.drops import MOST_SERIES, Drop, DropSettings, add_drops, judge, keep_since
from exporter.metrics import Page
from exporter.store.store import Store
from queries import registry
from tests.unit_alerts.hours import MONDAY, RATIOS, put_hour, put_request

END = MONDAY + timedelta(hours=1)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Four Mondays as in test_peak_drop, in a store."""
    opened = Store.open(tmp_path)
    for week, ratio in enumerate(RATIOS, 1):
        put_hour(opened.cursor(), MONDAY - timedelta(weeks=week), ratio, tenant="acme")
    yield opened
    opened.close()


def lines(drops: list[Drop]) -> dict[str, float]:
    page = Page()
    add_drops(page, drops)
    return {
        f"{family.name}{{{labels}}}": value
        for family in page.families()
        for _, labels, value in family.lines
    }


def test_a_drop_is_judged_by_model_and_by_what_dropped(store: Store) -> None:
    put_hour(store.cursor(), MONDAY, 0.1, tenant="acme", ttft_seconds=1.0)
    found = judge(store.cursor(), DropSettings(), END)
    labels = {drop.labels: drop for drop in found}
    assert set(labels) == {
        ("log", "m", "", "", ""), ("log", "m", "", "t", ""), ("log", "m", "", "", "acme"),
    }  # fmt: skip
    whole = labels["log", "m", "", "", ""]
    assert whole.drop_ratio == pytest.approx(0.7)
    assert (whole.kind, whole.severity) == ("reuse stopped", "page")
    assert (whole.expected_ratio, whole.actual_ratio) == pytest.approx((0.8, 0.1))
    assert (whole.contributor, whole.since) == ("t", MONDAY)


def test_a_template_may_drop_where_its_model_does_not(store: Store) -> None:
    """2,000,000 tokens at 0.8 as ever, beside 100,000 of a template that falls to 0.4."""
    cursor = store.cursor()
    for week, ratio in enumerate(RATIOS, 1):
        put_hour(cursor, MONDAY - timedelta(weeks=week), ratio, 2_000_000, template="large")
    put_hour(cursor, MONDAY, 0.8, 2_000_000, template="large")
    put_hour(cursor, MONDAY, 0.4)
    found = {drop.labels[3]: drop for drop in judge(cursor, DropSettings(), END)}
    assert found[""].severity is None, "0.4 of a 21st are 1.9 points"
    assert found["t"].drop_ratio == pytest.approx(0.4)
    assert found["t"].severity == "ticket"


def test_telemetry_is_not_cut_off_by_models_that_are_well(store: Store) -> None:
    """Of 25 models one lost all its counts, and with them the size of its drop."""
    cursor = store.cursor()
    for number in range(25):
        name = f"m{number}"
        for week, ratio in enumerate(RATIOS, 1):
            put_hour(cursor, MONDAY - timedelta(weeks=week), ratio, model=name)
        put_hour(cursor, MONDAY, 0.75, model=name)
    cursor.execute(
        "UPDATE requests SET cached_tokens = NULL WHERE model = 'm7' AND ts > ?",
        [MONDAY.replace(tzinfo=None)],
    )
    found = judge(cursor, DropSettings(), END)
    assert len(found) == MOST_SERIES
    assert (found[0].labels[1], found[0].kind, found[0].severity) == ("m7", "telemetry", "ticket")


def test_without_a_drop_only_models_have_a_series(store: Store) -> None:
    put_hour(store.cursor(), MONDAY, 0.85, tenant="acme")
    [drop] = judge(store.cursor(), DropSettings(), END)
    assert drop.drop_ratio == pytest.approx(-0.05)
    assert (drop.kind, drop.severity) == (None, None)


def test_what_does_not_drop_is_not_taken_out_of_its_table(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may know ten thousands of tenants, each a row of thirty values on every minute."""
    put_hour(store.cursor(), MONDAY, RATIOS[0], tenant="acme")
    taken: list[int] = []
    rows = registry.rows
    monkeypatch.setattr(registry, "rows", lambda table: taken.append(len(table)) or rows(table))
    judge(store.cursor(), DropSettings(), END)
    assert taken == [1, 0, 0, 0], "the model, and no route, template or tenant"


def test_without_rows_there_is_nothing(store: Store) -> None:
    assert judge(store.cursor(), DropSettings(), END + timedelta(days=1)) == []


def test_series_are_bounded(store: Store) -> None:
    for number in range(30):
        for week in range(5):
            put_hour(store.cursor(), MONDAY - timedelta(weeks=week), 0.8 if week else 0.1,
                     tenant=f"t{number}")  # fmt: skip
    assert len(judge(store.cursor(), DropSettings(), END)) == MOST_SERIES


def test_the_class_is_a_label_of_info_alone() -> None:
    shown = ("log", "m", "", 'a "quoted" one', "")
    drop = Drop(shown, 0.25, "reset", "ticket", 0.75, 0.5, "checkout v8", MONDAY)
    drops = [drop, Drop(("log", "n", "", "", ""), -0.1, None, None, 0.5, 0.6)]
    other = 'basis="log",model="n",route="",template="",tenant=""'
    named = r'basis="log",model="m",route="",template="a \"quoted\" one",tenant=""'
    contributor = 'class="reset",contributor="checkout v8"'
    assert lines(drops) == {
        f"prefixcache_peak_hit_drop_ratio{{{named}}}": 0.25,
        f"prefixcache_peak_hit_drop_severity{{{named}}}": 1,
        f"prefixcache_peak_hit_drop_info{{{named},{contributor}}}": 1,
        f"prefixcache_peak_hit_drop_expected_ratio{{{named}}}": 0.75,
        f"prefixcache_peak_hit_drop_actual_ratio{{{named}}}": 0.5,
        f"prefixcache_peak_hit_drop_since_timestamp_seconds{{{named}}}": MONDAY.timestamp(),
        f"prefixcache_peak_hit_drop_ratio{{{other}}}": -0.1,
    }


KEY = ("log", "m", "", "", "")


def since(store: Store, until: datetime, *drops: Drop) -> list[datetime | None]:
    return [drop.since for drop in keep_since(store, DropSettings(), until, drops)]


def test_another_class_or_severity_is_the_same_drop(store: Store) -> None:
    first = Drop(KEY, 0.25, "reset", "page", since=MONDAY)
    other = Drop(("log", "n", "", "", ""), 0.2, "deploy", "ticket", since=END)
    assert since(store, END, first) == [MONDAY]
    now = Drop(KEY, 0.2, "deploy", "ticket", since=END)
    assert since(store, END + MINUTE, now, other) == [MONDAY, END]


def test_a_drop_that_was_over_begins_anew(store: Store) -> None:
    assert since(store, END, Drop(KEY, 0.25, "reset", "page", since=MONDAY)) == [MONDAY]
    assert since(store, END + MINUTE, Drop(KEY, 0.0, None, None)) == [None]
    assert since(store, END + 2 * MINUTE, Drop(KEY, 0.25, "reset", "page", since=END)) == [END]


def test_a_restart_does_not_forget_when_a_drop_began(tmp_path: Path) -> None:
    """For an hour: whoever was away for longer does not know that it lasted."""
    for moment, expected in ((END, MONDAY), (END + 50 * MINUTE, MONDAY), (END + DAY, END)):
        opened = Store.open(tmp_path)
        known = END if moment > END else MONDAY
        assert since(opened, moment, Drop(KEY, 0.25, "reset", "page", since=known)) == [expected]
        opened.close()


@pytest.mark.parametrize("template", ["", "t"])
def test_a_new_drop_began_when_it_did_and_not_with_its_window(store: Store, template: str) -> None:
    """At 10:59 the hour from 9:59 on is judged; from 10:40 on nothing hits."""
    for minute in range(60):
        put_request(store.cursor(), MONDAY + minute * MINUTE, 2_000, 1_600 if minute < 40 else 0)
    until = MONDAY + 59 * MINUTE
    found = keep_since(store, DropSettings(), until, judge(store.cursor(), DropSettings(), until))
    [drop] = [drop for drop in found if drop.labels == ("log", "m", "", template, "")]
    assert drop.severity
    assert drop.since == MONDAY + 40 * MINUTE


def test_what_gave_no_name_is_told_of_once(store: Store) -> None:
    put_hour(store.cursor(), MONDAY, 0.1, tenant="acme")
    found = [drop.labels for drop in judge(store.cursor(), DropSettings(), END)]
    assert len(found) == len(set(found)), "no route was given: it is not the model once more"


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="'Moon/Base' is no time zone; write UTC or Europe"):
        DropSettings(zone="Moon/Base")
