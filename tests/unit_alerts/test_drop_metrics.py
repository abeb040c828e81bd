"""What /metrics says of drops: bounded, one definition, a class that is no label of the alert."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.drops import MOST_SERIES, Drop, DropSettings, add_drops, judge, keep_since
from exporter.metrics import Page
from exporter.store.store import Store
from tests.unit_alerts.hours import MONDAY, RATIOS, put_hour

END = MONDAY + timedelta(hours=1)


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
    put_hour(store.cursor(), MONDAY, 0.1, tenant="acme")
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


def test_without_a_drop_only_models_have_a_series(store: Store) -> None:
    put_hour(store.cursor(), MONDAY, 0.85, tenant="acme")
    [drop] = judge(store.cursor(), DropSettings(), END)
    assert drop.drop_ratio == pytest.approx(-0.05)
    assert (drop.kind, drop.severity) == (None, None)


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


def test_another_class_or_severity_is_the_same_drop() -> None:
    key, other = ("log", "m", "", "", ""), ("log", "n", "", "", "")
    before = [Drop(key, 0.25, "reset", "page", since=MONDAY)]
    now = [
        Drop(key, 0.2, "deploy", "ticket", since=END),
        Drop(other, 0.2, "deploy", "ticket", since=END),
    ]
    assert [drop.since for drop in keep_since(before, now)] == [MONDAY, END]


def test_a_drop_that_was_over_begins_anew() -> None:
    key = ("log", "m", "", "", "")
    over = keep_since([Drop(key, 0.25, "reset", "page", since=MONDAY)], [Drop(key, 0, None, None)])
    assert over[0].since is None
    again = keep_since(over, [Drop(key, 0.25, "reset", "page", since=END)])
    assert again[0].since == END


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="'Moon/Base' is no time zone; write UTC or Europe"):
        DropSettings(zone="Moon/Base")
